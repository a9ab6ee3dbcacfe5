#!/usr/bin/env bash
# Build the bare-metal guest of bare/: an image for QEMU's -bios.
#
#   make-bare.sh   prints its path
#
# It is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/bare until its sources change. Needs Debian's gcc and binutils.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
die() { printf 'make-bare: %s\n' "$*" >&2; exit 1; }

for tool in cc objcopy; do command -v "$tool" > /dev/null || die "$tool is missing (Debian package build-essential)"; done
cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/bare
image=$cache/$(cat "$0" "$here"/bare/* | sha256sum | cut -c1-12).bin
if [ -f "$image" ]; then echo "$image"; exit; fi
mkdir -p "$cache"
exec {lock}> "$cache/lock"; flock "$lock"
tmp=$(mktemp -d "$cache/.new.XXXXXX"); trap 'rm -rf "$tmp"' EXIT
# In kernel mode, and in user mode without anybody to save them, there are general registers only.
cc -std=gnu11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -no-pie -mno-red-zone -mgeneral-regs-only -fno-stack-protector \
  -fcf-protection=none -fno-asynchronous-unwind-tables -nostdlib -static -Wl,-T,"$here/bare/bare.ld",--build-id=none,-z,noexecstack \
  -o "$tmp/bare.elf" "$here"/bare/*.S "$here"/bare/*.c 2> "$tmp/log" || { cat "$tmp/log" >&2; die "the guest does not compile"; }
objcopy -O binary "$tmp/bare.elf" "$tmp/bare.bin"
[ "$(stat -c %s "$tmp/bare.bin")" = 65536 ] || die "the image is not 64 KiB"
find "$cache" -maxdepth 1 -name '*.bin' -delete # older ones
mv "$tmp/bare.bin" "$image"
echo "$image"
