#!/usr/bin/env bash
# "make install" as a packager and a user have it: a program is built in an empty folder with what pkg-config says, once
# with the shared and once with the static library, and runs; "make uninstall" leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-install: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# Staged, with a library folder as Debian's.
staged=(DESTDIR="$work/stage" PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu)
make --silent install "${staged[@]}"
(cd "$work/stage" && find . ! -type d | sort) > "$work/files"
diff "$work/files" - <<END || die "other files are installed than should be"
./usr/include/coalesce.h
./usr/lib/x86_64-linux-gnu/libcoalesce.a
./usr/lib/x86_64-linux-gnu/libcoalesce.so
./usr/lib/x86_64-linux-gnu/libcoalesce.so.${version%%.*}
./usr/lib/x86_64-linux-gnu/libcoalesce.so.$version
./usr/lib/x86_64-linux-gnu/pkgconfig/coalesce.pc
END
! grep -r "$work" "$work/stage" || die "the staging folder is in what is installed"
make --silent uninstall "${staged[@]}"
[ -z "$(find "$work/stage" ! -type d)" ] || die "uninstall leaves files"

# In place.
make --silent install PREFIX="$work/prefix"
mkdir "$work/user"
cp crates/ffi/examples/example.h crates/ffi/examples/eventfd_loop.c "$work/user"
cd "$work/user"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
[ "$(pkg-config --modversion coalesce)" = "$version" ] || die "pkg-config says $(pkg-config --modversion coalesce)"
read -ra cflags <<< "$(pkg-config --cflags coalesce)"
read -ra shared <<< "$(pkg-config --libs coalesce)"
read -ra static <<< "$(pkg-config --libs --static coalesce)"
[ "${#static[@]}" -gt "${#shared[@]}" ] || die "pkg-config does not say what the static library needs"
compile=(cc -std=c99 -pthread "${cflags[@]}" eventfd_loop.c)

"${compile[@]}" "${shared[@]}" -o shared
needed=$(readelf --dynamic shared | sed -n 's/.*(NEEDED).*\[\(libcoalesce.*\)\]/\1/p')
[ "$needed" = "libcoalesce.so.${version%%.*}" ] || die "the program needs $needed"
LD_LIBRARY_PATH=$work/prefix/lib ./shared

rm "$work/prefix/lib/libcoalesce.so" # where both are, a linker takes the shared one
"${compile[@]}" "${static[@]}" -o static
! readelf --dynamic static | grep -q libcoalesce || die "the static program needs the shared library"
./static
if echo 'int main(void) { return 0; }' | cc -static -x c - -o empty 2> /dev/null; then
  "${compile[@]}" -static "${static[@]}" -o all-static
  ./all-static
else
  echo "SKIPPED: a program without shared libraries: no static C library"
fi
echo "check-install: $version, shared and static"
