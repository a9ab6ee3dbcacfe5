#!/usr/bin/env bash
# What libcoalesce promises to C: the header compiles by itself as C99 and as C++17, and a program that uses every exported
# function links with the bare-metal library although its panic handler cannot be linked: nothing in it panics.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-c-abi: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header=crates/ffi/include/coalesce.h

echo '#include "coalesce.h"' | tee "$work/header.c" > "$work/header.cpp"
warnings=(-Wall -Wextra -Wpedantic -Werror -I crates/ffi/include)
cc -std=c99 "${warnings[@]}" -c "$work/header.c" -o "$work/header.o"
c++ -std=c++17 "${warnings[@]}" -c "$work/header.cpp" -o "$work/header.o"

cargo rustc --quiet --locked --release --package coalesce-ffi --lib --crate-type staticlib --no-default-features \
  --features no-panic --target-dir target/c-abi
library=target/c-abi/release/libcoalesce.a
# Compiler's own members have names of their own; ours are C names.
mapfile -t exported < <(nm --plugin /dev/null --defined-only "$library" 2> /dev/null |
  sed -n 's/^[0-9a-f]* T \(\(vic\|cint\|ipi_gate\|nvme\|coalesce\)_.*\)$/\1/p' | sort -u)
[ "${#exported[@]}" -gt 30 ] || die "only ${#exported[@]} functions in $library"
for name in "${exported[@]}"; do
  grep -q "\b$name(" "$header" || die "$name is not in the header"
done
{
  printf '#include "coalesce.h"\nvoid *volatile all[] = {\n'
  printf '  (void *)%s,\n' "${exported[@]}"
  printf '};\nint main(void) { return all[0] == 0; }\n'
} > "$work/all.c"
cc -std=c99 -O2 -I crates/ffi/include "$work/all.c" "$library" -o "$work/all" 2> "$work/link" ||
  die "it does not link: $(grep -m 1 -E 'undefined|error' "$work/link")"
"$work/all"
echo "check-c-abi: ${#exported[@]} functions, none of them panics"
