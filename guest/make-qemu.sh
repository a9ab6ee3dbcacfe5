#!/usr/bin/env bash
# Find a QEMU that can connect to a vfio-user socket (10.1 or newer), or unpack one from a newer Debian suite.
#
#   make-qemu.sh             prints its path; otherwise one line that says what is missing, and status 1
#   QEMU          this one or none; default: the installed qemu-system-x86_64 if it will do
#   QEMU_SUITES   Debian suites to take it from, the last one first; default: trixie trixie-backports
#
# It is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/qemu until this script or QEMU_SUITES changes: 170 MB. Nothing
# is installed, root is not needed, and no network either once it is there.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=guest/apt.sh
. "$here/apt.sh"
suites=${QEMU_SUITES:-trixie trixie-backports}

say() { if [ -t 2 ]; then printf 'guest: %s\n' "$*" >&2; fi; }
die() { printf 'make-qemu: %s\n' "$*" >&2; exit 1; }
# QEMU ends with status 0 for a device that it does not know, too.
will_do() { "$1" -device vfio-user-pci,help 2> /dev/null | grep '^vfio-user-pci options' > /dev/null; }

if [ -n "${QEMU:-}" ]; then
  will_do "$QEMU" || die "$QEMU has no vfio-user-pci (QEMU 10.1 or newer has)"
  echo "$QEMU"; exit
fi
if will_do qemu-system-x86_64; then echo qemu-system-x86_64; exit; fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/qemu
out=$cache/$(echo "$suites" | cat - "$here/make-qemu.sh" "$here/apt.sh" | sha256sum | cut -c1-12)
qemu=$out/qemu-system-x86_64
if [ -x "$qemu" ]; then echo "$qemu"; exit; fi

why="the installed QEMU has no vfio-user-pci (10.1 or newer has), and none can be unpacked from Debian"
for tool in apt-get dpkg-deb; do command -v "$tool" > /dev/null || die "$why: $tool is missing"; done
[ "$(uname -m)" = x86_64 ] || die "$why: this is no x86-64 machine"
mkdir -p "$cache"; cache=$(realpath "$cache") out=$(realpath -m "$out")
exec {lock}> "$cache/lock"; flock "$lock"
if [ -x "$qemu" ]; then echo "$qemu"; exit; fi # another one made it meanwhile
rm -rf "$cache"/.new.*; tmp=$(mktemp -d "$cache/.new.XXXXXX"); trap 'rm -rf "$tmp"' EXIT
fail() { die "$why: $(tail -n 1 "$tmp/log")"; }

say "fetching the package lists of $suites"
# shellcheck disable=SC2086 # a list of words
apt_private "$tmp/apt" $suites > "$tmp/log" 2>&1 || fail
packages=$(apt-get -c "$apt_conf" -s -qq --no-install-recommends install qemu-system-x86 2> "$tmp/log" |
  awk '$1 == "Inst" { gsub(/[()]/, "", $3); print $2 "=" $3 }')
[ -n "$packages" ] || fail
say "downloading and unpacking QEMU with its libraries"
mkdir "$tmp/debs" "$tmp/root"
# shellcheck disable=SC2086
(cd "$tmp/debs" && apt-get -c "$apt_conf" -qq download $packages) > "$tmp/log" 2>&1 || fail
for deb in "$tmp"/debs/*.deb; do dpkg -x "$deb" "$tmp/root"; done

# It runs with the loader and the libraries of its suite, and would otherwise load the modules of an installed QEMU.
cat > "$tmp/qemu-system-x86_64" <<RUN
#!/bin/sh
root=$out/root
export QEMU_MODULE_DIR="\$root/usr/lib/x86_64-linux-gnu/qemu"
exec "\$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "\$root/usr/lib/x86_64-linux-gnu" \\
  "\$root/usr/bin/qemu-system-x86_64" -L "\$root/usr/share/qemu" -L "\$root/usr/share/seabios" "\$@"
RUN
chmod 755 "$tmp" "$tmp/qemu-system-x86_64"
rm -rf "$tmp"/{apt,debs} "$out"; mv "$tmp" "$out"
will_do "$qemu" || { rm -rf "$out"; die "$why: QEMU of $suites has no vfio-user-pci or does not start"; }
find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$out" -exec rm -rf {} + # older ones
"$qemu" --version > "$out/version"; say "$(head -n 1 "$out/version")"
echo "$qemu"
