#!/usr/bin/env bash
# Build the simulator for the playground of the site, as WebAssembly behind gzip, and print where it is.
#
#   play.sh
#   play.sh --compiler     only see to the compiler, and print it
#
# With the installed compiler if it has the target (rustup target add wasm32-unknown-unknown), otherwise with Debian's.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
dir=${CARGO_TARGET_DIR:-target}/play
if [ ! -d "$("${RUSTC:-rustc}" --print sysroot)/lib/rustlib/$target/lib" ]; then
  RUSTC=$(scripts/bare-metal.sh "$target")
  export RUSTC
fi
[ "${1:-}" != --compiler ] || { echo "${RUSTC:-rustc}"; exit; }
cargo build --quiet --locked --profile play --package coalesce-play --lib --target "$target" --target-dir "$dir"
gzip --best --no-name --stdout "$dir/$target/play/coalesce_play.wasm" > "$dir/coalesce_play.wasm.gz"
echo "$dir/coalesce_play.wasm.gz"
