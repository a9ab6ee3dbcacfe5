#!/usr/bin/env bash
# The programs that the tests have built, in target/debug, or else built now.
#
#   built.sh PROGRAM...     coalesce-bench, coalesce-sim, coalesce-site, coalesce-target
#
# For a test of their packages, and of the whole workspace: a build of less would compile what they share with other features once more.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
tests=()
for program; do
  case $program in
    coalesce-bench) tests+=(--test qsd) ;;
    coalesce-sim) tests+=(--test score) ;;
    coalesce-site) tests+=(--test browser) ;;
    coalesce-target) tests+=(--test disks) ;;
    *) printf 'built: unknown program %s\n' "$program" >&2; exit 2 ;;
  esac
done
cargo test --quiet --locked --workspace --no-run "${tests[@]}"
