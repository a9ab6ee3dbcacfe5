#!/usr/bin/env bash
# What finds an installed libcoalesce: the file of pkg-config, and the package of CMake.
#
#   describe-library.sh OUT PREFIX LIBDIR INCLUDEDIR LIBRARIES [DEFINITION]
#
#   OUT          a directory: OUT/pkgconfig/coalesce.pc, OUT/cmake/coalesce/*.cmake
#   LIBRARIES    what a program needs beside the static library: -lpthread ...
#   DEFINITION   a macro that must be defined before the header: COALESCE_BARE_METAL
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
[ $# -ge 5 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 1; }
out=$1 prefix=$2 libdir=$3 includedir=$4 libraries=$5 definition=${6:-}
header=crates/ffi/include/coalesce.h
number() { sed -n "s/^#define COALESCE_VERSION_$1 //p" "$header"; }

fill() { # TEMPLATE
  sed -e "s|@prefix@|$prefix|" -e "s|@version@|$(number MAJOR).$(number MINOR).$(number PATCH)|" -e "s|@major@|$(number MAJOR)|" \
    -e "s|@libdir@|${libdir/#"$prefix"/\$\{prefix\}}|" -e "s|@includedir@|${includedir/#"$prefix"/\$\{prefix\}}|" \
    -e "s|@libraries@|$libraries|" -e "s|@cflags@|${definition:+ -D$definition}|" -e "s|@definition@|$definition|" \
    -e "s|@include@|$(realpath --canonicalize-missing --no-symlinks --relative-to="$libdir" "$includedir")|" "$1"
}
mkdir -p "$out/pkgconfig" "$out/cmake/coalesce"
# Below the prefix, so that they are found wherever it is moved to.
fill crates/ffi/coalesce.pc.in > "$out/pkgconfig/coalesce.pc"
for name in coalesce-config coalesce-config-version; do
  fill "crates/ffi/$name.cmake.in" > "$out/cmake/coalesce/$name.cmake"
done
