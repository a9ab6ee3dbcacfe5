#!/usr/bin/env bash
# CONTRIBUTING.md names every file that a new policy needs: those that name `dim`, a policy like any other.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-recipe: %s\n' "$*" >&2; exit 1; }

# shellcheck disable=SC2016 # these are Markdown's quotes
recipe=$(sed -n '/^## Add a policy/,/^## /p' CONTRIBUTING.md | grep -o '`[a-z./_A-Z-]*\.[a-z]*`' | tr -d '`' |
  sed 's|NAME|dim|; s|^src/|crates/coalesce-policy/src/|; s|^tests/|crates/coalesce-policy/tests/|' | grep -v '^scripts/' | sort -u)
[ "$(wc -l <<< "$recipe")" -ge 10 ] || die "found only: $recipe"
while read -r file; do
  [ -e "$file" ] || die "CONTRIBUTING.md names $file, which is not there"
  grep -qwi dim "$file" || die "CONTRIBUTING.md names $file, which has nothing of dim"
done <<< "$recipe"
git grep -lwi dim -- crates/coalesce-policy crates/ffi/tests crates/coalesce-charts/src crates/coalesce-sim/tests/score.txt docs/score.md |
  sort | comm -23 - <(printf '%s\n' "$recipe") | { ! grep . ; } || die "CONTRIBUTING.md does not name these, which name dim"
