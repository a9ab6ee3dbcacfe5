#!/usr/bin/env bash
# What libcoalesce promises to firmware, on each target: its code calls nothing but memcpy and memset, so that it needs no
# division and no float of the compiler's library, and cannot panic; and a C program without a C library links with every
# function of it. And every policy behind its one type, in Rust, and what carries out its decisions compile without an allocator.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-bare-metal: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lld=$(dirname "$(scripts/bare-metal.sh)")/rust-lld

# ARM has a name of its own for each alignment, and for zeroes.
allowed=(--defsym={memcpy,memset,__aeabi_mem{cpy,set,clr}{,4,8}}"=0x1000")

# A program with the address of every function, and the two that it brings itself.
program() { # FUNCTION...
  cat << 'END'
#include "coalesce.h"
void *memcpy(void *to, const void *from, size_t size) {
  for (char *t = to, *f = (char *)from; size > 0; size--) *t++ = *f++;
  return to;
}
void *memset(void *to, int byte, size_t size) {
  for (char *t = to; size > 0; size--) *t++ = (char)byte;
  return to;
}
void *volatile all[] = {
END
  printf '  (void *)%s,\n' "$@"
  printf '};\nvoid _start(void) { for (;;) all[0] = all[1]; }\n'
}

for target in thumbv7em-none-eabihf armv7r-none-eabihf riscv32imac-unknown-none-elf; do
  library=$(scripts/bare-library.sh "$target")
  code=${library%/*}/coalesce.o
  mapfile -t exported < <(nm --defined-only "$code" | sed -n 's/^[0-9a-f]* T //p')
  [ "${#exported[@]}" -gt 30 ] || die "$target: only ${#exported[@]} functions in $library"
  "$lld" -flavor gnu --entry 0 "${allowed[@]}" "$code" -o "$work/all" 2> "$work/link" || die "$target: calls out:
$(sed -n 's/^lld: error: undefined symbol: /  /p; s/^>>> .*:(\(.*\))$/    from \1/p' "$work/link" | uniq)"

  case $target in
    thumb*) cpu=(-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard) ;;
    armv7r*) cpu=(-mcpu=cortex-r5 -mfpu=vfpv3-d16 -mfloat-abi=hard) ;;
    *) continue ;; # one C compiler is enough: the linker has looked at this one
  esac
  program "${exported[@]}" > "$work/all.c"
  arm-none-eabi-gcc -std=c99 -O2 "${cpu[@]}" -ffreestanding -nostdlib -Wall -Wextra -Werror -I crates/ffi/include \
    "$work/all.c" "$library" -o "$work/all" 2> "$work/link" ||
    die "$target: it does not link: $(grep -m 1 -E 'undefined|error' "$work/link")"
done

rustc=$(scripts/bare-metal.sh thumbv7em-none-eabihf)
RUSTC=$rustc cargo build --quiet --locked --release --package coalesce-policy --package coalesce-delivery --lib --no-default-features \
  --target thumbv7em-none-eabihf --target-dir "${rustc%/bin/rustc}/build"
cargo test --quiet --locked --package coalesce-policy --no-default-features --test no_alloc > "$work/no_alloc" 2>&1 ||
  { cat "$work/no_alloc" >&2; die "coalesce-policy without an allocator"; }
cargo test --quiet --locked --package coalesce-delivery --no-default-features --test no_alloc > "$work/no_alloc" 2>&1 ||
  { cat "$work/no_alloc" >&2; die "coalesce-delivery without an allocator"; }
echo "check-bare-metal: ${#exported[@]} functions, no call out, no panic; every policy and its delivery without an allocator"
