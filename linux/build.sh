#!/usr/bin/env bash
# Build the NVMe PCI driver of a Debian kernel with hints: module/ and nvme-cint.cocci, applied to Debian's own source.
#
#   build.sh [KERNEL]        version of a linux-source package [6.1]; prints the path of nvme.ko
#   FLAVOUR   the kernel's flavour, as in linux-image-FLAVOUR   default: amd64 (the driver is a module there; in cloud-amd64 it is built in)
#   GUEST_SUITES   Debian suites to take the kernel from, the last one first, as "trixie trixie-backports"; default: the
#                  system's sources. The compiler that the headers ask for comes from there, too, and runs unpacked
#
# Source and headers are fetched with "apt-get download" and unpacked below ${XDG_CACHE_HOME:-~/.cache}/coalesce/linux:
# nothing is installed but coccinelle and a compiler. The result is in target/linux/VERSION-FLAVOUR.
# Exit status: 0 built; 1 it cannot be built, and why; 3 apt knows no such kernel.
set -euo pipefail
cd "$(dirname "$0")"
kernel=${1:-6.1}
flavour=${FLAVOUR:-amd64}
here=$PWD
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-../target}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/linux
suites=${GUEST_SUITES:-}
say() { printf 'linux: %s\n' "$*" >&2; }
die() { say "$1"; exit "${2:-1}"; }

[[ $kernel =~ ^[0-9]+\.[0-9]+$ ]] || die "KERNEL=$kernel is not a version such as 6.1"
../guest/packages.sh coccinelle build-essential bc >&2 || die "coccinelle, a compiler or bc is missing" 3

# 1. Which packages: the source, and the headers of the same version. Lists of other suites are kept for a day.
mkdir -p "$cache"
cache=$(realpath "$cache")
exec {lock}> "$cache/lock"
flock "$lock"
apt_conf=/dev/null
if [ -n "$suites" ]; then
  # shellcheck source=guest/apt.sh
  . ../guest/apt.sh
  lists=$cache/lists-$(echo "$suites" | cat - ../guest/apt.sh | sha256sum | cut -c1-12)
  if [ -n "$(find "$lists/fetched" -mmin -1440 2> /dev/null)" ]; then
    apt_conf=$lists/conf
  else
    say "fetching the package lists of $suites"
    # shellcheck disable=SC2086 # a list of words
    apt_private "$lists" $suites || die "the package lists of $suites cannot be fetched"
    touch "$lists/fetched"
  fi
