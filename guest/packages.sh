#!/usr/bin/env bash
# Install the Debian or Ubuntu packages the project needs on the host, unless they are there already.
#
#   packages.sh [PACKAGE...]      without arguments: what the guest kit needs
#
# Prints one line per step, nothing when nothing is missing. Exit status 0 when all packages are there,
# 1 otherwise. On other systems it names the tools that are missing and installs nothing.
# Needs root or sudo only when something has to be installed.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }

for package; do [[ $package != -* ]] || { echo "packages: $package is no package: packages.sh [PACKAGE...]" >&2; exit 1; }; done
# fio, the kernel and busybox are not listed: they live in the guest, make-guest.sh unpacks them there.
[ $# -gt 0 ] || set -- qemu-system-x86 qemu-system-common binutils cpio jq kmod xz-utils zstd

say() { printf 'packages: %s\n' "$*"; }
die() { printf 'packages: %s\n' "$*" >&2; exit 1; }

tool_of() { # PACKAGE: the command that shows that it is there, where package and command differ
  case $1 in
    binutils) echo readelf ;;
    build-essential) echo cc ;;
    coccinelle) echo spatch ;;
    gcc-arm-none-eabi) echo arm-none-eabi-gcc ;;
    kmod) echo modprobe ;;
    qemu-system-arm) echo qemu-system-arm ;;
    qemu-system-common) echo qemu-storage-daemon ;;
    qemu-system-x86) echo qemu-system-x86_64 ;;
    xz-utils) echo xz ;;
    *) echo "$1" ;;
  esac
}

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  missing=()
  for p; do
    tool=$(tool_of "$p")
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" > /dev/null || missing+=("$tool (Debian package $p)")
  done
  [ ${#missing[@]} -gt 0 ] || exit 0
  printf 'packages: missing: %s\n' "${missing[@]}" >&2
  die "this is neither Debian nor Ubuntu: install these by other means"
fi

installed=" $(dpkg-query -W -f '${db:Status-Status}/${Package} ' "$@" 2> /dev/null || true)"
missing=()
for p; do [[ $installed == *" installed/$p "* ]] || missing+=("$p"); done
[ ${#missing[@]} -gt 0 ] || exit 0

root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo > /dev/null || die "missing: ${missing[*]}; not root and no sudo: run apt-get install ${missing[*]} as root"
  root=(sudo)
fi
# "env" because sudo drops the variable; waits for another apt instead of failing on its lock.
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" < /dev/null; }
update() { say "apt-get update"; apt update > /dev/null || say "apt-get update had errors, going on"; }
install_missing() {
  say "installing ${missing[*]}"
  apt install -y --no-install-recommends "${missing[@]}" > "$log" 2>&1
}
log=$(mktemp); trap 'rm -f "$log"' EXIT

updated=
for p in "${missing[@]}"; do
  apt-cache show "$p" > /dev/null 2>&1 || { update; updated=1; break; }
done
# Package lists that are out of date name files the archive no longer has: update and try once more.
if ! install_missing; then
  [ -n "$updated" ] || update
  if [ -n "$updated" ] || ! install_missing; then
    tail -n 5 "$log" >&2
    die "could not install ${missing[*]}"
  fi
fi
say "done"
