#!/usr/bin/env bash
# The archives of a release: libcoalesce for those who have no Rust, for each target of packaging/targets, and for Cortex
# also in the folders of CMSIS.
#
#   release.sh DIR [TARGET...]     DIR is made, and gets the archives and SHA256SUMS
#
# Everything is compiled by Debian's rustc (bare-metal.sh): no other toolchain is needed, and the same sources give the same
# bytes, wherever they lie. SOURCE_DATE_EPOCH is the date of the files [the commit's].
# Needs: guest/packages.sh build-essential jq gcc-arm-none-eabi binutils-riscv64-unknown-elf binutils-aarch64-linux-gnu
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'release: %s\n' "$*" >&2; exit 1; }
say() { printf 'release: %s\n' "$*" >&2; }
[ -n "${1:-}" ] || die "the directory for the archives is missing: release.sh DIR [TARGET...]"
[[ $1 != -* ]] || die "$1: expected a directory, whose name does not begin with -: release.sh DIR [TARGET...]"
mkdir -p "$1"
out=$(realpath "$1")
shift
[ -z "$(find "$out" -mindepth 1 -maxdepth 1)" ] || die "$out is not empty"
mapfile -t all < <(scripts/target.sh)
[ $# -gt 0 ] || set -- "${all[@]}"
for target; do [[ " ${all[*]} " == *" $target "* ]] || die "no target $target; there are: ${all[*]}"; done
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
export LC_ALL=C TZ=UTC
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rustc=$(scripts/bare-metal.sh "$@")
compiler=${rustc%/bin/rustc}
copyright=$compiler/usr/share/doc/libstd-rust-web-dev/copyright
[ -e "$copyright" ] || die "$compiler is of an older checkout, without the licences: remove it"
export PATH=$compiler/bin:$PATH
unset RUSTC RUSTFLAGS CARGO_BUILD_TARGET CARGO_BUILD_RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
build=$compiler/build

# Hosts get the text forms as well, so the standard library with them.
is_hosted() { [[ $1 == *-linux-* ]]; } # TARGET
features() { is_hosted "$1" || echo "--no-default-features --features no-panic"; } # TARGET

# A place that is in a message of a panic is not this machine's.
hosted() { # TARGET: the library, and what a program needs beside it
  RUSTFLAGS="--remap-path-prefix=$PWD=/coalesce --remap-path-prefix=$compiler=/rust" \
    cargo rustc --locked --release --package libcoalesce --lib --crate-type staticlib --target "$1" --target-dir "$build" -- \
    --print native-static-libs 2> "$work/log" || { cat "$work/log" >&2; die "$1: the build failed"; }
  # The C compiler adds by itself what unwinds.
  sed -n 's/^note: native-static-libs: //p' "$work/log" | sed -E 's/-l(gcc_s|gcc_eh|unwind) *//g' > "$work/needs"
  echo "$build/$1/release/libcoalesce.a"
}
bare() { # TARGET: the library's own code
  local library
  library=$(scripts/bare-library.sh "$1")
  : > "$work/needs"
  echo "${library%/*}/coalesce.o"
}

documents() { # FOLDER
  cp LICENSE-MIT LICENSE-APACHE "$1"
  cp docs/without-rust.md "$1/README.md"
  sed 's/](without-rust.md)/](README.md)/' docs/c-abi.md > "$1/c-abi.md"
}
example() { # FOLDER
  cp crates/ffi/examples/latency_budget.c packaging/example/{CMakeLists.txt,meson.build} "$1"
}
pack() { # NAME: the folder $work/NAME
  tar --create --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --directory "$work" "$1" |
    gzip -9n > "$out/$1.tar.gz"
}

archive() { # TARGET
  local target=$1 name=coalesce-$version-$1 root tools code definition=
  root=$work/$name
  tools=$(scripts/target.sh "$target" 3)
  mkdir -p "$root"/{include,lib,share/doc/coalesce,share/coalesce/example}
  if is_hosted "$target"; then code=$(hosted "$target"); else code=$(bare "$target") definition=COALESCE_BARE_METAL; fi
  scripts/seal.sh "$code" "$root/lib/libcoalesce.a" "$tools"
  "${tools}objcopy" --strip-unneeded "$root/lib/libcoalesce.a"
  if [[ $tools == arm-* ]]; then
    read -ra options <<< "$(scripts/target.sh "$target" 4)"
    "${tools}gcc" "${options[@]}" -Os -ffreestanding -ffunction-sections -c packaging/aeabi.c -o "$work/aeabi.o"
    "${tools}ar" rcsD "$root/lib/libcoalesce.a" "$work/aeabi.o"
  fi
  cp crates/ffi/include/coalesce.h "$root/include"
  # shellcheck disable=SC2016 # pkg-config's own variable
  scripts/describe-library.sh "$root/lib" '${pcfiledir}/../..' '${pcfiledir}/../../lib' '${pcfiledir}/../../include' \
    "$(cat "$work/needs")" "$definition"
  documents "$root/share/doc/coalesce"
  example "$root/share/coalesce/example"
  # shellcheck disable=SC2046 # several words
  scripts/sbom.sh "$target" "$epoch" $(features "$target") > "$root/share/doc/coalesce/coalesce.cdx.json"
  if is_hosted "$target"; then cp "$copyright" "$root/share/doc/coalesce/COPYRIGHT-rust"; fi
  pack "$name"
}

cmsis=coalesce-$version-cmsis
for target; do
  say "$target"
  archive "$target"
  library=$(scripts/target.sh "$target" 5)
  [ -n "$library" ] || continue
  mkdir -p "$work/$cmsis"/{Include,Lib/GCC,Example,Documentation}
  cp "$work/coalesce-$version-$target/lib/libcoalesce.a" "$work/$cmsis/Lib/GCC/libcoalesce_$library.a"
  cp "$work/coalesce-$version-$target/share/doc/coalesce/coalesce.cdx.json" "$work/$cmsis/Documentation"
done
if [ -d "$work/$cmsis" ]; then
  cp crates/ffi/include/coalesce.h "$work/$cmsis/Include"
  documents "$work/$cmsis/Documentation"
  mv "$work/$cmsis/Documentation/"LICENSE-* "$work/$cmsis"
  cp crates/ffi/examples/latency_budget.c "$work/$cmsis/Example"
  pack "$cmsis"
fi
(cd "$out" && sha256sum -- *.tar.gz > SHA256SUMS)
say "$(wc -l < "$out/SHA256SUMS") archives in $out"
