#!/usr/bin/env bash
# The driver with hints in a real guest, on our NVMe disk.
#
#   guest.sh hints      what the requests of each system call carry, by the device's record: a table (docs/linux-hints.md)
#   guest.sh verify     data is right with out-of-order completions on and off, strict Barriers, and resets; golden traces
#   KERNEL, GUEST_SUITES   as for build.sh [6.1]
#   WIRE        where hints are, as the parameter cint_wire [cdw12:16]
#
# Needs target/release/coalesce-target.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/linux
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
job=${1:-}
case $job in hints | verify) ;; *) sed -n '4,5p' "$0" | cut -c3- >&2; exit 2 ;; esac
module=$("$here/build.sh" "${KERNEL:-6.1}")
tmp=$(mktemp -d)
pid=''
trap '[ -z "$pid" ] || kill "$pid" 2> /dev/null || true; rm -rf "$tmp"' EXIT

# Unpacked over the guest's own files: the module is loaded in the place of the kernel's.
mkdir -p "$tmp/root/cint" "$tmp/root/mods"
cp "$module" "${module%/*}/cint-replay.ko" "$tmp/root/mods"
cp "$here/guest/lib.sh" "$tmp/root/cint"
for program in examples/passthrough examples/priority guest/msync guest/batch; do
  cc -std=gnu11 -O2 -Wall -Wextra -Werror -static -o "$tmp/root/cint/${program##*/}" "linux/$program.c"
done
cargo rustc --quiet --locked --package coalesce-target --example nvme_hints -- -C target-feature=+crt-static
cp "$target/debug/examples/nvme_hints" "$tmp/root/cint"
(cd "$tmp/root" && find . | cpio --quiet -o -H newc -R 0:0) > "$tmp/initrd"

disk=(--memory 512M)
serve() { # POLICY QUEUES: with a record of all requests
  "$target/release/coalesce-target" serve --device nvme --socket "$tmp/nvme" "${disk[@]}" --queues "$2" --poll 0 \
    --policy "$1" --record "$tmp/record" --control "$tmp/control" 2> "$tmp/log" &
  pid=$!
  for _ in $(seq 50); do [ ! -S "$tmp/nvme" ] || return 0; sleep 0.1; done
  cat "$tmp/log" >&2
  exit 1
}
# The kernel that the module is for.
meta=linux-image-$(PATH=$PATH:/usr/sbin:/sbin modinfo -F vermagic "$module" | cut -d' ' -f1)
# A busy host fails the check of the timer that Linux makes at its start.
run() { APPEND="no_timer_check ${APPEND:-}" KERNEL_META=$meta INITRD=$tmp/initrd guest/run-guest.sh "$here/guest/$job.sh" "nvme:$tmp/nvme" "$@"; }

case $job in
  hints)
    # The device infers nothing: what it counts was on the wire.
    wire=${WIRE:-cdw12:16}
    bits=$wire
    [ "$wire" != latency ] || bits=none # it needs no bits
    serve "cint:hints=none,bits=$bits" 3 # one for each CPU, and a polled one
    run WIRE="$wire" > "$tmp/rows" || { cat "$tmp/rows"; exit 1; }
    kill "$pid"; wait "$pid" || true; pid=''
    "$here/guest/table.py" "$tmp/record" "$tmp/rows" | tee "$tmp/table"
    # The page's table is with the defaults, of kernel 6.1.
    [ "$wire ${KERNEL:-6.1}" != "cdw12:16 6.1" ] || grep '^|' docs/linux-hints.md | sed '/^| system call | read/,/^$/!d' |
      head -n "$(wc -l < "$tmp/table")" | diff - "$tmp/table" || { echo "guest.sh: docs/linux-hints.md has another table" >&2; exit 1; }
    ;;
  verify)
    # A file's requests complete one by one, and not in their order. Its last quarter has data; the rest are holes, which are
    # read sooner than a disk answers.
    truncate -s 192M "$tmp/disk"
    head -c 64M /dev/urandom >> "$tmp/disk"
    sync "$tmp/disk"
    disk=(--file "$tmp/disk" --direct)
    serve cint 1 # urgent and other completions in one
    run
    ;;
esac
