#!/usr/bin/env bash
# What libcoalesce promises to C: the header compiles by itself as C89 and as C++11; each name in it begins with coalesce_;
# the shared library exports what symbols.txt lists; and a program that uses every function links with the bare-metal library
# although its panic handler cannot be linked: nothing in it panics.
#
# UPDATE=1 adds new functions to symbols.txt. One that was released is never taken off.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-c-abi: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target=${CARGO_TARGET_DIR:-target}
header=crates/ffi/include/coalesce.h
symbols=crates/ffi/symbols.txt
listed() { sed '/^#/d; s/ .*//' "$symbols"; }

# The header, and a use of each constant in it.
{
  echo '#include "coalesce.h"'
  sed -n 's/^#define \(COALESCE_[A-Z0-9_]*\) \([-(0-9]\|UINT\).*/char size_of_\1[sizeof(\1)];/p' "$header"
  echo 'extern const coalesce_mark none, urgent;'
  echo 'const coalesce_mark none = COALESCE_MARK_NONE, urgent = COALESCE_MARK_OF(COALESCE_HINT_URGENT);'
} | tee "$work/header.c" > "$work/header.cpp"
[ "$(grep -c size_of_ "$work/header.c")" -gt 90 ] || die "only $(grep -c size_of_ "$work/header.c") constants"
warnings=(-Wall -Wextra -Wpedantic -Werror -I crates/ffi/include)
for standard in c89 c99 c11; do cc -std=$standard "${warnings[@]}" -c "$work/header.c" -o "$work/header.o"; done
for standard in c++11 c++17; do c++ -std=$standard "${warnings[@]}" -c "$work/header.cpp" -o "$work/header.o"; done
# The compiler warns of a decision that is dropped.
printf '#include "coalesce.h"\nvoid drop(coalesce_vic_state *s) { coalesce_vic_flush(s, 1); }\n' > "$work/drop.c"
! cc -std=c99 "${warnings[@]}" -c "$work/drop.c" -o "$work/drop.o" 2> /dev/null || die "a decision may be dropped without a warning"

# Of the macros, the types, and the functions, which are those of symbols.txt.
stray=$({ sed -n 's/^#define \([A-Za-z0-9_]*\).*/\1/p; s/^} \(.*\);$/\1/p' "$header"; listed; } | grep -vxE 'coalesce_.*|COALESCE_.*' || true)
[ -z "$stray" ] || die "names without our prefix: ${stray//$'\n'/ }"

scripts/install.sh build
nm --dynamic --defined-only "$target/release/libcoalesce.so" | sed 's/.* //' | LC_ALL=C sort > "$work/exported"
if [ -n "${UPDATE:-}" ]; then
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
  new=$(listed | LC_ALL=C comm -13 - "$work/exported" | sed "s/$/ $version/")
  { sed -n '/^#/p' "$symbols"; { sed '/^#/d' "$symbols"; echo "$new"; } | sed '/^$/d' | LC_ALL=C sort; } > "$work/symbols"
  cp "$work/symbols" "$symbols"
fi
listed | diff - "$work/exported" ||
  die "symbols.txt (<) and the shared library (>) differ: UPDATE=1 adds new functions, released ones stay"

cargo rustc --quiet --locked --release --package libcoalesce --lib --crate-type staticlib --no-default-features \
  --features no-panic --target-dir "$target/c-abi"
library=$target/c-abi/release/libcoalesce.a
# Compiler's own members have names of their own; ours are C names.
mapfile -t exported < <(nm --plugin /dev/null --defined-only "$library" 2> /dev/null |
  sed -n 's/^[0-9a-f]* T \(coalesce_.*\)$/\1/p' | sort -u)
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
