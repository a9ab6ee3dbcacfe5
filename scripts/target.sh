#!/usr/bin/env bash
# What packaging/targets says: a column of a target, or the targets.
#
#   target.sh [TARGET NUMBER]
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
awk -F ' *[|] *' -v target="${1:-}" -v number="${2:-1}" '
  /^[a-z]/ && (target == "" || $1 == target) { sub(/ +$/, "", $number); print $number }' "$(dirname "$0")/../packaging/targets"
