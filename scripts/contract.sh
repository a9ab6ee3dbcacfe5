#!/usr/bin/env bash
# Try the contract of a latency budget for long: every load 20 s, the random ones with seeds that change from day to day.
#
#   contract.sh [--seeds N] [--seconds S] [ARGUMENT...]     150 random loads and 20 s by default; the rest is for coalesce-sim contract
#
# It prints the first seed, so `coalesce-sim contract --first SEED` does the same again; twice on one day is the same seed.
#
# Three of 1200 random loads were above the limit with which it fails, and one broke a rule (docs/budget.md, Random open loads): so two in
# five runs with new seeds fail. A failure is not always a regression: run the same seed on the previous commit.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
seeds=150 seconds=20 first=$(date +%Y%m%d)0000
while [ $# -gt 0 ]; do
  case $1 in
    --seeds) seeds=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    *) break ;;
  esac
done
cargo build --quiet --locked --release --package coalesce-sim
exec "${CARGO_TARGET_DIR:-target}/release/coalesce-sim" contract --first "$first" --seeds "$seeds" --duration "${seconds}s" "$@"
