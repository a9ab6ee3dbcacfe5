#!/usr/bin/env bash
# Build the NVMe PCI driver of a Debian kernel with hints: module/ and nvme-cint.cocci, applied to Debian's own source.
#
#   build.sh [KERNEL]        version of a linux-source package [6.1]; prints the path of nvme.ko
#   FLAVOUR   the kernel's flavour, as in linux-image-FLAVOUR   default: amd64 (the driver is a module there; in cloud-amd64 it is built in)
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
say() { printf 'linux: %s\n' "$*" >&2; }
die() { say "$1"; exit "${2:-1}"; }

[[ $kernel =~ ^[0-9]+\.[0-9]+$ ]] || die "KERNEL=$kernel is not a version such as 6.1"
../guest/packages.sh coccinelle build-essential bc >&2 || die "coccinelle, a compiler or bc is missing" 3

# 1. Which packages: the source, and the headers of the same version.
field() { # PACKAGE FIELD: of apt's candidate
  { apt-cache show --no-all-versions "$1" 2> /dev/null || true; } | sed -n "s/^$2: //p" | head -n 1
}
version=$(field "linux-source-$kernel" Version)
[ -n "$version" ] || die "apt has no linux-source-$kernel: apt-get update, or another suite" 3
headers=''
for meta in "linux-headers-$flavour" "linux-headers-$kernel-$flavour"; do
  [ "$(field "$meta" Version)" != "$version" ] || headers=$(field "$meta" Depends | grep -o 'linux-headers-[0-9][^ ,]*' | head -n 1)
done
[ -n "$headers" ] || die "apt has no headers of flavour $flavour for linux-source-$kernel $version" 3
mapfile -t others < <(field "$headers" Depends | tr ',|' '\n' | grep -oE 'linux-(headers-[^ ]*-common|kbuild-[^ ]*)')
out=$target/linux/$version-$flavour
inputs=$(sha256sum nvme-cint.cocci module/* build.sh | sha256sum | cut -c1-16)
if [ -f "$out/nvme.ko" ] && [ "$(cat "$out/inputs" 2> /dev/null)" = "$inputs" ]; then echo "$out/nvme.ko"; exit; fi

# 2. Fetch and unpack: once for each version.
unpacked=$cache/$version-$flavour
mkdir -p "$cache"
exec {lock}> "$cache/lock"
flock "$lock"
if [ ! -d "$unpacked" ]; then
  say "fetching linux-source-$kernel $version and $headers"
  new=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  (cd "$new" && apt-get -qq -o APT::Sandbox::User=root download "linux-source-$kernel" "$headers" "${others[@]}") > "$new/log" 2>&1 ||
    { tail -n 3 "$new/log" >&2; die "the packages cannot be fetched"; }
  for deb in "$new"/*.deb; do dpkg-deb -x "$deb" "$new/root"; done
  tar -C "$new" --strip-components=1 --wildcards -xJf "$new/root/usr/src/linux-source-$kernel.tar.xz" '*/drivers/nvme/host/*.[ch]'
  rm -rf "$new"/*.deb "$new/root/usr/src/linux-source-$kernel.tar.xz"
  # The headers name each other by where they would be installed.
  echo "include $unpacked/root/usr/src/${others[0]}/Makefile" > "$new/root/usr/src/$headers/Makefile"
  mv "$new" "$unpacked"
fi

# 3. Patch a copy. A call that is missing would be a request without its hint, or a queue that is not reset.
rm -rf "$out"
mkdir -p "$out"
cp "$unpacked"/drivers/nvme/host/*.h module/* "$out"
spatch --very-quiet --sp-file nvme-cint.cocci -o "$out/pci.c" "$unpacked/drivers/nvme/host/pci.c" > "$out/spatch.log" 2>&1 ||
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

# 4. Build this module alone. Type information for BPF would need pahole.
# shellcheck disable=SC2016 # $(src) is make's
printf '%s\n' 'obj-m := nvme.o' 'nvme-y := pci.o' 'ccflags-y := -I$(src) -Werror' > "$out/Makefile"
make -C "$unpacked/root/usr/src/$headers" M="$out" CONFIG_DEBUG_INFO_BTF_MODULES= modules > "$out/make.log" 2>&1 ||
  { grep -E 'error|Error' "$out/make.log" | head -n 20 >&2; die "the build failed: $out/make.log"; }
echo "$inputs" > "$out/inputs"
say "nvme.ko for ${headers#linux-headers-}, Debian's $version, from $here"
echo "$out/nvme.ko"
