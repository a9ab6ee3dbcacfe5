#!/usr/bin/env bash
# Make disks that firmware boots from. Each prints the line to the serial console after it has read and checked 1 MiB or more.
#
#   make-image.sh DIRECTORY LINE     makes there: bios, disk and ipl
#
#   bios   a boot sector that uses INT 13h, and checks what it writes
#   disk   GRUB for BIOS and UEFI on a FAT file system, which checks sums and writes; a program for Open Firmware (PReP)
#   ipl    an ISO 9660 image with a program for s390
#
# Needs mtools, xorriso, binutils, binutils-powerpc-linux-gnu and binutils-s390x-linux-gnu; GRUB is make-firmware.sh's.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 2 ] || { sed -n '4p' "$0" | cut -c3- >&2; exit 2; }
mkdir -p "$1"
cd "$1"
firmware=$("$here/../make-firmware.sh")
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
printf '%s\r\n' "$2" > "$tmp/line"

put() { dd if="$1" of="$2" bs=512 seek="$3" conv=notrunc status=none; }
partition() { # IMAGE NUMBER FLAG TYPE FIRST SECTORS
  local n bytes=''
  for n in "$5" "$6"; do bytes+=$(printf '\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)) $((n >> 24))); done
  printf '%b' "\\x$3\\0\\0\\0\\x$4\\0\\0\\0$bytes" | dd of="$1" bs=1 seek=$((446 + 16 * $2)) conv=notrunc status=none
}
program() { # NAME SOURCE TOOLS AS-OPTIONS LD-OPTIONS
  # shellcheck disable=SC2086 # lists of words
  "$3as" $4 --defsym WORDS=262144 -I "$here" -I "$tmp" -o "$tmp/$1.o" "$here/$2"
  # shellcheck disable=SC2086
  "$3ld" $5 -o "$tmp/$1" "$tmp/$1.o"
}

program bios bios.S '' --32 '-m elf_i386 -Ttext 0x7c00 --oformat binary'
rm -f bios; truncate -s 8M bios; put "$tmp/bios" bios 0

mkdir -p "$tmp/files/EFI/BOOT" "$tmp/files/grub" "$tmp/iso"
cp "$here/grub.cfg" "$tmp/files/grub"
printf "%s\n" "$2" > "$tmp/files/line"
for part in 0 1 2 3; do
  head -c 512K /dev/urandom > "$tmp/files/part$part"
  (cd "$tmp/files" && sha256sum "part$part" > "part$part.sum")
done
"$firmware/bin/grub-editenv" "$tmp/files/env" create
grub() { # PLATFORM FILE PREFIX [MODULE...]
  "$firmware/bin/grub-mkimage" -d "$firmware/root/usr/lib/grub/$1" -O "$1" -o "$2" -p "$3" \
    normal part_msdos fat hashsum gcry_sha256 echo test cat loadenv halt "${@:4}"
}
grub x86_64-efi "$tmp/files/EFI/BOOT/BOOTX64.EFI" /grub
grub i386-efi "$tmp/files/EFI/BOOT/BOOTIA32.EFI" /grub
grub arm64-efi "$tmp/files/EFI/BOOT/BOOTAA64.EFI" /grub
grub riscv64-efi "$tmp/files/EFI/BOOT/BOOTRISCV64.EFI" /grub
grub i386-pc "$tmp/core" '(hd0,msdos1)/grub' biosdisk serial terminal
program openfirmware openfirmware.S powerpc-linux-gnu- '-a32 -mbig' '-m elf32ppc -N --no-warn-rwx-segments -Ttext 0x200000 -s'
rm -f disk; truncate -s 64M disk
head -c 440 "$firmware/root/usr/lib/grub/i386-pc/boot.img" > "$tmp/boot" # it loads what follows, as it is
put "$tmp/boot" disk 0; put "$tmp/core" disk 1
partition disk 0 80 0e 2048 116736 # U-Boot looks at active partitions alone, and SLOF too
partition disk 1 80 41 118784 8192
printf '\x55\xaa' | dd of=disk bs=1 seek=510 conv=notrunc status=none
put "$tmp/openfirmware" disk 118784
mformat -i disk@@1M -T 116736 ::
mcopy -s -i disk@@1M "$tmp"/files/* ::/

program ipl ipl.S s390x-linux-gnu- '-m31 -march=z900' '-m elf_s390 -Ttext 0 -e 0 --oformat binary'
cp "$tmp/ipl" "$tmp/iso/ipl"
xorriso -as mkisofs -quiet -o ipl -no-emul-boot -boot-load-size $((($(stat -c %s "$tmp/ipl") + 511) / 512)) -b ipl "$tmp/iso" 2> "$tmp/log" ||
  { cat "$tmp/log" >&2; exit 1; }
