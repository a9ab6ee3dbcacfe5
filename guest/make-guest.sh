#!/usr/bin/env bash
# Make the guest: an unmodified Debian (or Ubuntu) kernel and a small initramfs with fio, nvme-cli, sqlite3, mke2fs, busybox
# and a loop that computes.
#
#   make-guest.sh            prints the directory that holds vmlinuz and initrd
#   KERNEL_META    kernel (meta) package; default: the first that exists of linux-image-cloud-amd64,
#                  linux-image-virtual, linux-image-generic, linux-image-amd64
#   GUEST_SUITES   Debian suites to take everything from, the last one first, as "trixie trixie-backports"; default: the
#                  system's sources
#
# The result is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/guest, keyed by a hash of the
# scripts and by the kernel's version. Packages are fetched with "apt-get download" and unpacked with "dpkg -x":
# nothing is installed, root is not needed, and no network either once the guest has been made.
# Host packages: see packages.sh. x86-64 only.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C # depmod, modprobe
metas=${KERNEL_META:-linux-image-cloud-amd64 linux-image-virtual linux-image-generic linux-image-amd64}
modules="virtio_pci virtio_blk nvme ext4"
programs="fio nvme-cli sqlite3 e2fsprogs"
# The libraries that the jobs use; the others that the programs are linked with are stubbed below.
used='^(libc6|libaio1|libnuma1|zlib1g|libgcc-s1|libnvme1|libjson-c5|libsqlite3-0|libreadline8|libext2fs2|libcom-err2|libblkid1|libuuid1)(t64)?$'

