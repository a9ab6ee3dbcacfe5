#!/usr/bin/env bash
# CONTRIBUTING.md names every file that a new policy needs. Those are the files of the whole repository that name two policies like any
# other, `dim` and `spdk_vhost`: they list all policies. What names one of them only has it for an example. As `dim` has no parameters,
# the files of coalesce-policy that name those of `spdk_vhost` belong to them.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-recipe: %s\n' "$*" >&2; exit 1; }

# They name both, and need no line for a new policy.
exceptions=(
  scripts/check-recipe.sh scripts/follow-recipe.sh                             # this, and what tries it
  CHANGELOG.md docs/frontier.svg xtask/api                                     # history; drawn and generated
  crates/coalesce-decision crates/ffi/include crates/ffi/src docs/glossary.md  # reasons, which have a step of their own
  crates/coalesce-sim/plans crates/coalesce-sim/tests fuzz/corpus spdk/test    # a choice of policies, not all of them
  docs/papers.md                                                               # the flaws of both
  docs/c-abi.md docs/hooks.md                                                  # policies that hold what failed
)

# shellcheck disable=SC2016 # these are Markdown's quotes
recipe=$(sed -n '/^## Add a policy/,/^## /p' CONTRIBUTING.md | grep -oE '`[A-Za-z_.-]+(/[A-Za-z_.-]+)+`' | tr -d '`' | grep -v '/$' |
  sed 's|NAME|dim|; s|^src/|crates/coalesce-policy/src/|; s|^tests/|crates/coalesce-policy/tests/|' | grep -v '^scripts/' | sort -u)
[ "$(wc -l <<< "$recipe")" -ge 20 ] || die "found only: $recipe"
while read -r file; do
  [ -e "$file" ] || die "CONTRIBUTING.md names $file, which is not there"
  grep -qwiE 'dim|SpdkVhostParams' "$file" || die "CONTRIBUTING.md names $file, which names neither dim nor parameters"
done <<< "$recipe"
lists=$(git grep -lwiE 'spdk_?vhost(params)?' -- "${exceptions[@]/#/:!}" | xargs -d '\n' grep -lwi dim | sort)
params=$(git grep -lw SpdkVhostParams -- crates/coalesce-policy ':!*/spdk_vhost.rs')
comm -23 <(printf '%s\n' "$lists" "$params" | sort -u) <(printf '%s\n' "$recipe") | { ! grep . ; } ||
  die "CONTRIBUTING.md does not name these, which list policies or their parameters"
