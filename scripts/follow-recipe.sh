#!/usr/bin/env bash
# Follows the recipe of CONTRIBUTING.md as far as it is code: a copy of coalesce-policy gets a policy `other`, which does what `dim` does,
# in the files that the recipe names. It compiles, has its text form, and keeps the rules of every policy.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'follow-recipe: %s\n' "$*" >&2; exit 1; }
work=${CARGO_TARGET_DIR:-target}/recipe
rm -rf "$work/copy"
mkdir -p "$work/copy"
crates=(crates/coalesce-decision crates/vic-core crates/cint-core crates/budget-core crates/coalesce-testkit crates/coalesce-policy)
cp -r --parents Cargo.lock "${crates[@]}" "$work/copy"
# A workspace of these alone, and optimised as little as will do.
members=$(printf '"%s", ' "${crates[@]}")
sed "s|^members = .*|members = [$members]|; /^\[profile/,\$d" Cargo.toml > "$work/copy/Cargo.toml"
printf '[profile.dev]\nopt-level = 1\ndebug = false\n' >> "$work/copy/Cargo.toml"

change() { # FILE SED-SCRIPT: below crates/coalesce-policy
  local file=$work/copy/crates/coalesce-policy/$1
  cp "$file" "$work/before"
  sed -i "$2" "$file"
  ! cmp -s "$work/before" "$file" || die "nothing to change in $1"
}
baseline=$work/copy/crates/coalesce-policy/src/baseline
sed 's/\bDim\b/Other/g' "$baseline/dim.rs" > "$baseline/other.rs"
change src/baseline.rs '/\bdim\b/{p; s/dim/other/; s/Dim/Other/}'
change src/spec.rs '/\bDim\b/{p; s/dim/other/; s/^ *Dim/\/\/\/ What dim does.\nOther/; s/Dim/Other/}'
change src/sum.rs '/^use/{s/ Dim,/ Dim, Other,/; b}; /\bDim\b/{p; s/Dim/Other/g}'
change src/text.rs 's/^const DIM: /const OTHER: \&Family<()> = \&keys::plain("other", "what dim does");\n&/; /^        .*\bDIM\b/{p; s/dim/other/; s/DIM/OTHER/; s/Dim/Other/}'
change tests/properties.rs '/^ *"dim",/{p; s/dim/other/}'
change tests/spec.rs '/("dim", "dim")/{p; s/dim/other/g}; s/ dim,/ dim, other,/'
for names in '--test spec' '--test properties every_policy_keeps_the_rules'; do
  # shellcheck disable=SC2086 # several words
  cargo test --quiet --offline --manifest-path "$work/copy/Cargo.toml" --target-dir "$work/built" --package coalesce-policy $names \
    > "$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "$names"; }
  grep -q '[1-9][0-9]* passed' "$work/log" || die "$names: no test"
done
echo "follow-recipe: one policy more, which keeps the rules"
