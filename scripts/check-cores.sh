#!/usr/bin/env bash
# What the cores promise, looked up in their sources and their machine code:
# no dependency but the vocabulary they share, no std, no unsafe, no way to panic, no float, and no call out but to memcpy
# and, for the text of an error, core::fmt.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-cores: %s\n' "$*" >&2; exit 1; }

for crate in coalesce-decision vic-core cint-core budget-core; do
  for attribute in '#![no_std]' '#![forbid(unsafe_code)]'; do
    grep -qFx "$attribute" "crates/$crate/src/lib.rs" || die "$crate: lib.rs has no $attribute"
  done
  ! grep -rnE 'extern crate|\b(f32|f64)\b' "crates/$crate/src" | grep -v 'extern crate alloc;' || die "$crate: see above"
  tree=$(cargo tree --locked --package "$crate" --edges normal,build --prefix none)
  others=$(grep -vE "^($crate|coalesce-decision) v" <<< "$tree") && die "$crate has dependencies: $others"
done

# Machine code, which link-time optimisation would put off: of each crate, and of what is inlined into its callers.
build=target/cores
for crate in vic cint budget; do
  CARGO_PROFILE_RELEASE_LTO=off cargo build --quiet --locked --release --package $crate-core --lib --target-dir $build
  # By hand, as for an example Cargo would build what the tests need.
  rustc --edition 2024 --crate-type rlib -C opt-level=3 -C codegen-units=1 -C embed-bitcode=no -C panic=abort --crate-name ${crate}_machine_code \
    --extern ${crate}_core=$build/release/lib${crate}_core.rlib -L dependency=$build/release/deps --out-dir $build \
    crates/$crate-core/probes/machine_code.rs
  libraries=("$build/release/deps/libcoalesce_decision-"*.rlib "$build/release/lib${crate}_core.rlib" "$build/lib${crate}_machine_code.rlib")
  defined=$(nm --demangle --defined-only "${libraries[@]}" 2> /dev/null | sed -n 's/^[0-9a-f]* [TtDdRrVWw] //p' | sort -u)
  called=$(nm --demangle --undefined-only "${libraries[@]}" 2> /dev/null | sed -n 's/^ *U //p' | sort -u)
  grep -q '_machine_code::on_completion$' <<< "$defined" || die "$crate-core: on_completion is not there to look at"
  foreign=$(comm -13 <(echo "$defined") <(echo "$called") | grep -vE '^mem(cpy|set|move)$|core::fmt::|^$' || true)
  [ -z "$foreign" ] || die "$crate-core calls: $foreign"
  echo "check-cores: $crate-core: $(wc -l <<< "$defined") symbols, no call out"
done
