#!/usr/bin/env bash
# Instructions of a decision through the C ABI on x86-64, from the function's first to its return, counted by callgrind: the
# difference between 6400 and 3200 calls, less that of calling a function of two instructions, plus these. Beside them the
# paper's Algorithm 2 as one would write it in C (benches/algorithm2.c), gcc -O2.
#
#   cost.sh
#
# Exit status 1 if a budget is exceeded.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=${CARGO_TARGET_DIR:-target}
cargo rustc --quiet --locked --release --package coalesce-ffi --lib --crate-type staticlib --target-dir "$build"
cc -std=c99 -O2 -Wall -Wextra -Werror -I crates/ffi/include benches/cost.c benches/algorithm2.c "$build/release/libcoalesce.a" \
  -lpthread -ldl -lm -o "$work/cost"

collected() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$work/cost" "$@" 2>&1 | sed -n 's/.*Collected : //p'; }
cost() { echo $(($(collected "$1" 6400) - $(collected "$1" 3200))); }

nothing=$(cost nothing)
over=
declare -A of
printf '| path | instructions | allowed |\n| -- | --: | --: |\n'
for path in c-low c-ratio vic-low:25 vic-ratio:25 cint-plain:60 cint-urgent:105 cint-barrier:100; do
  name=${path%:*} limit=
  [ "$name" = "$path" ] || limit=${path#*:}
  of[$name]=$((($(cost "$name") - nothing) * 10 / 3200 + 20))
  printf '| %s | %d.%d | %s |\n' "$name" $((of[$name] / 10)) $((of[$name] % 10)) "$limit"
  [ -z "$limit" ] || [ "${of[$name]}" -le $((limit * 10)) ] || over+=" $name"
done
for way in low ratio; do
  printf 'vic / c, %s: %d.%02d\n' $way $((of[vic-$way] / of[c-$way])) $((of[vic-$way] * 100 / of[c-$way] % 100))
done
[ -z "$over" ] || { echo "cost: too much:$over" >&2; exit 1; }
