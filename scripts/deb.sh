#!/usr/bin/env bash
# Debian packages for this machine's processor, from what "make install-target" and "make install" put into an empty folder.
#
#   deb.sh DIR      writes into DIR: coalesce-target, libcoalesce0, libcoalesce-dev
#
# Needs dpkg-dev, binutils and jq (guest/packages.sh build-essential jq). PROFILE=dev: coalesce-target from a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }
[ -d "${1:-}" ] || die "the directory for the packages is missing: deb.sh DIR"
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture --query DEB_HOST_MULTIARCH)
library=libcoalesce${version%%.*}

package() { # NAME SECTION DEPENDS SUMMARY CRATE...: what is in $work/NAME, made of CRATEs; DEPENDS beside the libraries that its programs need
  local name=$1 section=$2 depends=$3 summary=$4 root=$work/$1 objects needs=
  shift 4
  mkdir -p "$root/usr/share/doc/$name" "$root/DEBIAN" "$work/debian"
  { echo "coalesce is licensed under MIT or Apache-2.0, at your option."; echo; cat LICENSE-MIT; echo; cat LICENSE-APACHE; echo; scripts/licences.sh "$@"; } > "$root/usr/share/doc/$name/copyright"
  gzip -9n < CHANGELOG.md > "$root/usr/share/doc/$name/changelog.gz"
  mapfile -t objects < <(find "$root/usr/bin" "$root$libdir" -type f \( -perm -u=x -o -name '*.so.*' \) 2> /dev/null)
  if [ ${#objects[@]} -gt 0 ]; then
    strip --strip-unneeded "${objects[@]}"
    printf 'Source: coalesce\n\nPackage: %s\nArchitecture: any\n' "$name" > "$work/debian/control"
    needs=$(cd "$work" && dpkg-shlibdeps -O "${objects[@]}" 2> "$work/shlibdeps.log") || { cat "$work/shlibdeps.log" >&2; die "dpkg-shlibdeps"; }
    needs=${needs#shlibs:Depends=}
  fi
  cat > "$root/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-The coalesce maintainers} <${DEBEMAIL:-root@localhost}>
Section: $section
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: $needs${needs:+${depends:+, }}$depends
Description: $summary
END
  sed -i '/^Depends: $/d' "$root/DEBIAN/control"
  find "$root" -type d -exec chmod 755 {} +
  dpkg-deb --root-owner-group --build "$root" "$out" > "$work/log" || { cat "$work/log" >&2; die "dpkg-deb"; }
}

DESTDIR=$work/coalesce-target PREFIX=/usr scripts/install-target.sh install
gzip -9n "$work"/coalesce-target/usr/share/man/man1/*.1
mv "$work"/coalesce-target/usr/share/zsh/{site-functions,vendor-completions} # where Debian's zsh looks
package coalesce-target admin "" "virtio-blk and NVMe disks for virtual machines, with interrupt coalescing" coalesce-target coalesce-sim

DESTDIR=$work/libcoalesce-dev PREFIX=/usr LIBDIR=$libdir scripts/install.sh install
mkdir -p "$work/$library$libdir" "$work/$library/DEBIAN"
mv "$work/libcoalesce-dev$libdir/libcoalesce.so".* "$work/$library$libdir"
strip --strip-debug "$work/libcoalesce-dev$libdir/libcoalesce.a"
# A program that is linked with it needs this package.
echo "libcoalesce ${version%%.*} $library (>= $version)" > "$work/$library/DEBIAN/shlibs"
echo "activate-noawait ldconfig" > "$work/$library/DEBIAN/triggers"
package "$library" libs "" "when a storage device interrupts: policies as a library" libcoalesce
package libcoalesce-dev libdevel "$library (= $version)" "when a storage device interrupts: header and libraries for C" libcoalesce
