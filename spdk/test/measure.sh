#!/usr/bin/env bash
# SPDK as it is, SPDK with its own coalescing, and with ours: measure.sh BUILD RPC_PY [STAGE...]
#
# Stages: null delay10 delay80 mixed queues; all of them by default. ROUNDS [3], SECONDS_EACH [1]. Medians of the rounds, in which
# the applications take turns: each polls all the time, on CPU 0; the client is on CPU 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 rpc_py=$2
shift 2
client=${CARGO_TARGET_DIR:-$here/../../target}/release/coalesce-target
work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null || true; wait 2> /dev/null; rm -rf "$work"' EXIT
export PYTHONPATH=$here/..${PYTHONPATH:+:$PYTHONPATH}
rpc() { "$rpc_py" -s "$work/rpc" --plugin coalesce_rpc "$@"; }
wait_for() { for _ in $(seq 200); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; echo "waited in vain: $*" >&2; exit 1; }

start() {
  "$build/$1" --no-huge -s 1536 --iova-mode va -u -m 0x1 -S "$work" -r "$work/rpc" > "$work/log" 2>&1 &
  pid=$! pids+=("$!")
  wait_for rpc spdk_get_version
  for bdev in null null10 null80; do rpc bdev_null_create "$bdev" 1024 512; done > /dev/null
  rpc bdev_delay_create -b null10 -d delay10 -r 10 -t 30 -w 10 -n 30 > /dev/null
  rpc bdev_delay_create -b null80 -d delay80 -r 80 -t 240 -w 80 -n 240 > /dev/null
  for bdev in null delay10 delay80; do
    rpc vhost_create_blk_controller "$bdev.c" "$bdev"
    rm -f "$work/$bdev"
    "$here/mem_slots.py" "$work/$bdev" "$work/$bdev.c" & pids+=("$!")
    wait_for test -S "$work/$bdev"
  done
}
stop() { sleep 0.5; kill "$pid"; wait "$pid" || true; }

# run WHO BDEV JOB OPTION...: a line "job<TAB>who<TAB>number..." for each of the client's jobs
run() {
  local who=$1 bdev=$2 job=$3
  shift 3
  taskset -c 1 timeout 60 "$client" bench --socket "$work/$bdev" --event-idx off --seconds "${SECONDS_EACH:-1}" --quiet --json "$@" |
    jq -r --arg job "$bdev, $job" --arg who "$who" '. as $all | .jobs[] | select(.queue == "all" or ($all.jobs | length) == 1) |
      [$job + (if .jobname == "async" then "" else ", " + .jobname end), $who, .iops, .clat_ns.percentile["50.000000"] / 1000,
       .clat_ns.percentile["99.000000"] / 1000, $all.interrupts / $all.elapsed_s, $all.ios_per_interrupt, ($all.cpu.usr + $all.cpu.sys) / $all.elapsed_s] | @tsv'
}

null() { for depth in 1 8 32 64; do run "$1" null "depth $depth" --depth "$depth"; done; run "$1" null "bursts of 64" --depth 64 --bursts 64:2ms; }
delay() {
  for depth in 1 8 32; do run "$1" "$2" "depth $depth" --depth "$depth"; done
  for rate in 20000 100000 300000; do run "$1" "$2" "$((rate / 1000)) K/s" --depth 256 --rate "$rate" --poisson; done
}
delay10() { delay "$1" delay10; }
delay80() { delay "$1" delay80; }
mixed() { run "$1" delay10 "sync beside 32" --job mixed --depth 32; }
queues() { for bdev in null delay10; do run "$1" "$bdev" "4 queues, depth 32" --queues 4 --depth 32; done; }

[ $# -gt 0 ] || set -- null delay10 delay80 mixed queues
for _ in $(seq "${ROUNDS:-3}"); do
  start spdk_tgt
  for stage; do "$stage" "SPDK"; done
  for bdev in null delay10 delay80; do rpc vhost_controller_set_coalescing "$bdev.c" 50 60000; done
  for stage; do "$stage" "SPDK, 50 us"; done
  stop
  start coalesce_spdk_tgt
  for policy in none vic cint auto; do
    for bdev in null delay10 delay80; do rpc coalesce_set_policy -c "$bdev.c" "$policy"; done
    for stage; do "$stage" "$policy"; done
  done
  stop
done > "$work/rows"
jq -Rrs 'def median: sort | .[(length - 1) / 2 | floor];
  def short: if . >= 100 then round else . * 100 | round / 100 end;
  ["job", "who", "IOPS", "p50_us", "p99_us", "interrupts/s", "requests/interrupt", "client_CPU"],
  ([split("\n")[] | select(. != "") | split("\t")] | group_by(.[0]) | .[] | group_by(.[1])[] | . as $runs
    | .[0][:2] + [range(2; 8) as $i | $runs | map(.[$i] | tonumber) | median | short]) | @tsv' "$work/rows" | column -t -s "$(printf '\t')"
