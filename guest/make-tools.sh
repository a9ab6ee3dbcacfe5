#!/usr/bin/env bash
# Make an archive of Debian packages, with all that they depend on, for a job that needs more than busybox and fio.
#
#   make-tools.sh PACKAGE...     prints its path, for run-guest.sh's INITRD
#   GUEST_SUITES   as for make-guest.sh; default: trixie
#
# In the guest they are below /tools, to be entered by chroot. Nothing is configured: alternatives as awk are missing.
# It is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/tools for a day after it was made, until others are asked for.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=guest/apt.sh
. "$here/apt.sh"
suites=${GUEST_SUITES:-trixie}
die() { printf 'make-tools: %s\n' "$*" >&2; exit 1; }
[ $# -gt 0 ] || { sed -n '4p' "$0" | cut -c3- >&2; exit 2; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/tools
out=$cache/$(printf '%s\n' "$suites" "$@" | cat - "$here/make-tools.sh" "$here/apt.sh" | sha256sum | cut -c1-12).cpio
if [ -f "$out" ]; then echo "$out"; exit; fi
mkdir -p "$cache"
exec {lock}> "$cache/lock"; flock "$lock"
rm -rf "$cache"/.new.*; find "$cache" -name "*.cpio" -mmin +1440 -delete # somebody may be about to read a newer one
tmp=$(mktemp -d "$cache/.new.XXXXXX"); trap 'rm -rf "$tmp"' EXIT
fail() { tail -n 3 "$tmp/log" >&2; die "cannot get the packages"; }

# shellcheck disable=SC2086 # a list of words
apt_private "$tmp/apt" $suites > "$tmp/log" 2>&1 || fail
packages=$(apt-get -c "$apt_conf" -s -qq --no-install-recommends install "$@" 2> "$tmp/log" |
  awk '$1 == "Inst" { gsub(/[()]/, "", $3); print $2 "=" $3 }')
[ -n "$packages" ] || fail
root=$tmp/root/tools
mkdir -p "$tmp/debs" "$root"/{usr/{bin,sbin,lib,lib64},proc,sys,dev,tmp}
for d in bin sbin lib lib64; do ln -s "usr/$d" "$root/$d"; done
# shellcheck disable=SC2086
(cd "$tmp/debs" && apt-get -c "$apt_conf" -qq download $packages) > "$tmp/log" 2>&1 || fail
for deb in "$tmp"/debs/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"; done
rm -rf "$root"/usr/share/{doc,man,locale,info}
(cd "$tmp/root" && find . | sort | cpio --quiet -o -H newc -R 0:0) > "$tmp/cpio"
mv "$tmp/cpio" "$out"
echo "$out"
