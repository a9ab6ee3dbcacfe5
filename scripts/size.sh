#!/usr/bin/env bash
# How large libcoalesce is: the bytes of code, with its tables, of each policy and each function, and of the states.
#
#   size.sh [--json] [TARGET...]     default: x86_64-unknown-linux-gnu and what bare-metal.sh makes
#
# Built as for firmware (bare-library.sh). A number is what a program grows by that uses just this: a function counts with
# all that it calls, but for memcpy and memset, and what several functions share counts once in their sum. Unwind tables
# do not count, as bare metal has none.
#
#   the paper's    a completion, with the end of an epoch or of a burst, and what it needs of deadlines
#   in use         all that is called after init, but for reconfigure and questions
#   all            these as well
#
# Exit status 1 if a budget is exceeded: the last measured number plus a margin (measurements/diary.md).
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
print=table
[ "${1:-}" != --json ] || { print=json; shift; }
[ $# -gt 0 ] || set -- x86_64-unknown-linux-gnu thumbv7em-none-eabihf armv7r-none-eabihf riscv32imac-unknown-none-elf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A name, its functions; with a budget, also its target and its bytes.
sums="vic, the paper's; coalesce_vic_(on_completion|deadline); x86_64-unknown-linux-gnu; 2000
vic, in use; coalesce_vic_(on_.*|deadline|flush)
vic, all; coalesce_vic_.*
cint, the paper's; coalesce_cint_(on_completion|deadline|on_deadline)
cint, in use, relaxed barriers; coalesce_cint_(on_(completion|deadline|batch_end|consumed)|deadline|flush); thumbv7em-none-eabihf; 1750
cint, in use, strict barriers; (coalesce_cint_(on_.*|deadline|flush)|coalesce_window_on_.*)
cint, all; coalesce_(cint|hint|window|reaper)_.*
budget, in use, relaxed barriers; coalesce_budget_(on_(submits|completion|deadline|consumed)|deadline|flush); thumbv7em-none-eabihf; 3850
budget, in use, strict barriers; (coalesce_budget_(on_.*|deadline|flush)|coalesce_window_on_.*)
budget, all; coalesce_budget_.*
auto, in use, relaxed barriers; coalesce_(auto_(on_completion|forget)|budget_(on_(submits|deadline|consumed)|deadline|flush))
ipi_gate, all; coalesce_ipi_gate_.*
nvme, all; coalesce_nvme_.*
everything; .*"
states=('coalesce_vic_state 104' 'coalesce_cint_state 88' 'coalesce_budget_state 112' 'coalesce_auto_state 200' 'coalesce_ipi_gate 24')

# Prints lines of: what, target, bytes, budget; 0: no budget.
measure() { # TARGET
  local target=$1 code lld functions members what which on limit
  lld=$(dirname "$(scripts/bare-metal.sh)")/rust-lld
  code=$(scripts/bare-library.sh "$target")
  code=${code%/*}/coalesce.o
  functions=$(nm --defined-only "$code" | sed -n 's/^[0-9a-f]* T //p' | sort)
  while IFS=';' read -r what which on limit; do
    mapfile -t members < <(grep -xE "${which# }" <<< "$functions")
    [ ${#members[@]} -gt 0 ] || continue # no IPI gate without 64-bit atomics
    "$lld" -flavor gnu --entry 0 --gc-sections --unresolved-symbols=ignore-all "${members[@]/#/--undefined=}" "$code" \
      -o "$work/program"
    size --format=sysv --radix=10 "$work/program" |
      awk -v OFS='\t' -v what="$what" -v target="$target" -v limit="$([ "${on# }" != "$target" ] || echo "$limit")" \
        '/^\.(text|rodata|data|bss)/ { bytes += $2 } END { print what, target, bytes, limit + 0 }'
  done < <(echo "$sums"; awk '{ print $1 "; " $1 }' <<< "$functions")
}

# The same for the states. They are arrays of uint64_t, so of one size everywhere.
measure_states() {
  local state
  { echo '#include "coalesce.h"'; for state in "${states[@]}"; do echo "${state% *} a_${state% *};"; done; } > "$work/states.c"
  cc -I crates/ffi/include -c "$work/states.c" -o "$work/states.o"
  for state in "${states[@]}"; do
    nm --print-size --radix=d "$work/states.o" |
      awk -v OFS='\t' -v type="${state% *}" -v limit="${state#* }" \
        '$4 == "a_" type { print type, "every target", $2 + 0, limit }'
  done
}

{ for target; do measure "$target"; done; measure_states; } > "$work/sizes"

table() {
  awk -F '\t' '
    function show(bytes, limit) { return !limit ? bytes : bytes (bytes > limit ? " > " : " ≤ ") limit }
    $2 == "every target" { states = states (states ? ", " : "") $1 " " show($3, $4); next }
    !($2 in column) { column[$2] = ++columns; head = head " | " $2; rule = rule " | --:" }
    !($1 in row) { row[$1] = ++rows; name[rows] = $1 }
    { cell[row[$1], column[$2]] = show($3, $4) }
    END {
      print "| bytes" head " |\n| --" rule " |"
      for (r = 1; r <= rows; r++) {
        printf "| %s", name[r]
        for (c = 1; c <= columns; c++) printf " | %s", cell[r, c]
        print " |"
      }
      print "\nStates: " states " bytes."
    }' "$work/sizes"
}
json() {
  awk -F '\t' '
    { printf "%s{\"what\": \"%s\", \"target\": \"%s\", \"bytes\": %d%s}", NR == 1 ? "[" : ",\n ", $1, $2, $3,
        $4 ? sprintf(", \"budget\": %d", $4) : "" }
    END { print "]" }' "$work/sizes"
}
"$print"
awk -F '\t' '$4 && $3 > $4 { printf "size: %s, %s: %d bytes; allowed: at most %d\n", $1, $2, $3, $4; over = 1 } END { exit over }' "$work/sizes" >&2
