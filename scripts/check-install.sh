#!/usr/bin/env bash
# "make install" as a packager and a user have it: a program is built in an empty folder with what pkg-config says, once
# with the shared and once with the static library, by CMake and by Meson, and runs; the static library lies beside another one
# in Rust; "make uninstall" leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-install: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
[ -e "docs/release-$version.md" ] || die "there is no docs/release-$version.md, the text of the release"
! grep -on 'coalesce-[0-9][0-9.]*-' docs/without-rust.md | grep -v -- "coalesce-$version-" || die "docs/without-rust.md has another version"

# Staged, with a library folder as Debian's.
staged=(DESTDIR="$work/stage" PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu)
make --silent install "${staged[@]}"
(cd "$work/stage" && find . ! -type d | sort) > "$work/files"
diff "$work/files" - <<END || die "other files are installed than should be"
./usr/include/coalesce.h
./usr/lib/x86_64-linux-gnu/cmake/coalesce/coalesce-config-version.cmake
./usr/lib/x86_64-linux-gnu/cmake/coalesce/coalesce-config.cmake
./usr/lib/x86_64-linux-gnu/libcoalesce.a
./usr/lib/x86_64-linux-gnu/libcoalesce.so
./usr/lib/x86_64-linux-gnu/libcoalesce.so.${version%%.*}
./usr/lib/x86_64-linux-gnu/libcoalesce.so.$version
./usr/lib/x86_64-linux-gnu/pkgconfig/coalesce.pc
END
! grep -r "$work" "$work/stage" || die "the staging folder is in what is installed"
touch "$work/stage/usr/lib/x86_64-linux-gnu/libcoalesce.so.${version%%.*}.0.0-before"
make --silent uninstall "${staged[@]}"
[ -z "$(find "$work/stage" ! -type d)" ] || die "uninstall leaves files"
for prefix in '/opt/R&D' '/opt/my apps' out ''; do # the last: a variable of the caller's that is not set
  for script in install install-target; do
    ! DESTDIR="$work/refused" PREFIX="$prefix" scripts/$script.sh install 2> "$work/error" || die "$script: PREFIX=$prefix is not refused"
    grep -q "^$script: $prefix: PREFIX" "$work/error" || die "$script: PREFIX=$prefix: $(cat "$work/error")"
  done
done

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

# The same by what others build with, with either library.
cat > CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(coalesce 0.1 CONFIG REQUIRED)
foreach(library coalesce static)
  add_executable(${library} eventfd_loop.c)
  target_link_libraries(${library} coalesce::${library})
endforeach()
END
cat > meson.build << 'END'
project('user', 'c', default_options: ['c_std=c99'])
executable('coalesce', 'eventfd_loop.c', dependencies: dependency('coalesce', version: '>=0.1'))
executable('static', 'eventfd_loop.c', dependencies: dependency('coalesce', static: true))
END
with() { # TOOL: what it built in its folder runs, and the one program needs the shared library, the other does not
  LD_LIBRARY_PATH=$work/prefix/lib "$1/coalesce" > /dev/null || die "the program that $1 built does not run"
  "$1/static" > /dev/null || die "the static program that $1 built does not run"
  [ "$(grep -c libcoalesce <(readelf --dynamic "$1/coalesce" "$1/static"))" = 1 ] || die "$1 linked the wrong library"
}
if command -v cmake > /dev/null; then
  { cmake -S . -B cmake -D CMAKE_PREFIX_PATH="$work/prefix" && cmake --build cmake; } > "$work/out" 2>&1 ||
    { cat "$work/out" >&2; die "CMake"; }
  with cmake
  sed -i 's/coalesce 0.1/coalesce 1.0/' CMakeLists.txt
  ! cmake -S . -B later -D CMAKE_PREFIX_PATH="$work/prefix" > "$work/out" 2>&1 || die "CMake takes $version for 1.0"
else
  echo "SKIPPED: a program built by CMake: no cmake"
fi
if command -v meson > /dev/null; then
  { meson setup meson && meson compile -C meson; } > "$work/out" 2>&1 || { cat "$work/out" >&2; die "Meson"; }
  with meson
else
  echo "SKIPPED: a program built by Meson: no meson"
fi

rm "$work/prefix/lib/libcoalesce.so" # where both are, a linker takes the shared one
"${compile[@]}" "${static[@]}" -o static
! readelf --dynamic static | grep -q libcoalesce || die "the static program needs the shared library"
./static
cat > other.rs << 'END'
#[unsafe(no_mangle)]
pub extern "C" fn other() -> u32 {
    std::panic::catch_unwind(|| format!("{:?}", std::env::args().next()).parse::<u32>().unwrap()).map_or(7, |n| n)
}
END
rustc --edition 2024 --crate-type staticlib -O other.rs
sed 's/^int main(void)$/unsigned other(void); int main(void)/; s/^    return 0;$/    return other() - 7;/' eventfd_loop.c > beside.c
grep -q 'return other' beside.c || die "eventfd_loop.c has no main that returns 0"
"${compile[@]/eventfd_loop.c/beside.c}" "${static[@]}" libother.a "${static[@]}" -o beside 2> "$work/out" ||
  { grep -m 3 -E 'multiple|undefined|discarded' "$work/out" >&2; die "it does not link beside another library in Rust"; }
./beside 2> /dev/null || die "a program with another library in Rust fails"
if echo 'int main(void) { return 0; }' | cc -static -x c - -o empty 2> /dev/null; then
  "${compile[@]}" -static "${static[@]}" -o all-static
  ./all-static
else
  echo "SKIPPED: a program without shared libraries: no static C library"
fi
echo "check-install: $version, shared and static, by pkg-config, CMake and Meson, and beside another library in Rust"
