#!/usr/bin/env bash
# The Debian packages in a clean root, which has nothing but the libraries that they depend on: dpkg installs them, the programs run,
# a program in C is built against them and runs, and what is purged is gone. lintian finds neither errors nor warnings.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-deb: %s\n' "$*" >&2; exit 1; }
if ! command -v dpkg-shlibdeps > /dev/null || ! command -v jq > /dev/null; then
  echo "SKIPPED: Debian packages: no dpkg-dev or no jq"
  exit 0
fi
# Root of a namespace is enough to change the root directory.
[ "$(id -u)" = 0 ] || exec unshare --map-root-user "$0"
PATH=$PATH:/usr/sbin:/sbin # dpkg wants ldconfig
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
library=libcoalesce${version%%.*}
mkdir "$work/root"
PROFILE='test' scripts/deb.sh "$work/packages"
(cd "$work/packages" && echo ./*) > "$work/names"
[ "$(wc -w < "$work/names")" = 3 ] || die "packages are $(cat "$work/names")"

if command -v lintian > /dev/null; then
  # A package outside of Debian closes none of its bugs.
  lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs --tag-display-limit 0 "$work"/packages/*.deb || die "lintian"
else
  echo "SKIPPED: Debian packages by lintian: no lintian"
fi

# The clean root: this machine's C library and its compiler's, as dpkg knows them.
root=$work/root
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers} "$root"/usr/{bin,lib,lib64} "$root/tmp"
ln -s usr/lib usr/lib64 usr/bin "$root"
for package in libc6 libgcc-s1; do
  dpkg-query --showformat='Package: ${Package}\nStatus: install ok installed\nVersion: ${Version}\nArchitecture: ${Architecture}\nMaintainer: none\nDescription: none\n\n' \
    --show "$package" >> "$root/var/lib/dpkg/status"
  dpkg-query --listfiles "$package" | while read -r file; do
    if [ -f "$file" ]; then mkdir -p "$root/$(dirname "$file")"; cp --archive "$file" "$root/$file"; fi
  done
done
printf '/.\n/lib\n/lib64\n' > "$root/var/lib/dpkg/info/libc6.list" # so no other package takes them away
before=$(cd "$root" && find . ! -path './var/lib/dpkg/*' ! -type d | sort)
packages() { dpkg --root="$root" --force-not-root --force-script-chrootless --log="$work/dpkg.log" --no-triggers "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; return 1; }; }
if packages --install "$work/packages/libcoalesce-dev_"*.deb 2> "$work/null"; then die "libcoalesce-dev is installed without its library"; fi
packages --purge libcoalesce-dev || die "what was not configured cannot be removed"
packages --install "$work"/packages/*.deb || die "dpkg does not install them"

for program in coalesce-target coalesce-bench coalesce-sim; do
  [[ "$(chroot "$root" "/usr/bin/$program" --version)" == "$program $version"* ]] || die "$program does not run in a clean root"
done
chroot "$root" /usr/bin/coalesce-target --print-capabilities | grep -q '"block"' || die "no backend in a clean root"
# What the programs are made of, by the source paths in them, is in their copyright file with its licence.
grep --text --only-matching --no-filename -E 'registry/src/[^/]+/[A-Za-z0-9_-]+-[0-9]+\.[0-9]+\.[0-9]+[^/]*/' "$root"/usr/bin/coalesce-{target,bench,sim} |
  sed -E 's|.*/([A-Za-z0-9_-]+)-([0-9][^/]*)/$|\1 \2|' | sort -u > "$work/crates"
[ "$(wc -l < "$work/crates")" -gt 10 ] || die "the programs name $(wc -l < "$work/crates") crates"
while read -r crate; do
  grep -q "^$crate: " "$root/usr/share/doc/coalesce-target/copyright" || die "$crate is not in the copyright file"
done < "$work/crates"
cc -std=c99 -pthread -I "$root/usr/include" -I crates/ffi/examples crates/ffi/examples/eventfd_loop.c -L "$(dirname "$(find "$root" -name libcoalesce.a)")" -lcoalesce -o "$root/tmp/program"
chroot "$root" /tmp/program > "$work/out" || { cat "$work/out" >&2; die "a program that is linked with $library does not run in a clean root"; }
rm "$root/tmp/program"

packages --purge coalesce-target libcoalesce-dev "$library" || die "dpkg does not remove them"
diff <(echo "$before") <(cd "$root" && find . ! -path './var/lib/dpkg/*' ! -type d | sort) || die "packages leave files"
echo "check-deb: $(cat "$work/names"), installed and removed"
