#!/usr/bin/env bash
# The archives of a release, as those have them who have no Rust: two builds in two places give the same bytes; a program in C is
# built with each archive, by what docs/without-rust.md types, and runs, on bare metal in an emulator; the bills of materials are
# valid. Prints the table of that page; with UPDATE=1 it writes it.
#
#   check-release.sh [TARGET...]     without TARGET: all
#
# Long: it compiles the standard library for some of the targets, twice. scripts/test.sh does not call it.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-release: %s\n' "$*" >&2; exit 1; }
say() { printf 'check-release: %s\n' "$*" >&2; }
guest/packages.sh build-essential jq binutils-aarch64-linux-gnu binutils-riscv64-unknown-elf gcc-arm-none-eabi
guest/packages.sh gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-unknown-elf picolibc-arm-none-eabi \
  picolibc-riscv64-unknown-elf musl-tools qemu-user qemu-system-arm qemu-system-misc pkg-config cmake meson
page=docs/without-rust.md
scripts=$PWD/scripts
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
mapfile -t all < <(scripts/target.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)

# The same sources elsewhere, with a compiler elsewhere, of which only what was downloaded is the same.
say "building once"
scripts/release.sh "$work/archives" "$@"
elsewhere=$work/another/place
mkdir -p "$elsewhere"
git ls-files -z --cached --others --exclude-standard | xargs -0 tar -c | tar -x -C "$elsewhere"
compiler=$(scripts/bare-metal.sh thumbv6m-none-eabi)
compiler=${compiler%/bin/rustc}
mkdir "$work/compiler"
cp --archive "$compiler/bin" "$compiler/usr" "$work/compiler"
for target in "${all[@]}"; do
  [ "$target" = "$(uname -m)-unknown-linux-gnu" ] || rm -rf "$work/compiler/usr/lib/rustlib/$target"
done
say "building again"
BARE_METAL_DIR=$work/compiler CARGO_TARGET_DIR=$work/target "$elsewhere/scripts/release.sh" "$work/again" "$@"
diff "$work/archives/SHA256SUMS" "$work/again/SHA256SUMS" >&2 || die "two builds differ"
rm -rf "$work/compiler" "$work/target" "$work/another"
(cd "$work/archives" && sha256sum --quiet --check SHA256SUMS) || die "SHA256SUMS"

# musl for another processor, of which Debian has no cross compiler: the library itself.
musl() { # ARCHITECTURE MULTIARCH: where it is
  local apt=(-qq -o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State::Lists=$work/apt" -o "Dir::Cache=$work/apt"
    -o "Dir::State::status=/dev/null" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  mkdir -p "$work/apt/partial" "$work/apt/archives/partial"
  (cd "$work/apt" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" download musl-dev) > "$work/log" 2>&1 || { cat "$work/log" >&2; die "no musl for $1"; }
  dpkg-deb --extract "$work"/apt/musl-dev_*.deb "$work/musl"
  echo "$work/musl/usr/include/$2 $work/musl/usr/lib/$2"
}

# Builds the example for a target, in the folder of its archive, with a map of what is in it.
build() { # TARGET
  local target=$1 tools options=() memory include library
  tools=$("$scripts/target.sh" "$target" 3)
  read -ra options <<< "$("$scripts/target.sh" "$target" 4)"
  local common=(-std=c99 -O2 -Wall -Wextra -Werror "-Wl,--gc-sections" "-Wl,-Map=map" -o program share/coalesce/example/latency_budget.c)
  read -ra found <<< "$(PKG_CONFIG_PATH=lib/pkgconfig pkg-config --cflags --libs --static coalesce)"
  case $target in
    x86_64-*-gnu) cc "${common[@]}" "${found[@]}" ;;
    x86_64-*-musl) musl-gcc -static "${common[@]}" "${found[@]}" ;;
    aarch64-*-gnu) "${tools}gcc" "${common[@]}" "${found[@]}" ;;
    aarch64-*-musl)
      read -r include library <<< "$(musl arm64 aarch64-linux-musl)"
      "${tools}gcc" -static -nostdinc -isystem "$include" -nostdlib "$library"/crt{1,i}.o "${common[@]}" -L "$library" \
        -Wl,--start-group "${found[@]}" -lc -lgcc -lgcc_eh -Wl,--end-group "$library/crtn.o"
      ;;
    *)
      read -ra memory <<< "$("$scripts/target.sh" "$target" 7)"
      "${tools}gcc" "${options[@]}" "${common[@]}" "${found[@]}" --specs=picolibc.specs --oslib=semihost --crt0=hosted \
        "-Wl,--defsym=__flash=${memory[0]},--defsym=__flash_size=${memory[1]},--defsym=__ram=${memory[2]},--defsym=__ram_size=${memory[3]}"
      ;;
  esac
}
run() { # TARGET
  local emulator=()
  read -ra emulator <<< "$("$scripts/target.sh" "$1" 6)"
  case $1 in
    x86_64-*) ./program ;;
    aarch64-*) "${emulator[@]}" -L /usr/aarch64-linux-gnu ./program ;;
    *) timeout 60 "${emulator[@]}" -nographic -monitor none -serial none -semihosting-config enable=on,target=native -kernel program ;;
  esac
}