fi
show() { # PACKAGE...: what apt knows of them
  apt-cache -c "$apt_conf" show "$@" 2> /dev/null || true
}
mapfile -t versions < <(show "linux-source-$kernel" | sed -n 's/^Version: //p' | uniq)
[ ${#versions[@]} -gt 0 ] || die "apt has no linux-source-$kernel: apt-get update, or another suite (GUEST_SUITES)" 3
# The newest one that both have: the archive gets a source some hours before its headers, and linux-headers-FLAVOUR, which names them, later.
mapfile -t names < <(apt-cache -c "$apt_conf" pkgnames "linux-headers-$kernel." |
  grep -E "^linux-headers-${kernel//./\\.}\.[0-9][^-]*(-[0-9]+)?-$flavour\$" || true)
[ ${#names[@]} = 0 ] || built=$(show "${names[@]}" | awk '/^Package: / { name = $2 } /^Version: / { print $2, name }')
headers=''
for version in "${versions[@]}"; do
  headers=$(awk -v version="$version" '$1 == version { print $2; exit }' <<< "${built:-}")
  [ -z "$headers" ] || break
done
[ -n "$headers" ] || die "apt has no headers of flavour $flavour for linux-source-$kernel ${versions[*]}" 3
mapfile -t others < <(show "$headers=$version" | sed -n 's/^Depends: //p' | tr ',|' '\n' | grep -oE 'linux-(headers-[^ ]*-common|kbuild-[^ ]*)' | sed "s/-common\$/&=$version/")
out=$target/linux/$version-$flavour
inputs=$(sha256sum nvme-cint.cocci module/* test/*replay* ../vectors/consumer.txt build.sh | sha256sum | cut -c1-16)
if [ -f "$out/nvme.ko" ] && [ "$(cat "$out/inputs" 2> /dev/null)" = "$inputs" ]; then echo "$out/nvme.ko"; exit; fi

# 2. Fetch and unpack: once for each version.
unpacked=$cache/$version-$flavour
root=$unpacked/root
if [ ! -d "$unpacked" ]; then
  say "fetching linux-source-$kernel $version and $headers"
  new=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  # Of another suite the headers with all that they depend on: their compiler, and the libraries of both.
  if [ -n "$suites" ]; then
    mapfile -t others < <(apt-get -c "$apt_conf" -s -qq --no-install-recommends install "$headers=$version" 2> "$new/log" |
      awk -v headers="$headers" '$1 == "Inst" && $2 != headers { gsub(/[()]/, "", $3); print $2 "=" $3 }')
  fi
  (cd "$new" && apt-get -c "$apt_conf" -qq -o APT::Sandbox::User=root download "linux-source-$kernel=$version" "$headers=$version" "${others[@]}") > "$new/log" 2>&1 ||
    { tail -n 3 "$new/log" >&2; die "the packages cannot be fetched"; }
  for deb in "$new"/*.deb; do dpkg-deb -x "$deb" "$new/root"; done
  tar -C "$new" --strip-components=1 --wildcards -xJf "$new/root/usr/src/linux-source-$kernel.tar.xz" '*/drivers/nvme/host/*.[ch]'
  rm -rf "$new"/*.deb "$new/root/usr/src/linux-source-$kernel.tar.xz"
  # The headers name each other by where they would be installed.
  sed -i "s|/usr/src/|$root/usr/src/|" "$new/root/usr/src/$headers/Makefile"
  # Programs of another suite run with its loader and its libraries.
  if [ -n "$suites" ]; then
    find "$new/root/usr/bin" "$new/root/usr/libexec" "$new/root/usr/lib" -type f -perm -100 ! -name '*.so*' | while read -r program; do
      readelf -lW "$program" 2> /dev/null | grep -q 'Requesting program interpreter' || continue
      mv "$program" "$program.elf"
      # shellcheck disable=SC2016 # the wrapper's
      printf '#!/bin/sh\nexec "%s" --argv0 "$0" --library-path "%s" "%s" "$@"\n' "$root/usr/lib64/ld-linux-x86-64.so.2" \
        "$root/usr/lib/x86_64-linux-gnu" "$root/${program#"$new/root/"}.elf" > "$program"
      chmod 755 "$program"
    done
  fi
  mv "$new" "$unpacked"
fi

# 3. Patch a copy. A call that is missing would be a request without its hint, or a queue that is not reset.
rm -rf "$out"
mkdir -p "$out"
cp "$unpacked"/drivers/nvme/host/*.h module/* test/cint-replay.c test/replay.h ../vectors/consumer.txt "$out"
echo '#define __context_unsafe(comment)' > "$out/macros.h" # Linux 7.3, between a function's head and body
spatch --very-quiet --macro-file "$out/macros.h" --sp-file nvme-cint.cocci -o "$out/pci.c" "$unpacked/drivers/nvme/host/pci.c" > "$out/spatch.log" 2>&1 ||
  { tail -n 5 "$out/spatch.log" >&2; die "spatch failed"; }
[ -f "$out/pci.c" ] || die "nothing of nvme-cint.cocci applies to pci.c of $version"
missing=()
expect() { # COUNT PATTERN
  local found
  found=$(grep -cE "$2" "$out/pci.c" || true)
  [ "$found" = "$1" ] || missing+=("$2: $found times instead of $1")
}
expect 1 '#include "cint-pci\.h"'
expect 1 'struct nvme_cint_queue cint;'
expect 1 'struct nvme_cint_request cint;'
expect 2 '\bnvme_cint_submit\('
expect 1 '\bnvme_cint_irq\('
expect 3 '\bnvme_cint_reap\('
expect 1 '\bnvme_cint_alloc\('
expect 1 '\bnvme_cint_init\('
expect 1 '\bnvme_cint_stop\('
expect 1 '\bnvme_poll_cq\(' # its definition
if [ ${#missing[@]} -gt 0 ]; then
  printf 'linux: not applied to pci.c of %s: %s\n' "$version" "${missing[@]}" >&2
  exit 1
fi
echo '#include "cint-pci.c"' >> "$out/pci.c"

# 4. Build this module alone, and one that replays the golden traces in the kernel. Type information for BPF would need pahole.
# shellcheck disable=SC2016 # $(src) is make's
printf '%s\n' 'obj-m := nvme.o cint-replay.o' 'nvme-y := pci.o' 'ccflags-y := -I$(src) -Werror' \
  "CFLAGS_cint-replay.o := -DCINT_REPLAY_VECTOR='\"$out/consumer.txt\"'" > "$out/Makefile"
[ -z "$suites" ] || PATH=$root/usr/bin:$PATH
make -C "$root/usr/src/$headers" M="$out" CONFIG_DEBUG_INFO_BTF_MODULES= modules > "$out/make.log" 2>&1 ||
  { grep -E 'error|Error' "$out/make.log" | head -n 20 >&2; die "the build failed: $out/make.log"; }
echo "$inputs" > "$out/inputs"
say "nvme.ko for ${headers#linux-headers-}, Debian's $version, from $here"
echo "$out/nvme.ko"