say() { if [ -t 2 ]; then printf 'guest: %s\n' "$*" >&2; fi; }
die() { printf 'make-guest: %s\n' "$*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/guest
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=guest/apt.sh
. "$here/apt.sh"
suites=${GUEST_SUITES:-}
inputs=$(printf '%s\n' "$metas" "$suites" | cat - "$here"/{make-guest,apt,init}.sh "$here/compute.s" | sha256sum | cut -c1-12)

# 0. Fast path: apt cannot know of another kernel than when it was asked last.
made=''
for d in "$cache/$inputs-"*/; do
  if [ -f "${d}initrd" ] && { [ -z "$made" ] || [ "$d" -nt "$made" ]; }; then made=${d%/}; fi
done
if [ -n "$made" ] && [ ! /var/lib/apt/lists -nt "$made" ]; then echo "$made"; exit; fi

for tool in apt-get dpkg-deb readelf ld cpio modprobe xz; do
  command -v "$tool" > /dev/null || { [ -z "$made" ] || { echo "$made"; exit; }; die "$tool is missing: run packages.sh"; }
done
mkdir -p "$cache/debs"; cache=$(realpath "$cache")
exec {lock}> "$cache/lock"; flock "$lock"
rm -rf "$cache"/.new.*; tmp=$(mktemp -d "$cache/.new.XXXXXX"); trap 'rm -rf "$tmp"' EXIT

# 1. Which packages? With the system's package lists if they will do, else with lists of our own.
apt_conf=/dev/null
own_lists() {
  [ "$apt_conf" = /dev/null ] || return 1
  say "fetching package lists${suites:+ of $suites}"
  # shellcheck disable=SC2086 # a list of words
  apt_private "$tmp/apt" $suites > "$tmp/log" 2>&1
}
records() { # PACKAGE...: a line "package|version|dependencies" for the candidate of each that exists
  apt-cache -c "$apt_conf" show --no-all-versions "$@" 2> /dev/null | awk '
    { key = $1; sub(/^[^ ]* /, "") }
    key == "Package:" { p = $0 } key == "Version:" { v = $0 } key ~ /^(Pre-)?Depends:$/ { d = d ", " $0 }
    /^$/ { if (p) print p "|" v "|" d; p = v = d = "" }' | awk -F'|' '!seen[$1]++' || true
}
names() { tr '|,' '\n' | awk '{ sub(/:.*/, "", $1); print $1 }'; } # the package names of a Depends field
plan() { # sets kernel, version, and want (PACKAGE=VERSION...); fails if apt knows too little
  local all meta p
  kernel='' version='' want=()
  # shellcheck disable=SC2086 # a list of words
  all=$(records $metas $programs)
  for meta in $metas; do
    kernel=$(grep "^$meta|" <<< "$all" | names | grep -m 1 '^linux-image-[0-9]') && break
  done
  [ -n "$kernel" ] || return 1
  p=$(grep -E "^(${programs// /|})\|" <<< "$all" | cut -d'|' -f3- | names | grep -E "$used" | sort -u)
  # shellcheck disable=SC2086
  all=$(records "$kernel" linux-{base,binary,modules}-"${kernel#linux-image-}" busybox-static $programs $p) # apart: Ubuntu, Debian 7.x
  version=$(awk -F'|' -v k="$kernel" '$1 == k { print $2 }' <<< "$all")
  mapfile -t want < <(awk -F'|' '{ print $1 "=" $2 }' <<< "$all")
  [ -n "$version" ] || return 1
  for p in $programs busybox-static libc6; do [[ " ${want[*]}" == *" $p="* ]] || return 1; done
}
deb() { local v=${1#*=}; echo "$cache/debs/${1%%=*}_${v//:/%3a}"_*.deb; } # PACKAGE=VERSION
fetch() {
  local p todo=()
  for p in "${want[@]}"; do [ -f "$(deb "$p")" ] || todo+=("$p"); done
  [ ${#todo[@]} -eq 0 ] && return
  say "downloading ${todo[*]}"
  (cd "$cache/debs" && apt-get -c "$apt_conf" -o APT::Sandbox::User=root -qq download "${todo[@]}") > "$tmp/log" 2>&1
}
planned=
if { [ -z "$suites" ] && plan; } || { [ -z "$made" ] && own_lists && plan; }; then planned=1; fi
out=$cache/$inputs-$version
if [ -n "$planned" ] && [ -f "$out/initrd" ]; then touch "$out"; echo "$out"; exit; fi
# Lists that are out of date name files the archive no longer has: new lists, once.
if [ -z "$planned" ] || ! { fetch || { own_lists && plan && fetch; }; }; then
  if [ -n "$made" ]; then
    say "nothing newer can be had, using the guest that is there"
    touch "$made"; echo "$made"; exit # not tried again before the package lists change
  fi
  tail -n 3 "$tmp/log" >&2 2> /dev/null || true
  die "cannot get the packages (${kernel:-no kernel package found}); is there a network, or an apt source?"
fi
out=$cache/$inputs-$version

# 2. Unpack.
say "unpacking"
root=$tmp/root fs=$tmp/fs
mkdir -p "$root" "$fs"/{bin,lib,lib64,usr/bin,proc,sys,dev,etc,mods}
for p in "${want[@]}"; do dpkg -x "$(deb "$p")" "$root"; done
find_one() { find "$root" -path "*/$1" ! -type d -print -quit; } # merged /usr or not: the file is somewhere

# 3. The kernel, and its modules in the order in which they must be loaded.
release=${kernel#linux-image-}
base=$(dirname "$(dirname "$(find "$root" -path "*/modules/$release" -type d -print -quit)")")
[ "$base" = "$root/lib" ] || ln -sfn usr/lib "$root/lib" # newer packages: /usr/lib/modules
vmlinuz=$(find_one "boot/vmlinuz-$release")
cp "${vmlinuz:-$(find_one "modules/$release/vmlinuz")}" "$tmp/vmlinuz" # among the modules: Debian 7.x
config=$(find_one "boot/config-$release")
config=${config:-$(find_one "modules/$release/config")}
if [ -n "$config" ]; then mkdir "$fs/boot"; cp "$config" "$fs/boot/config-$release"; fi
depmod -b "$root" "$release"
for m in $modules; do modprobe -S "$release" -d "$root" --show-depends "$m"; done |
  awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r path; do
  name=$(basename "$path"); name=${name%.ko*}.ko # some kernels have some of them built in: no line then
  case $path in *.xz) xz -dc "$path" ;; *.zst) zstd -qdc "$path" ;; *.gz) gzip -dc "$path" ;; *) cat "$path" ;; esac > "$fs/mods/$name"
  echo "$name" >> "$fs/mods/order"
done
touch "$fs/mods/order"

# 4. busybox and the programs. Debian links fio with some 60 libraries (Ceph, Gluster, RDMA, ICU, ...: 80 MB, and
#    0.6 s of run-time linking per start under emulation) for engines that no job here uses, nvme with some for
#    fabrics. Those get stubs of the same name, with the symbols and versions that are asked for; calling one is SIGILL.
cp -L "$(find_one bin/busybox)" "$fs/bin/busybox"
cp -L "$(find_one bin/fio)" "$(find_one sbin/nvme)" "$(find_one bin/sqlite3)" "$(find_one sbin/mke2fs)" "$fs/usr/bin/"
cp -L "$(find_one ld-linux-x86-64.so.2)" "$fs/lib64/"
needed() { readelf -dW "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }
add_libs() { # FILE...: copy the libraries they need, as far as the packages above have them
  local so path
  for so in $(needed "$@"); do
    path=$(find_one "$so")
    if [ -n "$path" ] && [ ! -e "$fs/lib/$so" ]; then cp -L "$path" "$fs/lib/$so"; add_libs "$fs/lib/$so"; fi
  done
}
add_libs "$fs"/usr/bin/*
linked=("$fs"/usr/bin/* "$fs"/lib/*.so*)
# "name version" of everything they want and no real library has; "-" for a symbol without version
readelf --dyn-syms -W "$fs"/lib/*.so* | awk '$7 ~ /^[0-9]+$/ { sub(/@.*/, "", $8); print $8 }' > "$tmp/have"
readelf --dyn-syms -W "${linked[@]}" | awk '$7 == "UND" && $5 == "GLOBAL" { n = split($8, s, "@"); print s[1], (n > 1 ? s[n] : "-") }' |
  sort -u | awk 'NR == FNR { have[$1]; next } !($1 in have)' "$tmp/have" - > "$tmp/wanted"
readelf -VW "${linked[@]}" > "$tmp/versions"
for so in $(needed "${linked[@]}"); do
  [ ! -e "$fs/lib/$so" ] || continue
  versions=$(awk -v so="$so" '/ File: / { on = index($0, " File: " so " ") } on && $2 == "Name:" && !seen[$3]++ { print $3 }' "$tmp/versions")
  : > "$tmp/stub.s"; : > "$tmp/stub.map"
  for v in $versions -; do # symbols without a version may come from any library: each stub has them
    syms=$(awk -v v="$v" '$2 == v { print $1 }' "$tmp/wanted")
    for s in $syms; do echo ".globl $s; .type $s, @function; $s: ud2"; done >> "$tmp/stub.s"
    [ "$v" = - ] || echo "$v {${syms:+ global: ${syms//$'\n'/; };} };" >> "$tmp/stub.map"
  done
  as -o "$tmp/stub.o" "$tmp/stub.s"
  ld -shared -soname "$so" ${versions:+--version-script "$tmp/stub.map"} -o "$fs/lib/$so" "$tmp/stub.o"
done
# With every symbol bound at the start: if they start at all, every symbol was found.
for program in "$fs"/usr/bin/*; do
  # mke2fs knows no such option: status 1.
  LD_BIND_NOW=1 "$fs/lib64/ld-linux-x86-64.so.2" --library-path "$fs/lib" "$program" --version > "$tmp/log" 2>&1 || [ $? = 1 ] ||
    { head -n 3 "$tmp/log" >&2; die "${program##*/} does not start with the libraries collected"; }
