#!/usr/bin/env bash
# Every test of the project, in stages; what this machine cannot do is skipped by name, and counted at the end.
#
#   test.sh [STAGE...]     stages: lint cores c_abi bare_metal cost examples install tests loom fuzz firmware guest spdk; all of them by default
#
# Installs the packages it needs. REQUIRE_QEMU=1 makes a missing emulator a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

lint() {
  cargo fmt --all --check
  cargo clippy --quiet --locked --workspace --all-targets --features coalesce-benches/criterion -- -D warnings
  cargo fmt --manifest-path fuzz/Cargo.toml --check
  cargo fmt --manifest-path firmware-demo/rust/Cargo.toml --check
  local features
  for features in "" only-cint only-vic; do
    cargo clippy --quiet --locked --manifest-path firmware-demo/rust/Cargo.toml --features "$features" \
      --target-dir "${CARGO_TARGET_DIR:-target}/firmware-host/cargo" -- -D warnings
  done
  scripts/check-cycles.sh
  RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --workspace --no-deps
  if command -v shellcheck > /dev/null; then
    shellcheck --external-sources guest/*.sh guest/jobs/*.sh scripts/*.sh firmware-demo/*.sh spdk/test/*.sh .ci/run
  else
    echo "SKIPPED: lint of the scripts: no shellcheck"
  fi
}
cores() { scripts/check-cores.sh; }
c_abi() { scripts/check-c-abi.sh; }
# What firmware gets. The compilers for it are Debian's.
bare_metal() {
  if guest/packages.sh gcc-arm-none-eabi && scripts/bare-metal.sh > /dev/null; then
    scripts/check-bare-metal.sh
    scripts/size.sh > /dev/null
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: bare metal: no compilers for it"
  fi
}
# Instructions of a decision.
cost() { scripts/cost.sh; }
examples() { scripts/check-examples.sh; }
install() { scripts/check-install.sh; }
tests() { cargo test --quiet --locked --workspace; }
# Every interleaving of two threads: its own build, as loom replaces the atomics.
loom() { RUSTFLAGS='--cfg loom' cargo test --quiet --locked --release --package vic-core --test loom --target-dir target/loom; }
# One minute of arbitrary bytes for each target: two at a time.
fuzz() { scripts/fuzz.sh 60; }
# The controller of firmware-demo, in C and in Rust: here, under sanitizers, and on two emulated boards.
firmware() {
  firmware-demo/host.sh > target/firmware-host.log || { tail -n 20 target/firmware-host.log; return 1; }
  tail -n 1 target/firmware-host.log
  if guest/packages.sh qemu-system-arm gcc-arm-none-eabi && scripts/bare-metal.sh > /dev/null; then
    scripts/firmware.sh > target/firmware.log || { tail -n 20 target/firmware.log; return 1; }
    tail -n 3 target/firmware.log
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: firmware: no emulator or no compilers for it"
  fi
}
# SPDK's target with our policies, where there is an SPDK: SPDK=PREFIX, or PKG_CONFIG_PATH.
spdk() {
  if [ -n "${SPDK:-}" ] || pkg-config --exists spdk_event 2> /dev/null; then
    make --no-print-directory -C spdk test
  else
    echo "SKIPPED: spdk: no SPDK found by pkg-config"
  fi
}
# The guest kit's own checks: a disk that goes back in time is noticed, a job that fails is a failure.
guest() { guest/check.sh stale failures; }

[ $# -gt 0 ] || set -- lint cores c_abi bare_metal cost examples install tests loom fuzz firmware guest spdk
# A machine where nothing can be installed may have it all, or skip what needs it.
if ! { guest/packages.sh && guest/packages.sh build-essential shellcheck valgrind pkg-config; } && [ -n "${REQUIRE_QEMU:-}" ]; then exit 1; fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for stage; do
  printf '== %s\n' "$stage"
  start=$SECONDS
  # In a shell of its own, as a function after "if" would not stop at its first failure.
  set +e
  (set -e; "$stage") 2>&1 | tee -a "$log"
  status=${PIPESTATUS[0]}
  set -e
  [ "$status" = 0 ] || { printf '== %s FAILED\n' "$stage" >&2; exit 1; }
  printf '== %s: %s s\n' "$stage" $((SECONDS - start))
done

skipped=$(grep -c '^SKIPPED: ' "$log" || true)
grep '^SKIPPED: ' "$log" | sort -u || true
printf '== all passed, %s skipped\n' "$skipped"
