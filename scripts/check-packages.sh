#!/usr/bin/env bash
# Every crate in crates/ can be published: it packages against the others, with what a registry shows, a README and both
# licences inside, and its library and programs compile from what is in the package. The tests in a package read nothing else, and those
# of a core are run there. Nothing else is ever published.
# And every crate that this project builds on has a licence that deny.toml allows.
#
# Needs no network, and so does not run `cargo publish --dry-run`: it asks the registry even with --offline, for a crate
# without dependencies too, and fails (cargo 1.95). What only a registry knows stays unchecked: whether a name is free, and
# whether a category exists.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-packages: %s\n' "$*" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-target}

# Licences: of everything but the firmware and the guest, which get crates of this repository alone.
mapfile -t allowed < <(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",.*/\1/p' deny.toml)
[ ${#allowed[@]} -gt 0 ] || die "deny.toml allows no licence"
excepted=$(sed -n 's/^ *{ crate = "\(.*\)", allow = \["\(.*\)"\] },.*/\1 \2/p' deny.toml)
for manifest in Cargo.toml fuzz/Cargo.toml firmware-demo/rust/Cargo.toml firmware-demo/embassy/Cargo.toml; do
  cargo tree --quiet --locked --manifest-path "$manifest" --workspace --prefix none --no-dedupe --format '{p}|{l}' |
    sed '/./!d; s/ .*|/|/' || exit # not by set -e, which does not act before ||
done | sort -u | awk -F '|' -v allowed="$(printf '%s|' "${allowed[@]}")" -v excepted="$excepted" '
  BEGIN {
    n = split(allowed, list); for (i = 1; i <= n; i++) may[list[i]] = 1
    n = split(excepted, list, "\n"); for (i = 1; i <= n; i++) { split(list[i], pair, " "); one[pair[1], pair[2]] = 1 }
  }
  # Every part of a conjunction must have an alternative that is allowed.
  {
    gsub("/", " OR ", $2); gsub(/[()]/, "", $2); gsub(/ +/, " ", $2)
    parts = split($2, part, " AND "); good = parts > 0
    for (i = 1; i <= parts; i++) {
      either = 0
      choices = split(part[i], choice, " OR ")
      for (j = 1; j <= choices; j++) either = either || choice[j] in may || ($1, choice[j]) in one
      good = good && either
    }
    if (!good) { print "check-packages: licence of " $1 ": " ($2 ? $2 : "none"); bad = 1 }
  }
  END { print "check-packages: licences of " NR " crates"; exit bad || NR < 50 }' || die "see deny.toml"

for manifest in $(git ls-files '*Cargo.toml' ':!crates' ':!:Cargo.toml'); do
  grep -qx 'publish = false' "$manifest" || die "$manifest could be published"
done

# Who adds a core locks two packages, for whatever target.
for core in vic-core cint-core budget-core; do
  needed=$(cargo tree --quiet --locked --offline --package "$core" --edges normal,build --target all --prefix none --format '{p}' |
    sed 's/ .*//' | sort -u | paste -s -d ' ')
  [ "$needed" = "$(printf '%s\n' "$core" coalesce-decision | sort | paste -s -d ' ')" ] || die "$core needs $needed"
done
# What serves guests has no load generator in it.
needed=$(cargo tree --quiet --locked --package coalesce-target --edges normal,build --prefix none --format '{p}')
! grep -q '^coalesce-load ' <<< "$needed" || die "coalesce-target needs coalesce-load"

# Cargo resolves what is packaged together against each other since 1.90.
read -r _ version _ < <(cargo --version)
if [ "$(printf '%s\n' 1.90 "$version" | sort -V | head -n 1)" != 1.90 ]; then
  echo "SKIPPED: packages: cargo $version, this needs 1.90"
  exit
fi
packages=()
for manifest in crates/*/Cargo.toml; do
  packages+=("$(sed -n 's/^name = "\(.*\)"/\1/p;T;q' "$manifest")")
  for key in description keywords categories readme; do
    grep -qE "^$key(\.workspace)? = " "$manifest" || die "$manifest has no $key"
  done
done
made=$target/package
rm -rf "$made"
cargo package --locked --offline --allow-dirty --no-verify "${packages[@]/#/--package=}" > /dev/null 2> "$target/package.log" ||
  { cat "$target/package.log" >&2; exit 1; }
# A test that is kept out of its package, as it needs the repository, is a warning.
! grep -v '^warning: ignoring test ' "$target/package.log" | grep -A 3 '^warning' >&2 || die "see above"

# A workspace of what was packaged. It shares what is built already of other crates. All files in a package have one old
# date, by which Cargo would take them for those of the last run.
for package in "${packages[@]}"; do
  files=("$made/$package"-[0-9]*.crate)
  mkdir "$made/$package"
  tar -xzmf "${files[0]}" -C "$made/$package" --strip-components 1
  for file in LICENSE-MIT LICENSE-APACHE; do
    cmp -s "$file" "$made/$package/$file" || die "$package: no $file in the package"
  done
  [ -s "$made/$package/README.md" ] || die "$package: no README.md in the package"
done
{
  printf '[workspace]\nresolver = "3"\nmembers = ["*"]\nexclude = ["tmp-crate", "tmp-registry"]\n[patch.crates-io]\n'
  printf '%s\n' "${packages[@]}" | sed 's/.*/& = { path = "&" }/'
  sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml
} > "$made/Cargo.toml"
cp Cargo.lock "$made"
! grep -rnE '"/?\.\./\.\.' "$made"/*/tests --include '*.rs' >&2 || die "a test reads what is not in its package: see above; exclude in Cargo.toml"
cargo check --quiet --offline --workspace --manifest-path "$made/Cargo.toml" --target-dir "$target"
cargo test --quiet --offline --manifest-path "$made/Cargo.toml" --target-dir "$target" \
  --package coalesce-decision --package vic-core > "$target/package.log" 2>&1 ||
  { tail -n 40 "$target/package.log" >&2; die "tests of a package fail"; }
echo "check-packages: ${#packages[@]} packages, which compile; the tests of a core pass in its package"
