#!/usr/bin/env bash
# Make of a static library, or of an object, that rustc wrote a library of one object in which only the C ABI is visible. A program
# can link it beside other libraries in Rust: what they have in common (rust_eh_personality, the standard library) is each one's own.
#
#   seal.sh IN OUT [TOOLS]     TOOLS: how the names of binutils for the target begin, such as aarch64-linux-gnu-
#
# What no function of the C ABI calls is left out, and the compiler's own code (.llvmbc), for which plugins of linkers would take the
# whole object. Debug information stays.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
die() { printf 'seal: %s\n' "$*" >&2; exit 1; }
[ $# -ge 2 ] || die "what, and where to? seal.sh IN OUT [TOOLS]"
in=$1 out=$2 tools=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# No plugin: it would look for a compiler's own code in each member.
"${tools}nm" --plugin /dev/null --defined-only "$in" 2> /dev/null | sed -n 's/^[0-9a-f]* T \(coalesce_.*\)$/\1/p' | sort -u > "$work/abi"
[ -s "$work/abi" ] || die "no function of the C ABI in $in"
mapfile -t roots < <(sed 's/^/--undefined=/' "$work/abi")
# GNU ld for RISC-V takes 64 bits, if nothing is said.
emulation=()
if "${tools}objdump" --file-headers "$in" 2> /dev/null | grep -q elf32-littleriscv; then emulation=(-m elf32lriscv); fi
# A section group would still be shared, by its name, with that of another library.
"${tools}ld" "${emulation[@]}" --relocatable --gc-sections --force-group-allocation "${roots[@]}" "$in" -o "$work/coalesce.o"
"${tools}objcopy" --remove-section=.llvmbc --remove-section=.llvmcmd --keep-global-symbols="$work/abi" "$work/coalesce.o"
rm -f "$out"
"${tools}ar" rcsD "$out" "$work/coalesce.o"
