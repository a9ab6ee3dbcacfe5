#!/usr/bin/env bash
# The licences of the crates that are linked into programs or libraries of this project, for the copyright file of a package.
#
#   licences.sh CRATE...      prints each crate with its licence and origin, then every licence text once, with the crates that carry it
#
# Reads the packages of the crates, which cargo downloads where they are missing. Needs jq. A crate without a licence text in its
# package is listed as that. COMMON=DIR: a directory with Apache-2.0, to which is referred instead of that text.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'licences: %s\n' "$*" >&2; exit 1; }
[ $# -gt 0 ] || die "no crate: licences.sh CRATE..."
command -v jq > /dev/null || die "no jq: guest/packages.sh jq"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/texts"

# What is linked: neither what builds and tests, nor what runs in the compiler, nor our own crates.
cargo tree --quiet --locked --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p}' "${@/#/--package=}" |
  awk 'NF == 2 { sub(/^v/, "", $2); print $1 "|" $2 }' | sort -u > "$work/linked"
cargo metadata --quiet --locked --format-version 1 --filter-platform "$(rustc --version --verbose | sed -n "s/^host: //p")" |
  jq -r '.packages[] | select(.source != null) | [.name, .version, .license // "none", .repository // "", .manifest_path] | join("|")' | sort > "$work/known"

while IFS='|' read -r name version licence origin manifest; do
  printf '%s %s: %s%s\n' "$name" "$version" "$licence" "${origin:+, $origin}"
  found=
  while read -r file; do
    found=1
    sum=$(sha256sum < "$file" | cut -d ' ' -f 1)
    cp "$file" "$work/texts/$sum"
    if [ -n "${COMMON:-}" ] && grep -q 'TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION' "$file"; then
      printf 'Apache License, version 2.0: %s/Apache-2.0\n' "$COMMON" > "$work/texts/$sum"
    fi
    echo "$name" >> "$work/texts/$sum.crates"
  done < <(find "$(dirname "$manifest")" -maxdepth 1 -type f -iregex '.*/\(licen[cs]e\|copying\|notice\|copyright\|unlicense\)[^/]*' | sort)
  [ -n "$found" ] || printf '    carries no licence text\n'
done < <(awk -F '|' 'NR == FNR { linked[$1, $2] = 1; next } ($1, $2) in linked' "$work/linked" "$work/known") > "$work/list"
[ "$(grep -vc '^ ' "$work/list")" = "$(wc -l < "$work/linked")" ] || die "a linked crate is unknown to cargo metadata"

if [ -s "$work/linked" ]; then
  printf 'Linked into it are:\n\n'
  cat "$work/list"
  for text in "$work"/texts/*.crates; do
    printf '\n--- of %s\n\n' "$(sort -u "$text" | paste -sd ' ')"
    cat "${text%.crates}"
    echo
  done
fi
printf '\nThe standard library of Rust is linked, too: MIT OR Apache-2.0, https://github.com/rust-lang/rust\n'
