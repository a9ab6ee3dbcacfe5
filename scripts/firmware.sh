#!/usr/bin/env bash
# Runs firmware-demo in QEMU, in C and in Rust on each board, and prints its tables and its figures.
#
#   firmware.sh
#
# Exit status 1: a board or a firmware fails, C and Rust decide differently, two runs differ, or a budget is exceeded.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'firmware: %s\n' "$*" >&2; exit 1; }
made=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/firmware
demo() { make --no-print-directory --silent -C firmware-demo "$@"; } # TARGET BOARD=... DEVICE=...

# The board keeps its promises; and what it reports reaches us, as that a file cannot be written.
check_board() { # BOARD
  local here=$made/$1/test
  demo run BOARD="$1" DEVICE=test || die "$1 does not keep its promises"
  [ "$(cat "$here/board.txt")" = "written by the board" ] || die "$1: no file came out"
  mkdir -p "$here/failing/board.txt"
  ! demo run BOARD="$1" DEVICE=test directory="$here/failing" > "$here/failing/output" 2>&1 || die "$1: a failure is no failure"
  grep -q '^FAILED: a file cannot be written$' "$here/failing/output" || die "$1: a failure has no name"
  echo "$1: fails, as it must, where a file cannot be written"
}

# Two runs, which have to be the same, with what they count.
run() { # BOARD DEVICE
  local here=$made/$1/$2 i
  for i in 1 2; do
    demo count BOARD="$1" DEVICE="$2" > "$here.$i" || { cat "$here.$i"; die "$1, $2: failed"; }
    cat "$here/trace.txt" "$here/count" >> "$here.$i"
  done
  cmp "$here.1" "$here.2" || die "$1, $2: two runs are not the same"
  demo sizes BOARD="$1" DEVICE="$2"
}

# From lines of bytes and a function lines of: bytes, what; their sum, or the most. A number that is not known is a failure.
# A function of strict Barriers is one that a firmware without them does not have.
by_policy() { # sum|most
  awk -v way="$1" '
    function add(what) {
      if ($1 == "?") unknown = 1
      bytes[what] = way == "sum" ? bytes[what] + $1 : $1 > bytes[what] + 0 ? $1 : bytes[what]
    }
    { name = substr($0, index($0, " ") + 1); part = name ~ /init|config|time::/ ? "to set up" : "to decide" }
    name ~ /^aggregation_|^<?firmware::aggregation/ { add("nvme, " part) }
    name ~ /^<?firmware::policy::(Selected|machine)/ { add("the policy, as it is called") }
    name ~ /^coalesce_vic_|^<?vic_core::|^coalesce::(vic|tagged)/ { add("vic, " part) }
    name ~ /^coalesce_auto_|^<?budget_core::(auto|regulator)::|^coalesce::auto/ { add("the regulator of auto, " part); next }
    name ~ /^coalesce_budget_|^<?budget_core::|^coalesce::(budget|tagged)/ { add("budget, " part) }
    name ~ /^coalesce_(cint|window|hint)_|^<?cint_core::|^coalesce::(cint|tagged)/ { add((name ~ /strict|window|barrier/ ? "cint, strict Barriers, " : "cint, ") part) }
    END { for (what in bytes) printf "%d\t%s\n", bytes[what], what; exit unknown }' | sort -k 2 -t "$(printf '\t')"
}
sizes() { # BOARD DEVICE
  awk '$3 ~ /^[tT]$/ { print $2 + 0, substr($0, index($0, $4)) }' "$made/$1/$2/sizes" | by_policy sum
}

figures() { # BOARD DEVICE
  arm-none-eabi-size "$made/$1/$2/firmware.elf" | awk 'NR == 2 { printf "\n.text %d, .data %d, .bss %d bytes, all with the lab\n", $1, $2, $3 }'
  printf '\nbytes of code\n'
  sizes "$1" "$2" | awk -F '\t' '{ printf "%9d  %s\n", $1, $2 }'
  printf '\nbytes of stack, at most, of the policy alone\n'
  by_policy most < "$made/$1/$2/stacks" | awk -F '\t' '{ printf "%9d  %s\n", $1, $2 }' || die "$1, $2: what a policy takes is not known"
  printf '\n%9s %9s %9s %9s %9s  instructions of\n' calls least median mean worst
  sort "$made/$1/$2/count" | awk -F '\t' '{ printf "%9d %9d %9d %9.1f %9d  %s\n", $2, $3, $4, $5, $6, $1 }'
}

