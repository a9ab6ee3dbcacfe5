#!/usr/bin/env bash
# The time of a decision, measured by criterion (benches/src/bin/time.rs): ns, medians, and the ratio to the paper's
# algorithm in C, over 1, 64 and 4096 queues.
#
#   bench.sh
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
cargo build --quiet --locked --release --package coalesce-benches --features criterion --bin time
target=$(realpath "${CARGO_TARGET_DIR:-target}")
export CRITERION_HOME=$target/criterion
rm -rf "$CRITERION_HOME"
"$target/release/time" > "$target/time.log" 2>&1 || { tail "$target/time.log" >&2; exit 1; }

ways=(algorithm2_on_completion coalesce_vic_on_completion vic_inlined coalesce_cint_on_completion cint_inlined coalesce_budget_on_completion budget_inlined 'any_policy none' 'any_policy nvme' 'any_policy dim')
for way in "${ways[@]}"; do
  jq --raw-output --slurp --arg way "$way" '[$way] + map(.median.point_estimate / 4096) | @tsv' \
    "$CRITERION_HOME/$way"/{1,64,4096}/new/estimates.json
done | awk -F '\t' '
  BEGIN { print "| | 1 queue | 64 queues | 4096 queues |\n| -- | --: | --: | --: |" }
  NR == 1 { for (n = 2; n <= 4; n++) c[n] = $n }
  { printf "| `%s`", $1; for (n = 2; n <= 4; n++) printf " | %.1f ns, %.2f x", $n, $n / c[n]; print " |" }'
