#!/usr/bin/env bash
# The archives of a release, as those have them who have no Rust: two builds in two places give the same bytes; a program in C is
# built with each archive and runs, on bare metal in an emulator; what docs/without-rust.md types works; the bills of materials are
# valid. Prints the table of that page, which must be nearly the page's; with UPDATE=1 it writes it.
#
#   check-release.sh [TARGET...]     without TARGET: all
#
# Long: it compiles the standard library for some of the targets, twice. scripts/test.sh does not call it.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'check-release: %s\n' "$*" >&2; exit 1; }
say() { printf 'check-release: %s\n' "$*" >&2; }
guest/packages.sh build-essential jq binutils-aarch64-linux-gnu binutils-riscv64-unknown-elf gcc-arm-none-eabi
guest/packages.sh gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-unknown-elf picolibc-arm-none-eabi \
  picolibc-riscv64-unknown-elf musl-tools qemu-user qemu-system-arm qemu-system-misc pkg-config cmake meson python3-venv
page=docs/without-rust.md
scripts=$PWD/scripts
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
mapfile -t all < <(scripts/target.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
[ $# -gt 0 ] || set -- "${all[@]}"
[ -z "${UPDATE:-}" ] || [ $# = ${#all[@]} ] || die "UPDATE writes the table of all targets"

# What is not Debian's for this machine is downloaded before what takes long: what reads the bills of materials, and musl for
# another processor, of which Debian has no cross compiler.
python3 -m venv "$work/python"
"$work/python/bin/pip" --quiet --disable-pip-version-check install 'cyclonedx-python-lib[json-validation]>=9,<12'
apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$work/apt" -o "Dir::Cache=$work/apt"
  -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
mkdir -p "$work/apt/partial" "$work/apt/archives/partial"
(cd "$work/apt" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" download musl-dev) > "$work/log" 2>&1 || { cat "$work/log" >&2; die "no musl for arm64"; }
dpkg-deb --extract "$work"/apt/musl-dev_*.deb "$work/musl"
rm -r "$work/apt"

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

# Builds the example for a target, in the folder of its archive, with a map of what is in it.
build() { # TARGET
  local target=$1 tools options=() memory musl=$work/musl/usr/lib/aarch64-linux-musl
  tools=$("$scripts/target.sh" "$target" 3)
  read -ra options <<< "$("$scripts/target.sh" "$target" 4)"
  local common=(-std=c99 -O2 -Wall -Wextra -Werror "-Wl,--gc-sections" "-Wl,-Map=map" -o program share/coalesce/example/latency_budget.c)
  read -ra found <<< "$(PKG_CONFIG_PATH=lib/pkgconfig pkg-config --cflags --libs --static coalesce)"
  case $target in
    x86_64-*-gnu) cc "${common[@]}" "${found[@]}" ;;
    x86_64-*-musl) musl-gcc -static "${common[@]}" "${found[@]}" ;;
    aarch64-*-gnu) "${tools}gcc" "${common[@]}" "${found[@]}" ;;
    aarch64-*-musl)
      "${tools}gcc" -static -nostdinc -isystem "$work/musl/usr/include/aarch64-linux-musl" -nostdlib "$musl"/crt{1,i}.o "${common[@]}" \
        -L "$musl" -Wl,--start-group "${found[@]}" -lc -lgcc -lgcc_eh -Wl,--end-group "$musl/crtn.o"
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

cmsis=coalesce-$version-cmsis
[ ! -e "$work/archives/$cmsis.tar.gz" ] || tar -x -C "$work" -f "$work/archives/$cmsis.tar.gz"
for target; do
  name=coalesce-$version-$target
  tar -x -C "$work" -f "$work/archives/$name.tar.gz"
  cd "$work/$name"
  build "$target" 2> "$work/log" || { cat "$work/log" >&2; die "$target: the example is not built"; }
  run "$target" > "$work/output" 2>&1 || { cat "$work/output" >&2; die "$target: the example fails"; }
  grep -q '^latency_budget: [0-9]* of 20000 ' "$work/output" || { cat "$work/output" >&2; die "$target: the example says something else"; }
  cat "$work/output" >> "$work/outputs"
  while read -r link; do
    [ -e "share/doc/coalesce/$link" ] || die "$target: its documents name $link, which is not there"
  done < <(grep -hoE '\]\([^):#]+[):#]' share/doc/coalesce/*.md | sed -n 's/^](\(.*\)[)#]$/\1/p')
  library=$("$scripts/target.sh" "$target" 5)
  if [ -n "$library" ]; then
    cmp lib/libcoalesce.a "../$cmsis/Lib/GCC/libcoalesce_$library.a" >&2 || die "$target: CMSIS has another library"
    cmp include/coalesce.h "../$cmsis/Include/coalesce.h" >&2 || die "$target: CMSIS has another header"
  fi
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

# The page, as a person types it from the first line to the last, in a folder with the archives.
if [ $# = ${#all[@]} ]; then
  sed -n 's/^## //p' "$page" > "$work/titles"
  while read -r title; do scripts/typed.sh "$page" "$title"; done < "$work/titles" > "$work/typed"
  cp -r "$work/archives" "$work/person"
  (cd "$work/person" && exec timeout 600 bash -euo pipefail "$work/typed") > "$work/output" 2>&1 < /dev/null ||
    { cat "$work/typed" "$work/output" >&2; die "what $page types fails"; }
  programs=$(($(grep -c '^```sh' "$page") - 1)) # the first block checks the archives
  [ "$(grep -cxF "$(sort -u "$work/outputs")" "$work/output")" = "$programs" ] || { cat "$work/output" >&2; die "what $page types shows something else"; }
  say "$page, as typed: $programs programs"
fi

# The bills of materials, by the schema of their format.
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
else
  # Sizes change a little with every change: a tenth is too much.
  awk -F ' *[|] *' 'NR == FNR { page[$2] = $0; next }
    {
      split(page[$2], had)
      for (i = 2; i <= 7; i++) if ($i ~ /^[0-9]+$/ ? had[i] < 0.9 * $i || had[i] > 1.1 * $i : had[i] != $i) { print; next }
    }' "$page" "$work/rows" > "$work/differ"
  [ ! -s "$work/differ" ] || { cat "$work/differ" >&2; die "the table of $page has other rows: UPDATE=1 writes it"; }
fi
say "$# archives, twice the same; $(sort -u "$work/outputs")"
