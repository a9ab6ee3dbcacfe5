#!/usr/bin/env bash
# The driver's tests that need no guest: the golden traces of the Rust consumer on module/cint.h, under sanitizers, and a
# build of the module. With a command line of its own: KERNEL=6.12 ./test.sh
set -euo pipefail
cd "$(dirname "$0")"
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-../target}")
mkdir -p "$target/linux"
cc -std=c11 -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all -I module \
  -o "$target/linux/replay" test/replay.c
"$target/linux/replay" ../vectors/consumer.txt
for program in examples/passthrough examples/priority guest/msync guest/batch; do
  cc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$target/linux/${program##*/}" "$program.c"
done
status=0
./build.sh "${KERNEL:-6.1}" || status=$?
# apt without such a kernel: another distribution, or no package lists.
if [ $status = 3 ] && [ -z "${REQUIRE_QEMU:-}" ]; then
  echo "SKIPPED: linux: apt has no source and headers of kernel ${KERNEL:-6.1}"
elif [ $status != 0 ]; then
  exit 1
fi
