#!/usr/bin/env bash
# Feed libcoalesce arbitrary bytes, under the address sanitizer, and stop at the first thing that goes wrong.
#
#   fuzz.sh [SECONDS]     60 by default
#
# What it has learnt stays in target/fuzz; an input that fails is left there too.
# `cargo fuzz run c_abi` does the same for those who have cargo-fuzz and a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1:-60} =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
target=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes. The sanitizer comes with a stable toolchain too, its option does not.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=1"
RUSTFLAGS=${RUSTFLAGS//$'\n'/ }
cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml --target "$target" --target-dir target/fuzz
mkdir -p target/fuzz/corpus
log=target/fuzz/log
target/fuzz/"$target"/release/c_abi target/fuzz/corpus -max_total_time="${1:-60}" -max_len=2048 \
  -artifact_prefix=target/fuzz/ -print_final_stats=1 2> "$log" || {
  # What went wrong, where, and the input.
  grep -aE -A 2 '^thread .* panicked|^==[0-9]*== ?ERROR' "$log" >&2
  grep -aE ' in .*(/crates/|/fuzz_targets/)|^SUMMARY|Test unit written' "$log" >&2
  exit 1
}
sed -n 's/^stat::number_of_executed_units: */fuzz: inputs: /p; s/^Done .*/fuzz: &/p' "$log"
