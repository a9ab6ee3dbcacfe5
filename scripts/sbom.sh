#!/usr/bin/env bash
# What libcoalesce for a target is made of, as a bill of materials: CycloneDX 1.5, JSON.
#
#   sbom.sh TARGET SECONDS [FEATURES...]     SECONDS: its date, since 1970; FEATURES: options of cargo, such as --no-default-features
#
# cargo-cyclonedx would write into the sources, and does not know the standard library, which is all that we link of others. What that
# is made of is what bare-metal.sh has for the target. Needs jq.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'sbom: %s\n' "$*" >&2; exit 1; }
[ $# -ge 2 ] || die "which target, and when? sbom.sh TARGET SECONDS [FEATURES...]"
target=$1 date=$(date --utc --date="@$2" +%FT%TZ)
shift 2

rust=$(rustc --version | cut -d ' ' -f 2)
rustlib=$(rustc --print sysroot)/lib/rustlib
field() { sed -n "/^\[package\]/,/^\[[^p]/s/^$1 = \"\(.*\)\"/\1/p" "$2" | head -n 1; } # NAME MANIFEST
of_rust() {
  local rlib name manifest
  for rlib in "$rustlib/$target/lib"/lib*.rlib; do
    name=${rlib##*/lib} name=${name%-*}
    [[ $name != getopts && $name != rustc_literal_escaper ]] || continue # for tests and macros
    manifest=$(find "$rustlib/src/rust/library/vendor/" -maxdepth 2 -path "*/${name//_/[_-]}-[0-9]*/Cargo.toml")
    [ -n "$manifest" ] || continue # Rust's own
    printf 'rust@%s\t%s\t%s\t%s\n' "$rust" "$(field name "$manifest")" "$(field version "$manifest")" "$(field license "$manifest" | sed 's|/| OR |g')"
  done
}

# Lines of: what needs it, name, version, licence. A crate is below what needs it.
{ cargo tree --quiet --locked --package libcoalesce --target "$target" --edges normal,no-proc-macro --prefix depth --no-dedupe \
  --format ' {p}|{l}' "$@" |
  awk -F '|' -v OFS='\t' '{ split($1, word, " "); depth = word[1]; version = substr(word[3], 2)
    at[depth] = word[2] "@" version; print depth ? at[depth - 1] : "", word[2], version, $2 }'; of_rust; } | LC_ALL=C sort -u |
  jq --raw-input --slurp --arg date "$date" --arg target "$target" --arg rust "$rust" '
    def component($type): { type: $type, "bom-ref": "pkg:cargo/\(.name)@\(.version)", name, version,
      licenses: [{ expression: .licence }], purl: "pkg:cargo/\(.name)@\(.version)" };
    [split("\n")[] | select(. != "") | split("\t") | { by: .[0], name: .[1], version: .[2], licence: .[3] }] as $lines |
    { type: "library", "bom-ref": "rust@\($rust)", name: "Rust standard library", version: $rust,
      licenses: [{ expression: "MIT OR Apache-2.0" }], purl: "pkg:github/rust-lang/rust@\($rust)" } as $rust |
    ($lines | map(select(.by != "")) | unique_by(.name, .version)) as $linked |
    { "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
      metadata: { timestamp: $date, component: ($lines[] | select(.by == "") | component("library")),
        properties: [{ name: "coalesce:target", value: $target }] },
      components: [($linked[] | component("library")), $rust],
      dependencies: (
        [$lines[] | select(.by | startswith("rust@") | not) | "\(.name)@\(.version)"] | unique | map(. as $of |
          { ref: "pkg:cargo/\($of)",
            dependsOn: ([$lines[] | select(.by == $of) | "pkg:cargo/\(.name)@\(.version)"] + [$rust["bom-ref"]] | unique) })
        + [{ ref: $rust["bom-ref"],
             dependsOn: [$lines[] | select(.by == $rust["bom-ref"]) | "pkg:cargo/\(.name)@\(.version)"] }]) }'
