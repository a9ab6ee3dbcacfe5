#!/usr/bin/env bash
# Make a Rust compiler for bare metal from Debian's packages alone, unless it is there, and print its path.
#
#   bare-metal.sh [TARGET...]     default: thumbv7em-none-eabihf armv7r-none-eabihf riscv32imac-unknown-none-elf
#   BARE_METAL_DIR                where it is kept, 650 MB [bare-metal in cargo's target directory]
#
#   RUSTC=$(scripts/bare-metal.sh) cargo build --target thumbv7em-none-eabihf
#
# A target of WebAssembly, such as wasm32-unknown-unknown, and one of Linux get a standard library as well.
#
# For the tests, which must not depend on other downloads. Where "rustup target add TARGET" works you do not need it.
# Takes a minute. Nothing is installed, so it needs no root; it needs a C compiler. lld is beside it, as rust-lld.
#
# A core library must be of its compiler's very version, and Debian has the source of its own compiler's only (rustc-web,
# in the security updates of Debian 12): so rustc, cargo and lld come from there as well, and are unpacked.
set -euo pipefail
die() { printf 'bare-metal: %s\n' "$*" >&2; exit 1; }
say() { printf 'bare-metal: %s\n' "$*" >&2; }
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
[ $# -gt 0 ] || set -- thumbv7em-none-eabihf armv7r-none-eabihf riscv32imac-unknown-none-elf

dir=${BARE_METAL_DIR:-${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/bare-metal}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
log=$dir/log
rustlib=$dir/usr/lib/rustlib
exec 9> "$dir/lock"
flock 9 # one at a time

# Packages, with what they need that is not installed. The lists are its own, as those of the system may be missing or
# out of date, and only root may update them.
download() { # DIRECTORY
  local apt=(-qq -o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1" -o Debug::NoLocking=1 -o APT::Sandbox::User=root) llvm
  mkdir -p "$1/lists/partial" "$1/archives/partial"
  apt-get "${apt[@]}" update
  llvm=$(apt-cache "${apt[@]}" depends --recurse --important libstd-rust-web-dev | sed -n 's/^libllvm//p')
  apt-get "${apt[@]}" install --yes --download-only --reinstall --no-install-recommends \
    rustc-web libstd-rust-web-dev rust-web-src cargo-web "lld-$llvm"
}

# Of the sources, only the library's. The licences of what is in it are Debian's list.
unpack() { # PACKAGE...
  local package
  for package; do
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$dir" --no-wildcards-match-slash --exclude './usr/share/[!d]*' --exclude './usr/share/doc/*/[!c]*' \
        --exclude './usr/share/doc/*/changelog*' --exclude './usr/src/rustc-*/[!l]*'
  done
}

# A program that finds its libraries wherever the directory is moved to.
wrap() { # NAME PROGRAM [ARGUMENT...]
  cat > "$dir/bin/$1" << END
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
LD_LIBRARY_PATH=\$root/usr/lib/$(uname -m)-linux-gnu exec ${*:2} "\$@"
END
  chmod +x "$dir/bin/$1"
}

# The libraries, and what they need, from an empty crate. They are allowed what nightly compilers allow; bitcode lets
# firmware use link-time optimisation. The workspace begins where the sources are, too, and they are named from there: so the
# libraries are the same, wherever the directory is.
build() { # DIRECTORY LIBRARIES TARGET
  local crate=$1 libraries=$2 target=$3 lib=$rustlib/$3/lib
  mkdir -p "$crate/src"
  echo '#![no_std]' > "$crate/src/lib.rs"
  printf '[package]\nname = "empty"\nedition = "2024"\n' > "$crate/Cargo.toml"
  printf '[workspace]\nmembers = ["%s"]\nresolver = "3"\n[profile.release]\npanic = "abort"\n' "$(basename "$crate")" > "$dir/Cargo.toml"
  env --unset=RUSTC_WRAPPER RUSTC="$dir/bin/rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-C embed-bitcode=yes --remap-path-prefix=$dir=/rust" \
    "$dir/bin/cargo" build --release --offline -Z "build-std=$libraries" -Z build-std-features= --target "$target" \
    --config 'source.crates-io.replace-with = "debian"' \
    --config "source.debian.directory = \"$rustlib/src/rust/library/vendor\"" \
    --manifest-path "$crate/Cargo.toml" --target-dir "$crate/target"
  mkdir -p "$lib.new"
  cp "$crate/target/$target"/release/deps/*.rlib "$lib.new"
  rm "$lib.new"/libempty-*.rlib
  mv "$lib.new" "$lib"
}

# Its output is of interest only if it fails. In a shell of its own, as a function after "if" would not stop at its first
# failure.
step() { # MEANING FUNCTION [ARGUMENT...]
  local status
  set +e
  (set -e; "${@:2}") > "$log" 2>&1
  status=$?
  set -e
  [ "$status" = 0 ] || { tail -n 3 "$log" >&2; die "$1 failed, see $log"; }
}

if [ ! -x "$dir/bin/rustc" ]; then
  for tool in apt-get cc; do
    command -v "$tool" > /dev/null || die "no $tool: this needs Debian 12 and a C compiler"
  done
  rm -rf "${dir:?}/usr" "$dir/apt"
  say "downloading Debian's rustc"
  step "downloading rustc-web (is this Debian 12 with its security updates?)" download "$dir/apt"
  step "unpacking" unpack "$dir"/apt/archives/*.deb
  rm -r "$dir/apt"
  mkdir -p "$dir/bin" "$rustlib/$(uname -m)-unknown-linux-gnu/bin"
  wrap rust-lld "\"\$root\"/usr/lib/llvm-*/bin/lld"
  ln -s ../../../../../bin/rust-lld "$rustlib/$(uname -m)-unknown-linux-gnu/bin" # where rustc looks for it
  wrap cargo "\"\$root/usr/bin/cargo\""
  wrap rustc "\"\$root/usr/bin/rustc\"" --sysroot "\"\$root/usr\"" # the last one: it says that all is there
fi

provide() { # LIBRARIES TARGET...: those that are not there are built, one by one, so that none is lost if it is interrupted
  local libraries=$1 target
  shift
  for target; do
    [ ! -d "$rustlib/$target/lib" ] || continue
    say "building $libraries for $target"
    rm -rf "$dir/library"
    step "building $libraries" build "$dir/library" "$libraries" "$target"
    rm -r "$dir/library" "$dir/Cargo.toml" "$dir/Cargo.lock"
  done
}
core=() std=()
for target; do
  case $target in
    wasm* | *-linux-*) std+=("$target") ;;
    *) core+=("$target") ;;
  esac
done
provide core "${core[@]}"
provide std,panic_abort "${std[@]}"
echo "$dir/bin/rustc"