show() { # BOARD DEVICE
  run "$1" "$2"
  printf '\n== %s, %s\n\n' "$1" "$2"
  sed '/^#/,$d' "$made/$1/$2.1" # what it printed; then comes the trace
  figures "$1" "$2"
}

budget() { # WHAT NUMBER LIMIT
  echo "budget: $1: $2; allowed: at most $3"
  [ "$2" -le "$3" ] || over=1
}

# The page has the first three workloads as the C firmware runs them on the Cortex-M4, but for what another compiler may change: a
# twentieth. UPDATE=1 writes them.
check_page() {
  local page=firmware-demo/README.md rows='(workload|sync|async|mixed) ' new
  new=$(sed '/^#/,$d' "$made/mps2-an386/c.1" | grep -E "^$rows")
  if [ -n "${UPDATE:-}" ]; then
    awk -v new="$new" -v rows="^    $rows" '/^    workload / { gsub(/(^|\n)/, "&    ", new); print new } $0 !~ rows' "$page" > "$made/page"
    cp "$made/page" "$page"
  fi
  paste -d ' ' <(sed 's/^    //' "$page" | grep -E "^$rows") - <<< "$new" | awk '{
    for (i = 1; i <= NF / 2; i++) {
      then = $i; now = $(i + NF / 2); difference = then > now ? then - now : now - then
      if (then != now && (then + 0 != then || difference > now / 20 + 0.05)) { print $1, $2 ": column", i, "is", then, "and now", now; stale = 1 }
    } } END { exit stale }' || die "$page has other numbers than the firmware prints: UPDATE=1 scripts/firmware.sh"
}

over=
for board in mps2-an386 versatilepb; do
  check_board "$board"
  for device in c rust; do
    show "$board" "$device"
  done
  cmp "$made/$board"/{c,rust}/trace.txt || die "$board: C and Rust decide differently"
  echo "C and Rust decide the same: $(grep -vc '^#' "$made/$board/c/trace.txt") decisions"
done
check_page
# One policy alone, in Rust, of which nothing is inlined.
for device in only-auto only-budget only-cint only-vic; do
  show mps2-an386 "$device"
done
whole() { # DEVICE
  ! grep OUTLINED_FUNCTION "$made/mps2-an386/$1/sizes" >&2 || die "$1: code of a function is elsewhere"
  awk '/ <?(firmware::policy::(Selected|machine)|(budget|cint|vic)_core)/ { bytes += $2 } END { print bytes }' "$made/mps2-an386/$1/sizes"
}
in_c() { sizes mps2-an386 c | awk -F '\t' -v name="$1, to" 'index($2, name) { bytes += $1 } END { print bytes }'; } # POLICY
median() { awk -F '\t' -v name="$2" '$1 ~ name { print $4 }' "$made/mps2-an386/$1/count"; } # DEVICE FUNCTION
# The last measured number plus a margin (measurements/diary.md), or the goal. Called through the trait, with a completion in memory.
echo
budget "bytes of cint alone, in Rust on Cortex-M4" "$(whole only-cint)" 1024
budget "bytes of a latency budget alone, in Rust on Cortex-M4" "$(whole only-budget)" 3050
budget "bytes of auto alone, in Rust on Cortex-M4" "$(whole only-auto)" 6200
budget "instructions of vIC alone at a completion, in Rust on Cortex-M4, median" "$(median only-vic '::on_completion::')" 45
budget "instructions of a latency budget alone at a completion, the same" "$(median only-budget '::on_completion::')" 194
budget "instructions of a latency budget alone at a submission, the same" "$(median only-budget '::on_submit::')" 34
budget "instructions of auto alone at a completion, the same" "$(median only-auto '::on_completion::')" 246
budget "bytes of cint, in C on Cortex-M4" "$(in_c cint)" 3600
budget "bytes of a latency budget, in C on Cortex-M4" "$(in_c budget)" 6900
budget "instructions of coalesce_vic_on_completion on Cortex-M4, median" "$(median c '^coalesce_vic_on_completion$')" 45
budget "instructions of coalesce_budget_on_completion on Cortex-M4, median" "$(median c '^coalesce_budget_on_completion$')" 206
budget "instructions of coalesce_auto_on_completion on Cortex-M4, median" "$(median c '^coalesce_auto_on_completion$')" 288
[ -z "$over" ] || die "a budget is exceeded"
