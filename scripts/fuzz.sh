#!/usr/bin/env bash
# Feed what reads foreign bytes arbitrary ones, under the address sanitizer, and stop at the first thing that goes wrong.
#
#   fuzz.sh [SECONDS] [TARGET...]     60 by default, and every target of fuzz/fuzz_targets; two at a time
#   fuzz.sh --build                   build every target, run none
#   fuzz.sh --coverage                what the last run of each target reached
#   PROFILE=brief                     for runs of seconds: compiled in a third of the time, and slower [release]
#
# A target begins with its seeds in fuzz/corpus/TARGET, and with the words of fuzz/dictionaries/TARGET if it reads text.
# What it learns stays in target/fuzz/corpus/TARGET, its log and an input that fails in target/fuzz.
# `cargo fuzz run TARGET target/fuzz/corpus/TARGET fuzz/corpus/TARGET` does the same with cargo-fuzz and a nightly toolchain.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."

# libFuzzer's last words about a target: code edges reached, features (edges with counts and values), inputs executed.
table() {
  local name log
  printf '%-12s %8s %8s %8s %10s %10s\n' target edges of features inputs per_second
  for name; do
    log=target/fuzz/$name.log
    [ -e "$log" ] || continue
    awk -v name="$name" '
      / inline 8-bit counters/ { gsub(/[^0-9]/, "", $5); all = $5 }
      / cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "ft:") features = $(i + 1) } }
      /^stat::number_of_executed_units:/ { inputs = $2 }
      /^stat::average_exec_per_sec:/ { rate = $2 }
      END { printf "%-12s %8s %8s %8s %10s %10s\n", name, edges, all, features, inputs, rate }' "$log"
  done
}

# One target. Where it fails: what went wrong, where, and the input.
run() {
  local name=$1 learned=target/fuzz/corpus/$1 seeds=fuzz/corpus/$1 words=fuzz/dictionaries/$1 log=target/fuzz/$1.log
  local program=target/fuzz/$host/$profile/$1 end=$((SECONDS + seconds)) found unsure=0
  local inputs=("$learned") options=(-max_len=2048 -timeout=60 -malloc_limit_mb=512)
  mkdir -p "$learned"
  if [ -d "$seeds" ]; then inputs+=("$seeds"); fi
  if [ -e "$words" ]; then options+=(-dict="$words"); fi
  while [ $SECONDS -lt $end ]; do
    if "$program" "${inputs[@]}" "${options[@]}" -max_total_time=$((end - SECONDS)) \
      -artifact_prefix="target/fuzz/$name-" -print_final_stats=1 2> "$log"; then return; fi
    # The leak check stops all threads, but does not know one that is just starting, and reports what it owns (once in some
    # 100 000 inputs of nvme, which starts threads). An input leaks if it does so again, or if there are many of them.
    found=$(sed -n 's/.*Test unit written to //p' "$log")
    if [[ $found != *-leak-* ]] || ((++unsure > 1 + seconds / 60)) || ! "$program" "$found" "$found" "$found" 2>> "$log"; then
      printf 'fuzz: %s FAILED, see %s\n' "$name" "$log" >&2
      grep -aE -A 2 '^thread .* panicked|^==[0-9]*== ?ERROR' "$log" >&2
      grep -aE ' in .*(/crates/|/fuzz_targets/)|^SUMMARY|Test unit written' "$log" >&2
      return 1
    fi
    printf 'fuzz: %s: a leak that its input does not repeat, see %s\n' "$name" "$found" >&2
  done
}

mapfile -t all < <(basename --suffix=.rs --multiple fuzz/fuzz_targets/*.rs)
if [ "$*" = --coverage ]; then table "${all[@]}"; exit; fi
only_build=
if [ "$*" = --build ]; then only_build=1; shift; fi
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

profile=${PROFILE:-release}
host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes. The sanitizer comes with a stable toolchain too, its option does not.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=1"
RUSTFLAGS=${RUSTFLAGS//$'\n'/ }
cargo build --quiet --locked --profile "$profile" --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz \
  "${targets[@]/#/--bin=}"
[ -z "$only_build" ] || exit 0

# Two at a time; 255 makes xargs begin no other.
export host seconds profile
export -f run
printf '%s\n' "${targets[@]}" | xargs -P 2 -I TARGET bash -uo pipefail -c 'run TARGET || exit 255'
table "${targets[@]}"
