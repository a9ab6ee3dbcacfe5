#!/usr/bin/env bash
# Find firmware of six architectures, emulators for it, and boot loaders: unpacked from a newer Debian suite.
#
#   make-firmware.sh   prints a directory: bin/ has the programs, root/ the files of the packages, versions their versions
#   FIRMWARE_SUITES    Debian suites to take it from, the last one first; default: trixie trixie-backports
#
# It is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/firmware until this script or FIRMWARE_SUITES changes: 900 MB. Nothing
# is installed, root is not needed, and no network either once it is there. x86-64 only.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=guest/apt.sh
. "$here/apt.sh"
suites=${FIRMWARE_SUITES:-trixie trixie-backports}
emulators="qemu-system-x86 qemu-system-arm qemu-system-riscv qemu-system-ppc qemu-system-s390x qemu-system-data"
firmware="seabios ovmf ovmf-ia32 qemu-efi-aarch64 qemu-efi-riscv64 u-boot-qemu"
loaders="grub-common grub-pc-bin grub-efi-amd64-bin grub-efi-ia32-bin"

say() { if [ -t 2 ]; then printf 'guest: %s\n' "$*" >&2; fi; }
die() { printf 'make-firmware: %s\n' "$*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/firmware
out=$cache/$(echo "$suites" | cat - "$here/make-firmware.sh" "$here/apt.sh" | sha256sum | cut -c1-12)
if [ -f "$out/versions" ]; then echo "$out"; exit; fi
for tool in apt-get dpkg-deb; do command -v "$tool" > /dev/null || die "$tool is missing"; done
[ "$(uname -m)" = x86_64 ] || die "this is no x86-64 machine"
mkdir -p "$cache"; cache=$(realpath "$cache") out=$(realpath -m "$out")
exec {lock}> "$cache/lock"; flock "$lock"
if [ -f "$out/versions" ]; then echo "$out"; exit; fi # another one made it meanwhile
rm -rf "$cache"/.new.*; tmp=$(mktemp -d "$cache/.new.XXXXXX"); trap 'rm -rf "$tmp"' EXIT
fail() { die "$(tail -n 1 "$tmp/log")"; }

mkdir "$tmp/debs" "$tmp/root" "$tmp/bin"
fetch() { (cd "$tmp/debs" && apt-get -c "$apt_conf" -qq download "$@") > "$tmp/log" 2>&1; }
say "fetching the package lists of $suites"
# shellcheck disable=SC2086 # a list of words
apt_private "$tmp/apt" $suites > "$tmp/log" 2>&1 || fail
# shellcheck disable=SC2086
packages=$(apt-get -c "$apt_conf" -s -qq --no-install-recommends install $emulators $firmware $loaders 2> "$tmp/log" |
  awk '$1 == "Inst" { gsub(/[()]/, "", $3); print $2 "=" $3 }')
[ -n "$packages" ] || fail
say "downloading and unpacking emulators, firmware and boot loaders"
# shellcheck disable=SC2086
fetch $packages || fail
# The modules of GRUB are packages of their architectures, of the first suite.
suite=${suites%% *}
sed -i "/ $suite /!d; s/arch=amd64/arch=arm64,riscv64/" "$tmp/apt/sources.list"
echo "APT::Architectures { \"amd64\"; \"arm64\"; \"riscv64\"; }; APT::Default-Release \"$suite\";" >> "$apt_conf"
apt-get -c "$apt_conf" -qq update > "$tmp/log" 2>&1 || fail
fetch grub-efi-arm64-bin:arm64 grub-efi-riscv64-bin:riscv64 || fail
for deb in "$tmp"/debs/*.deb; do dpkg -x "$deb" "$tmp/root"; done

# The programs run with the loader and the libraries of their suite, and would otherwise load the modules of an installed QEMU.
for program in "$tmp"/root/usr/bin/{qemu-system-{x86_64,i386,aarch64,riscv64,ppc64,s390x},grub-mkimage,grub-editenv}; do
  cat > "$tmp/bin/${program##*/}" <<RUN
#!/bin/sh
root=$out/root
export QEMU_MODULE_DIR="\$root/usr/lib/x86_64-linux-gnu/qemu"
exec "\$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "\$root/usr/lib/x86_64-linux-gnu" "\$root/usr/bin/${program##*/}" "\$@"
RUN
done
chmod 755 "$tmp" "$tmp"/bin/*
# shellcheck disable=SC2016 # for dpkg-deb
for deb in "$tmp"/debs/*.deb; do dpkg-deb -W --showformat '${Package} ${Version}\n' "$deb"; done > "$tmp/versions"
rm -rf "$tmp"/{apt,debs} "$out"; mv "$tmp" "$out"
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$out" -exec rm -rf {} + # older ones
"$out/bin/qemu-system-x86_64" --version > "$out/log" 2>&1 || { tail -n 1 "$out/log" >&2; rm -rf "$out"; exit 1; }
echo "$out"
