#!/usr/bin/env bash
# Build libcoalesce without std for TARGET, and print the path of the library.
#
#   bare-library.sh [TARGET]     default: x86_64-unknown-linux-gnu
#
# Beside it coalesce.o is the library's own code, without the compiler's that goes with it.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
target=${1:-x86_64-unknown-linux-gnu}

build=${CARGO_TARGET_DIR:-target}/c-abi
# Bare metal: one place with the compiler, whose core library the crates are built for.
if [[ $target == *-none* ]]; then
  RUSTC=$(scripts/bare-metal.sh "$target")
  export RUSTC
  build=${RUSTC%/bin/rustc}/build
fi
cargo rustc --quiet --locked --release --package libcoalesce --lib --crate-type staticlib --no-default-features \
  --features no-panic --target "$target" --target-dir "$build"
library=$build/$target/release/libcoalesce.a
ar p "$library" "$(ar t "$library" | grep '^coalesce-')" > "${library%/*}/coalesce.o"
echo "$library"
