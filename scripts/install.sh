#!/usr/bin/env bash
# Build libcoalesce for C, and install or remove it: the header, the static and the shared library, the pkg-config file, the
# package of CMake.
#
#   install.sh build|install|uninstall
#
#   PREFIX=DIR [/usr/local]   LIBDIR=DIR [PREFIX/lib]   INCLUDEDIR=DIR [PREFIX/include]
#   DESTDIR=DIR               put everything below this, as packagers do
#
# Where root has no Rust toolchain: build as yourself, then install as root.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'install: %s\n' "$*" >&2; exit 1; }

prefix=${PREFIX-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
scripts/plain-folders.sh install "$prefix" "$libdir" "$includedir"
built=${CARGO_TARGET_DIR:-target}/release
header=crates/ffi/include/coalesce.h
number() { sed -n "s/^#define COALESCE_VERSION_$1 //p" "$header"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
soname=libcoalesce.so.$(number MAJOR)

build() {
  local log
  log=$(mktemp)
  # For this machine, whatever the user builds for otherwise: that would be elsewhere.
  env -u CARGO_BUILD_TARGET cargo rustc --locked --release --package libcoalesce --lib --crate-type staticlib,cdylib -- \
    --print native-static-libs 2> "$log" || { cat "$log" >&2; rm "$log"; die "the build failed"; }
  # What a program needs that links the static library; -lgcc_s the C compiler adds itself, and not for -static.
  sed -n 's/^note: native-static-libs: //p' "$log" | sed 's/-lgcc_s *//' > "$built/libcoalesce.private"
  rm "$log"
  [ -s "$built/libcoalesce.private" ] || die "rustc does not say what the static library needs"
  scripts/seal.sh "$built/libcoalesce.a" "$built/libcoalesce.sealed.a"
}

install() {
  if command -v cargo > /dev/null; then
    build
  else
    [ -e "$built/libcoalesce.private" ] || die "not built, and no cargo to build it with"
  fi
  local lib=${DESTDIR:-}$libdir include=${DESTDIR:-}$includedir
  command install -d "$lib" "$include"
  command install -m 644 "$header" "$include"
  command install -m 644 "$built/libcoalesce.sealed.a" "$lib/libcoalesce.a"
  rm -f "$lib/$soname".* # of an older version
  command install -m 755 "$built/libcoalesce.so" "$lib/libcoalesce.so.$version"
  ln -sf "libcoalesce.so.$version" "$lib/$soname"
  ln -sf "$soname" "$lib/libcoalesce.so"
  scripts/describe-library.sh "$lib" "$prefix" "$libdir" "$includedir" "$(cat "$built/libcoalesce.private")"
}

uninstall() {
  local lib=${DESTDIR:-}$libdir
  rm -f "${DESTDIR:-}$includedir/coalesce.h" "$lib/pkgconfig/coalesce.pc" "$lib/libcoalesce.a" "$lib/libcoalesce.so" \
    "$lib/$soname"{,.*} "$lib"/cmake/coalesce/coalesce-config{,-version}.cmake
  rmdir --ignore-fail-on-non-empty "$lib/cmake/coalesce" 2> /dev/null || true
}

case ${1:-} in
  build | install | uninstall) "$1" ;;
  *) die "build, install or uninstall?" ;;
esac
