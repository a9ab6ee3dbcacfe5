#!/usr/bin/env bash
# Follows the recipe of CONTRIBUTING.md as far as it is code: a copy of coalesce-policy gets a policy `other`, which does what
# `spdk_vhost` does, with parameters of its own, in the files that the recipe names. It compiles, has its text form, and keeps the rules
# of every policy.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'follow-recipe: %s\n' "$*" >&2; exit 1; }
work=${CARGO_TARGET_DIR:-target}/recipe
rm -rf "$work/copy"
mkdir -p "$work/copy"
crates=(crates/coalesce-decision crates/vic-core crates/cint-core crates/budget-core crates/coalesce-testkit crates/coalesce-policy)
cp -r --parents Cargo.lock "${crates[@]}" "$work/copy"
# A workspace of these alone, which shares what is built already of other crates.
members=$(printf '"%s", ' "${crates[@]}")
sed "s|^members = .*|members = [$members]|" Cargo.toml > "$work/copy/Cargo.toml"

change() { # FILE SED-SCRIPT: below crates/coalesce-policy
  local file=$work/copy/crates/coalesce-policy/$1
  cp "$file" "$work/before"
  sed -i "$2" "$file"
  ! cmp -s "$work/before" "$file" || die "nothing to change in $1"
}
# The same under another name, and with another name for one of the keys.
rename='s/spdk_vhost/other/g; s/SPDK_VHOST/OTHER/g; s/SpdkVhost/Other/g; s/delay_base_us/base_us/g'
# Where a line or a list of names has one of them, it has both.
both="/^use .*{/{s/SpdkVhost\(Params\)\?/&, Other\1/; b}; /spdk_\?vhost/I{p; $rename}"
baseline=$work/copy/crates/coalesce-policy/src/baseline
sed "$rename" "$baseline/spdk_vhost.rs" > "$baseline/other.rs"
change src/baseline.rs "$both"
change src/spec.rs "/^ *SpdkVhost/s/$/\n\/\/\/ What spdk_vhost does.\nOther(OtherParams),/; t; $both"
sed -n "/^pub(crate) const SPDK_VHOST/,/^};/{$rename; p}" "$work/copy/crates/coalesce-policy/src/keys.rs" > "$work/keys"
change src/keys.rs "/^use .*{/{$both}; \$r $work/keys"
change src/text.rs "$both"
change src/sum.rs "$both"
change tests/properties.rs "/^ *\"/{$both}"
change tests/spec.rs "/^ *(\"spdk_vhost/{$both}; s/ spdk_vhost\"),$/ spdk_vhost, other\"),/"
change tests/no_alloc.rs "s/ | Spec::SpdkVhost(_)/& | Spec::Other(_)/; t; $both"
change tests/aside.rs 's/"dim", /&"other", /'
for names in '--test spec' '--test aside' '--test properties every_policy_keeps_the_rules' '--test no_alloc --no-default-features'; do
  # shellcheck disable=SC2086 # several words
  cargo test --quiet --offline --manifest-path "$work/copy/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-target}" --package coalesce-policy $names \
    > "$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "$names"; }
  grep -q '[1-9][0-9]* passed' "$work/log" || die "$names: no test"
done
echo "follow-recipe: one policy more, with parameters, which keeps the rules"
