# The short commands. Each calls a script or cargo.

help:
	@echo "make demo   one disk under three policies in turn, on the host and in a Linux guest: a verdict, report.html; a minute (LONG=1: all, six)"
	@echo "make check  what most changes need: format, clippy, tests and machine code of what decides; a minute, in a new clone three"
	@echo "make test   run every test"
	@echo "make install [PREFIX=/usr/local] [LIBDIR=...] [DESTDIR=...]   install libcoalesce for C; make uninstall"
	@echo "make install-target [PREFIX=/usr/local] [UNITDIR=...] [DESTDIR=...]   install coalesce-target, coalesce-bench and coalesce-sim, with"
	@echo "            manual pages, completions, systemd units; make uninstall-target"
	@echo "make release   libcoalesce for those who have no Rust: archives for Linux and bare metal, in target/archives (docs/without-rust.md)"
	@echo "make size   the bytes of libcoalesce, on x86-64 and on three bare-metal targets: a table"
	@echo "make spdk [SPDK=PREFIX]   SPDK's target with our policies, from an installed SPDK: see spdk/README.md"
	@echo "make firmware   the controller of firmware-demo on two emulated boards, in C and in Rust: tables and figures"
	@echo "make site   the documentation as web pages: target/site/index.html; with a playground: target/site/docs/play.html"
	@echo "make cost   instructions of a decision, beside the paper's algorithm in plain C, and of a request"
	@echo "make bench  time of a decision, the same comparison, over 1, 64 and 4096 queues: two minutes, on an idle machine"
	@echo "make fmt    format the code"
	@echo "make lint   what the tests check before anything runs; installs nothing, says what is missing"

demo: toolchain
	-guest/packages.sh
	@command -v cc > /dev/null || guest/packages.sh build-essential
	cargo build --locked --release --package coalesce-target --package coalesce-load --package coalesce-demo
	$(or $(CARGO_TARGET_DIR),target)/release/coalesce-demo $(if $(LONG),--long)

test: toolchain
	scripts/test.sh

check: toolchain
	scripts/test.sh check

libcoalesce: toolchain
	scripts/install.sh build

install:
	scripts/install.sh install

uninstall:
	scripts/install.sh uninstall

install-target:
	scripts/install-target.sh install

uninstall-target:
	scripts/install-target.sh uninstall

release:
	guest/packages.sh build-essential jq gcc-arm-none-eabi binutils-riscv64-unknown-elf binutils-aarch64-linux-gnu
	rm -rf target/archives
	scripts/release.sh target/archives

size: toolchain
	scripts/size.sh

spdk: toolchain
	$(MAKE) --no-print-directory -C spdk

firmware: toolchain
	guest/packages.sh qemu-system-arm gcc-arm-none-eabi
	scripts/firmware.sh

site: toolchain
	simulator=$$(scripts/play.sh) || echo "the playground is left out: see above" >&2; \
	cargo run --quiet --locked --package coalesce-site -- target/site $$simulator

cost: toolchain
	guest/packages.sh build-essential valgrind
	scripts/cost.sh

bench: toolchain
	guest/packages.sh build-essential jq
	scripts/bench.sh

fmt: toolchain
	cargo fmt --all
	git ls-files -z '*.c' '*.h' ':!crates/ffi/include/coalesce.h' | xargs -0 clang-format -i

lint: toolchain
	scripts/test.sh lint

toolchain:
	@command -v cargo > /dev/null || { echo "a Rust toolchain is missing (1.89 or newer): see https://rustup.rs" >&2; exit 1; }

.PHONY: help demo check test firmware site cost bench libcoalesce install uninstall install-target uninstall-target release size spdk fmt lint toolchain
