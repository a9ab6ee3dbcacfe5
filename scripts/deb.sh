#!/usr/bin/env bash
# Debian packages for this machine's processor, from what "make install-target" and "make install" put into an empty folder.
#
#   deb.sh DIR      DIR is made, and gets coalesce-target, libcoalesce0, libcoalesce-dev
#
# Needs dpkg-dev, binutils and jq (guest/packages.sh build-essential jq). PROFILE=dev: coalesce-target from a debug build.
# DEBFULLNAME, DEBEMAIL: the maintainer. SOURCE_DATE_EPOCH: the date [the commit's].
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }
[ -n "${1:-}" ] || die "the directory for the packages is missing: deb.sh DIR"
[[ $# = 1 && $1 != -* ]] || die "$*: expected one directory, whose name does not begin with -: deb.sh DIR"
mkdir -p "$1"
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
revision=$version-1 # of the packages; the sources have no revision of their own
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
maintainer="${DEBFULLNAME:-The coalesce maintainers} <${DEBEMAIL:-maintainers@coalesce.invalid}>"
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture --query DEB_HOST_MULTIARCH)
library=libcoalesce${version%%.*}

# What Debian has once, it does not want in each package.
copyright() { # CRATE...
  cat << 'END'
coalesce is licensed under MIT or Apache-2.0, at your option. The latter is in /usr/share/common-licenses/Apache-2.0; the former:

END
  cat LICENSE-MIT
  echo
  COMMON=/usr/share/common-licenses scripts/licences.sh "$@"
}
changelog() {
  printf 'coalesce (%s) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' "$revision" "$version" "$maintainer" \
    "$(LC_ALL=C date --utc --rfc-email --date="@$date")"
}

package() { # NAME SECTION DEPENDS SUMMARY CRATE...: what is in $work/NAME, made of CRATEs; its description comes in; DEPENDS beside the libraries that its programs need
  local name=$1 section=$2 depends=$3 summary=$4 root=$work/$1 doc=$work/$1/usr/share/doc/$1 objects needs=
  shift 4
  mkdir -p "$doc" "$root/DEBIAN" "$work/debian"
  copyright "$@" > "$doc/copyright"
  gzip -9n < CHANGELOG.md > "$doc/changelog.gz"
  changelog | gzip -9n > "$doc/changelog.Debian.gz"
  mapfile -t objects < <(find "$root/usr/bin" "$root$libdir" -type f \( -perm -u=x -o -name '*.so.*' \) 2> /dev/null)
  if [ ${#objects[@]} -gt 0 ]; then
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "${objects[@]}"
    printf 'Source: coalesce\n\nPackage: %s\nArchitecture: any\n' "$name" > "$work/debian/control"
    needs=$(cd "$work" && dpkg-shlibdeps -O "${objects[@]}" 2> "$work/shlibdeps.log") || { cat "$work/shlibdeps.log" >&2; die "dpkg-shlibdeps"; }
    needs=${needs#shlibs:Depends=}
  fi
  cat > "$root/DEBIAN/control" <<END
Package: $name
Source: coalesce
Version: $revision
Architecture: $architecture
Maintainer: $maintainer
Section: $section
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: $needs${needs:+${depends:+, }}$depends
Description: $summary
$(sed 's/^/ /')
END
  sed -i '/^Depends: $/d' "$root/DEBIAN/control"
  [[ $name != lib* ]] || sed -i 's/^Section:/Multi-Arch: same\n&/' "$root/DEBIAN/control"
  find "$root" -type d -exec chmod 755 {} +
  find "$root" -exec touch --no-dereference --date="@$date" {} +
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
  SOURCE_DATE_EPOCH=$date dpkg-deb --root-owner-group --build "$root" "$out" > "$work/log" || { cat "$work/log" >&2; die "dpkg-deb"; }
}

# Where this release of Debian has its units.
unitdir=$(pkg-config --variable=systemdsystemunitdir systemd 2> /dev/null || echo /lib/systemd/system)
DESTDIR=$work/coalesce-target PREFIX=/usr UNITDIR=$unitdir scripts/install-target.sh install
gzip -9n "$work"/coalesce-target/usr/share/man/man1/*.1
mv "$work"/coalesce-target/usr/share/zsh/{site-functions,vendor-completions} # where Debian's zsh looks
package coalesce-target admin "" "virtio-blk and NVMe disks for virtual machines, with interrupt coalescing" coalesce-target coalesce-load coalesce-sim << 'END'
A disk decides for each completed request: interrupt the guest now, or wait
for more completions. With the default policy waiting for company adds at most
5 % to the time your requests take, and more only while trials show that it
makes them faster, taken together; a request that is marked urgent or is alone
does not wait, and no wait is longer than max_hold.
.
coalesce-target serves images to QEMU and other virtual machine monitors,
over vhost-user (virtio-blk) or vfio-user (NVMe). Each disk is a sandboxed
process. coalesce-bench loads a disk as a guest would. coalesce-sim simulates
devices and hosts, and replays traces.
END

DESTDIR=$work/libcoalesce-dev PREFIX=/usr LIBDIR=$libdir scripts/install.sh install
mkdir -p "$work/$library$libdir" "$work/$library/DEBIAN"
mv "$work/libcoalesce-dev$libdir/libcoalesce.so".* "$work/$library$libdir"
chmod 644 "$work/$library$libdir/libcoalesce.so.$version"
strip --strip-debug "$work/libcoalesce-dev$libdir/libcoalesce.a"
# A program that is linked with it needs this package.
echo "libcoalesce ${version%%.*} $library (>= $version)" > "$work/$library/DEBIAN/shlibs"
echo "activate-noawait ldconfig" > "$work/$library/DEBIAN/triggers"
package "$library" libs "" "when a storage device interrupts: policies as a library" libcoalesce << 'END'
Interrupt coalescing policies for storage devices as small state machines:
vIC, calibrated interrupts, and a latency budget.
.
This package has the shared library.
END
package libcoalesce-dev libdevel "$library (= $revision)" "when a storage device interrupts: header and libraries for C" libcoalesce << 'END'
Interrupt coalescing policies for storage devices as small state machines:
vIC, calibrated interrupts, and a latency budget.
.
This package has the header, the static library, and what pkg-config and
CMake need.
END
