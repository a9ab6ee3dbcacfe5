#!/usr/bin/env bash
# Both firmwares as programs of this machine (board/host.c): the C one under sanitizers, the Rust one with its debug
# assertions. Their decisions must be the same, whatever time their code takes.
#
#   host.sh [RUNS]     the number of runs in which time passes at random, besides the one where it passes in sleep alone [8]
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-8}
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
work=$target/firmware-host
mkdir -p "$work"

scripts/built.sh
"$target/debug/examples/pack" "$work/vectors.bin" vectors/*.jsonl
cargo rustc --quiet --locked --release --package libcoalesce --lib --crate-type staticlib
cargo build --quiet --locked --manifest-path firmware-demo/rust/Cargo.toml --target-dir "$work/cargo"

build() { # NAME ARGUMENT...
  cc -std=c99 -D_POSIX_C_SOURCE=200809L -g -O1 -Wall -Wextra -Wpedantic -Werror \
    -I firmware-demo/board -I firmware-demo/lab -I crates/ffi/include \
    -DVECTORS="\"\\\"$work/vectors.bin\\\"\"" -DSLACK_US=60u \
    -o "$work/$1" "${@:2}"
}
sanitize=(-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=all)
in_c=("$target/release/libcoalesce.a" -ldl -lm -lpthread)
in_rust=$work/cargo/debug/libfirmware.a
build c "${sanitize[@]}" firmware-demo/board/host.c firmware-demo/lab/*.c firmware-demo/c/*.c "${in_c[@]}"
build rust firmware-demo/board/host.c firmware-demo/lab/*.c "$in_rust"
build c-steps "${sanitize[@]}" firmware-demo/board/steps.c firmware-demo/c/{aggregation,coalescing,command,controller,features,queue}.c "${in_c[@]}"
build rust-steps firmware-demo/board/steps.c "$in_rust" -ldl -lm -lpthread
"$work/c-steps"
"$work/rust-steps"

run() { # FIRMWARE RUN
  local directory=$work/$1-$2
  mkdir -p "$directory"
  (cd "$directory" && SEED=$2 "$work/$1" > table) || { cat "$directory/table"; echo "host: $1 failed, SEED=$2" >&2; exit 1; }
  cmp "$directory/trace.txt" "$work/c-0/trace.txt" || { echo "host: $1 decides otherwise, SEED=$2" >&2; exit 1; }
}
for seed in $(seq 0 "$runs"); do
  run c "$seed"
  run rust "$seed"
done
cat "$work/c-0/table"
echo "host: $((2 * runs + 2)) runs, $(grep -vc '^#' "$work/c-0/trace.txt") decisions each, all the same"
