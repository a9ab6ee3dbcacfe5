#!/usr/bin/env bash
# The measurements of docs/diary.md, one table each. Every comparison is side by side: in turns, on the same machine.
#
#   measure.sh [STAGE...]   stages: guest turns mixed daemon soak properties; all of them by default (about 20 minutes)
#
# ROUNDS=N rounds of each comparison [5]; SECONDS_EACH=S of each run [2]; IMAGES=DIR for disk images [a temporary one].
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5}
each=${SECONDS_EACH:-2}
target=target/release/coalesce-target
work=$(mktemp -d)
images=${IMAGES:-$work}
trap 'jobs -p | xargs -r kill 2> /dev/null; wait; rm -rf "$work"; rm -f "$images"/coalesce-[ab].img' EXIT

for tool in jq qemu-storage-daemon; do
  command -v "$tool" > /dev/null || { echo "measure.sh needs $tool (Debian: jq, qemu-system-common)" >&2; exit 1; }
done
cargo build --quiet --locked --release --package coalesce-target --package coalesce-demo

# Makes a disk image of data that no file system can leave out.
image() { head -c 256M /dev/urandom > "$1"; }

# Waits for a socket.
wait_for() { for _ in $(seq 200); do [ -S "$1" ] && return; sleep 0.05; done; echo "no socket $1" >&2; exit 1; }

# Lines "row<TAB>column<TAB>number..." to medians: row, column, and the median of each number.
medians() {
  jq -Rrs --arg names "$*" '
    def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    def short: if . >= 100 then round else . * 1000 | round / 1000 end;
    [split("\n")[] | select(. != "") | split("\t")] | (["", ""] + ($names | split(" "))),
    (group_by(.[:2])[] | . as $runs | .[0][:2] + [range(2; .[0] | length) as $i
      | $runs | map(.[$i] | tonumber) | median | short]) | @tsv' | column -t -s "$(printf '\t')"
}

# Real guest, every job of the demonstration, EVENT_IDX on. First through the page cache, which answers as fast as a fast drive,
# then what is behind it.
guest() {
  for direct in '' --direct; do
    target/release/coalesce-demo --no-native --no-nvme --policies none,auto --seconds "$((6 * rounds * each))" \
      --jobs depth1,depth8,depth32,mixed,batch4,fsync,sqlite --image-dir "$images" $direct --out "$work/report.html" --json "$work/report.json"
  done
}

# The same disk under one policy after the other, at depth 1 and 32: what is compared differs in nothing else.
turns() {
  local direct on_step
  image "$images/coalesce-a.img"
  for direct in '' --direct; do
    "$target" serve --socket "$work/a" --file "$images/coalesce-a.img" --control "$work/control" $direct 2> /dev/null &
    wait_for "$work/control"
    on_step="set_policy() { $PWD/$target call --control $work/control set_policy '{\"ctrlr\":\"a\",\"policy\":\"'\$1'\"}' > /dev/null; }; set_policy"
    ON_STEP=$on_step guest/run-guest.sh turns "$work/a" TURNS=none,auto ROUNDS="$rounds" RUNTIME="$each" > "$work/lines"
    sed -n 's/^RESULT //p' "$work/lines" | jq -r --arg how "${direct:---file}" '(.job | split("-")) as [$depth, $policy]
      | ["\($how), \($depth)", $policy, .irqs_per_io, .iops, .lat_us_p50] | @tsv'
    kill %%; wait %% || true
  done | medians interrupts/IO IOPS p50_us
}

# One synchronous requester beside one with 32 in flight, on one queue, EVENT_IDX off: the device alone decides.
mixed() {
  image "$images/coalesce-a.img"
  "$target" serve --socket "$work/a" --file "$images/coalesce-a.img" --direct --control "$work/control" 2> /dev/null &
  wait_for "$work/control"
  for mark in rt none; do
    for _ in $(seq "$rounds"); do
      for policy in none vic cint auto; do
        "$target" call --control "$work/control" set_policy "{\"ctrlr\":\"a\",\"policy\":\"$policy\"}" > /dev/null
        "$target" bench --socket "$work/a" --job mixed --sync-ioprio "$mark" --event-idx off --seconds "$each" --quiet \
          --json | jq -r --arg row "ioprio $mark" --arg policy "$policy" '. as $all | .jobs
            | map(select(.queue == "all")) | (map(select(.jobname == "sync"))[0]) as $sync
            | (map(select(.jobname == "async"))[0]) as $async
            | [$row, $policy, $all.interrupts_per_io, $sync.clat_ns.percentile["50.000000"] / 1000,
               $sync.clat_ns.percentile["99.000000"] / 1000, $sync.iops, $async.iops] | @tsv'
      done
    done
  done | medians interrupts/IO sync_p50_us sync_p99_us sync_IOPS async_IOPS
  kill %%
}

# The same client on the same kind of file: QEMU's own daemon, and this target with its default policy.
daemon() {
  local cache how ours running
  image "$images/coalesce-a.img"
  cp "$images/coalesce-a.img" "$images/coalesce-b.img"
  for cache in off on; do
    if [ "$cache" = on ]; then how=io_uring ours=(--direct); else how=threads ours=(); fi
    qemu-storage-daemon --blockdev "driver=file,node-name=b,filename=$images/coalesce-b.img,cache.direct=$cache,aio=$how" \
      --export "type=vhost-user-blk,id=b,node-name=b,addr.type=unix,addr.path=$work/b,writable=on,num-queues=1" &
    "$target" serve --socket "$work/a" --file "$images/coalesce-a.img" "${ours[@]}" 2> /dev/null &
    wait_for "$work/a"; wait_for "$work/b"
    for depth in 1 32; do
      for event_idx in on off; do
        for _ in $(seq "$rounds"); do
          for who in b:qemu-storage-daemon a:coalesce-target; do
            "$target" bench --socket "$work/${who%%:*}" --depth "$depth" --event-idx "$event_idx" --seconds "$each" \
              --quiet --json | jq -r --arg row "direct $cache, depth $depth, event_idx $event_idx" --arg who "${who#*:}" '
                [$row, $who, .interrupts_per_io, .jobs[0].iops, .jobs[0].clat_ns.percentile["50.000000"] / 1000] | @tsv'
          done
        done
      done
    done
    mapfile -t running < <(jobs -p)
    kill "${running[@]}"; wait
    rm -f "$work/a" "$work/b"
  done | medians interrupts/IO IOPS p50_us
}

# Five minutes of random writes with flushes in the guest, verified, while policies change and the target dies once.
soak() {
  COALESCE_SOAK_SECONDS=300 REQUIRE_QEMU=1 cargo test --quiet --locked --release --package coalesce-target --test guest \
    nothing_is_lost -- --nocapture
}

# Ten million random operations, and more.
properties() {
  POLICY_TEST_TIMES=10 cargo test --locked --release --package vic-core --package cint-core --package coalesce-policy
}

[ $# -gt 0 ] || set -- guest turns mixed daemon soak properties
echo "$(date -u '+%Y-%m-%d %H:%M UTC'), $(git rev-parse --short=12 HEAD), Linux $(uname -r), $(nproc) CPUs:" \
  "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
for stage; do
  printf '\n== %s\n' "$stage"
  "$stage"
done