# The bytes of code, tables and variables that a program has of the library, by the linker's map.
pulled() { # MAP
  local sum=0 size
  while read -r size; do sum=$((sum + size)); done < <(awk '
    /^Linker script and memory map/ { map = 1 }
    /^ \./ { section = $1 }
    map && $NF ~ /libcoalesce\.a\(/ && $(NF - 1) ~ /^0x/ && section ~ /^\.(text|rodata|data|bss|sdata|sbss|srodata)/ { print $(NF - 1) }' "$1")
  echo "$sum"
}
kib() { echo $((($(stat --format=%s "$1") + 1023) / 1024)); } # FILE

[ $# -gt 0 ] || set -- "${all[@]}"
for target; do
  name=coalesce-$version-$target
  tar -x -C "$work" -f "$work/archives/$name.tar.gz"
  cd "$work/$name"
  build "$target" 2> "$work/log" || { cat "$work/log" >&2; die "$target: the example is not built"; }
  run "$target" > "$work/output" 2>&1 || { cat "$work/output" >&2; die "$target: the example fails"; }
  grep -q '^latency_budget: [0-9]* of 20000 ' "$work/output" || { cat "$work/output" >&2; die "$target: the example says something else"; }
  cat "$work/output" >> "$work/outputs"
  case $target in
    x86_64-*) on="this machine" ;;
    aarch64-*) on=qemu-aarch64 ;;
    *) on=$(sed -E 's/^([^ ]+) -M ([^ ]+)( -cpu ([^ ]+))?.*/\1, \2 \4/; s/ $//' <<< "$("$scripts/target.sh" "$target" 6)") ;;
  esac
  # shellcheck disable=SC2016 # code in Markdown
  printf '| `%s` | %s | %s | %s | %s | %s |\n' "$target" "$("$scripts/target.sh" "$target" 2)" "$(kib "$work/archives/$name.tar.gz")" \
    "$(kib lib/libcoalesce.a)" "$(pulled map)" "$on" >> "$work/rows"
  say "$(tail -n 1 "$work/rows")"
  cd - > "$work/null"
done
[ "$(sort -u "$work/outputs" | wc -l)" = 1 ] || { sort "$work/outputs" | uniq -c >&2; die "not every processor decides the same"; }
grep -qxF "$(sort -u "$work/outputs")" "$page" || die "the page shows something else than $(sort -u "$work/outputs")"
if grep -vE '\| [1-9][0-9]* \| [^|]* \|$' "$work/rows" >&2; then die "a program has nothing of the library"; fi

# The page, as a person types it, in a folder with the archives.
if [ $# = ${#all[@]} ]; then
  grep '^## ' "$page" | sed 's/^## //' > "$work/titles"
  while read -r title; do
    scripts/typed.sh "$page" "$title" > "$work/typed"
    [ -s "$work/typed" ] || continue
    rm -rf "$work/person"
    cp -r "$work/archives" "$work/person"
    (cd "$work/person" && exec timeout 120 bash -euo pipefail "$work/typed") > "$work/output" 2>&1 < /dev/null ||
      { cat "$work/typed" "$work/output" >&2; die "\"$title\" fails"; }
    grep -qE '^latency_budget: |: OK$' "$work/output" || { cat "$work/output" >&2; die "\"$title\" shows nothing"; }
    say "\"$title\", as typed"
  done < "$work/titles"
fi

# The bills of materials, by the schema of their format.
guest/packages.sh python3-venv
python3 -m venv "$work/python"
"$work/python/bin/pip" --quiet --disable-pip-version-check install 'cyclonedx-python-lib[json-validation]>=9,<12'
mapfile -t bills < <(find "$work" -path "$work/python" -prune -o -path "$work/person" -prune -o -name coalesce.cdx.json -print)
[ ${#bills[@]} -ge $# ] || die "${#bills[@]} bills of materials"
"$work/python/bin/python" - "${bills[@]}" << 'END'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    with open(path) as file:
        error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read())
    if error:
        sys.exit(f"{path}: {error}")
END

{
  echo '| archive | for | its KiB | libcoalesce.a, KiB | a program takes, bytes | tested on |'
  echo '|---|---|--:|--:|--:|---|'
  cat "$work/rows"
} | tee "$work/table"
if [ -n "${UPDATE:-}" ]; then
  sed -i -e "/^<!-- Written by/,/^<!-- End/{/^<!--/!d}" -e "/^<!-- Written by/r $work/table" "$page"
fi
say "$# archives, twice the same; $(sort -u "$work/outputs")"
