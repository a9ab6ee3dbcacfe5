# The short commands. Each calls a script or cargo.

help:
	@echo "make demo   serve a disk under every policy, load it natively and from a Linux guest: two tables, report.html"
	@echo "make test   run every test"
	@echo "make fmt    format the code"
	@echo "make lint   what the tests check before anything runs"

demo: toolchain
	-guest/packages.sh
	@command -v cc > /dev/null || guest/packages.sh build-essential
	cargo build --locked --release --package coalesce-target --package coalesce-demo
	target/release/coalesce-demo

test: toolchain
	scripts/test.sh

fmt: toolchain
	cargo fmt --all

lint: toolchain
	scripts/test.sh lint

toolchain:
	@command -v cargo > /dev/null || { echo "a Rust toolchain is missing (1.89 or newer): see https://rustup.rs" >&2; exit 1; }

.PHONY: help demo test fmt lint toolchain