done

# 5. A loop that computes, and /init. It runs /job.sh, which run-guest.sh adds.
echo 'root:x:0:0:root:/:/bin/sh' > "$fs/etc/passwd"
echo 'root:x:0:' > "$fs/etc/group"
as -o "$tmp/compute.o" "$here/compute.s"
ld -s -o "$fs/bin/compute" "$tmp/compute.o"
cp "$here/init.sh" "$fs/init"
chmod 755 "$fs/init"
(cd "$fs" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) > "$tmp/initrd"

# 6. Put it in place in one step; keep the three newest guests and the packages of this one.
rm -rf "$root" "$fs" "$tmp"/{apt,log,have,wanted,versions} "$tmp"/*.{o,s,map}
rm -rf "$out"; mv "$tmp" "$out"; chmod 755 "$out"; touch "$out"
find "$cache" -mindepth 1 -maxdepth 1 -name '*-*' -printf '%T@ %p\n' | sort -rn | sed '1,3d; s/[^ ]* //' | xargs -rd '\n' rm -rf
for f in "$cache"/debs/*.deb; do
  for p in "${want[@]}"; do [ "$f" != "$(deb "$p")" ] || continue 2; done
  rm -f "$f"
done
say "kernel $release, initramfs $(du -h "$out/initrd" | cut -f1)"
echo "$out"
