#!/usr/bin/env bash
# Every C program of the repository as C99 and as C++17, run as it is, with the sanitizers, and under valgrind. Each fails
# by itself if an interrupt is lost, a count is wrong, or an error is none.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-examples: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target=${CARGO_TARGET_DIR:-target}
examples=crates/ffi/examples
tests=crates/ffi/tests/c

scripts/install.sh build
hosted=$target/release/libcoalesce.sealed.a
bare_metal=$(scripts/bare-library.sh)

while read -r name _; do
  [ "$name" = '#' ] || grep -q "\b$name(" $tests/misuse.c || die "$name is not called by misuse.c"
done < crates/ffi/symbols.txt

read -ra private < "$target/release/libcoalesce.private"

# Builds a program of one file, or of two for a board: the firmware is freestanding, and its library the one for devices.
build() { # NAME COMPILER...
  local name=$1 compile=("${@:2}" -Wall -Wextra -Wpedantic -Werror -I crates/ffi/include) source=$examples/$1.c
  [ "$name" != misuse ] || source=$tests/misuse.c
  if [ "$name" = bare_metal_irq ]; then
    "${compile[@]}" -ffreestanding -c "$source" -o "$work/$name.o"
    "${compile[@]}" -c "$tests/board.c" -o "$work/board.o"
    "${@:2}" -x none "$work/$name.o" "$work/board.o" "$bare_metal" -o "$work/$name"
  else
    "${compile[@]}" -pthread "$source" -x none "$hosted" "${private[@]}" -o "$work/$name"
  fi
}

names=(misuse)
for file in "$examples"/*.c; do names+=("$(basename "$file" .c)"); done
[ "${#names[@]}" -ge 9 ] || die "only ${names[*]}"
compilers=(gcc)
if command -v clang++ > /dev/null; then compilers+=(clang); fi
valgrind=(valgrind --quiet --fair-sched=yes --error-exitcode=1 --leak-check=full) # fair: some threads only spin
if ! command -v valgrind > /dev/null; then
  [ -z "${REQUIRE_QEMU:-}" ] || die "no valgrind"
  echo "SKIPPED: C programs under valgrind: no valgrind"
  valgrind=()
fi
sanitize=(-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=all)
{
  printf '#include <coalesce.h>\nvoid fail(void); void interrupt(void); void set_timer(uint64_t); void snippet(uint64_t, uint32_t);\n'
  # shellcheck disable=SC2016 # a fence of Markdown
  printf 'void snippet(uint64_t now, uint32_t in_flight) {\n%s\n}\n' "$(sed -n '/^```c$/,/^```$/{//!p}' README.md)"
} > "$work/readme.c"
runs=0
for c in "${compilers[@]}"; do
  case $c in gcc) cxx=g++ ;; clang) cxx=clang++ ;; esac
  for how in "$c -x c -std=c99" "$cxx -x c++ -std=c++17"; do
    read -ra compiler <<< "$how"
    "${compiler[@]}" -Wall -Wextra -Wpedantic -Werror -I crates/ffi/include -c "$work/readme.c" -o /dev/null || die "README's C: $how"
  done
  for name in "${names[@]}"; do
    for how in "$c -x c -std=c99" "$cxx -x c++ -std=c++17"; do
      read -ra compiler <<< "$how"
      build "$name" "${compiler[@]}" -O1 -g "${sanitize[@]}"
      "$work/$name" > /dev/null || die "$name fails: $how ${sanitize[*]}"
      build "$name" "${compiler[@]}" -O2 -gdwarf-4 # which every valgrind reads
      "$work/$name" | grep "^$name: " || die "$name fails: $how"
      runs=$((runs + 2))
    done
    "${valgrind[@]}" "$work/$name" > /dev/null || die "$name fails under valgrind"
    runs=$((runs + 1))
  done
done
# The firmware on a real processor: nothing is missing but a board.
if command -v arm-none-eabi-gcc > /dev/null && library=$(scripts/bare-library.sh thumbv7em-none-eabihf); then
  arm-none-eabi-gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -O2 -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard \
    -ffreestanding -nostdlib -I crates/ffi/include "$examples/bare_metal_irq.c" "$library" -Wl,--gc-sections \
    -Wl,--entry=reset_handler -Wl,--undefined=flash_handler -Wl,--undefined=timer_handler -Wl,--defsym=board=0x40000000 \
    -Wl,-z,noexecstack -o "$work/firmware" || die "bare_metal_irq does not link for Cortex-M4"
else
  echo "SKIPPED: bare_metal_irq for Cortex-M4: no compilers"
fi
echo "check-examples: $runs runs of ${#names[@]} programs"
