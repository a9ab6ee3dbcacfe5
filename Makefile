# The short commands. Each calls a script or cargo.

help:
	@echo "make demo   serve a disk under every policy, load it natively and from a Linux guest: two tables, report.html; NVMe beside it"
	@echo "make test   run every test"
	@echo "make install [PREFIX=/usr/local] [LIBDIR=...] [DESTDIR=...]   install libcoalesce for C; make uninstall"
	@echo "make size   the bytes of libcoalesce, on x86-64 and on three bare-metal targets: a table"
	@echo "make spdk [SPDK=PREFIX]   SPDK's target with our policies, from an installed SPDK: see spdk/README.md"
	@echo "make firmware   the controller of firmware-demo on two emulated boards, in C and in Rust: tables and figures"
	@echo "make cost   instructions of a decision, beside the paper's algorithm in plain C"
	@echo "make bench  time of a decision, the same comparison, over 1, 64 and 4096 queues: two minutes, on an idle machine"
	@echo "make fmt    format the code"
	@echo "make lint   what the tests check before anything runs; installs nothing, says what is missing"

demo: toolchain
	-guest/packages.sh
	@command -v cc > /dev/null || guest/packages.sh build-essential
	cargo build --locked --release --package coalesce-target --package coalesce-demo
	target/release/coalesce-demo
	scripts/nvme-compare.sh --short

test: toolchain
	scripts/test.sh

libcoalesce: toolchain
	scripts/install.sh build

install:
	scripts/install.sh install

uninstall:
	scripts/install.sh uninstall

size: toolchain
	scripts/size.sh

spdk: toolchain
	$(MAKE) --no-print-directory -C spdk

firmware: toolchain
	guest/packages.sh qemu-system-arm gcc-arm-none-eabi
	scripts/firmware.sh

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

.PHONY: help demo test firmware cost bench libcoalesce install uninstall size spdk fmt lint toolchain
