#!/usr/bin/env bash
# SPDK as it is, SPDK with its own coalescing, and with ours: measure.sh BUILD RPC_PY [STAGE...]
#
# Stages: null delay10 delay80 mixed queues; all of them by default. ROUNDS [5], each with a seed of its own; SECONDS_EACH [0.5],
# after 2 s of warm-up, as `auto` learns and a CPU is faster at first; ROWS=FILE keeps every run's numbers. What is printed are
# medians; the spread of queues is how far one of them is from their mean, at most. The applications poll all the time: one has
# CPU 0 and the other is stopped, run by run; the client is on CPU 1.
set -euo pipefail
taskset -pc 1 $$ > /dev/null
here=$(cd "$(dirname "$0")" && pwd)
build=$1 rpc_py=$2
shift 2
each=${SECONDS_EACH:-0.5}
client=${CARGO_TARGET_DIR:-$here/../../target}/release/coalesce-bench
work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null || true; wait 2> /dev/null; rm -rf "$work"' EXIT
export PYTHONPATH=$here/..${PYTHONPATH:+:$PYTHONPATH}
rpc() { "$rpc_py" -s "$work/$app.rpc" --plugin coalesce_rpc "$@"; }
wait_for() { for _ in $(seq 200); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; echo "waited in vain: $*" >&2; exit 1; }

declare -A pid
# start APPLICATION, which is then the one that runs
start() {
  app=$1
  mkdir "$work/$app"
  taskset -c 0,1 "$build/$app" --no-huge -s 1536 --iova-mode va -u -m 0x1 --disable-cpumask-locks -S "$work/$app" -r "$work/$app.rpc" > "$work/$app.log" 2>&1 &
  pid[$app]=$! pids+=("$!")
  wait_for rpc spdk_get_version
  for bdev in null null10 null80; do rpc bdev_null_create "$bdev" 1024 512; done > /dev/null
  rpc bdev_delay_create -b null10 -d delay10 -r 10 -t 30 -w 10 -n 30 > /dev/null
  rpc bdev_delay_create -b null80 -d delay80 -r 80 -t 240 -w 80 -n 240 > /dev/null
  for bdev in null delay10 delay80; do rpc vhost_create_blk_controller "$bdev.c" "$bdev"; done
}
# An application as it is to be measured: SPDK as it is, its own coalescing, or a policy.
be() {
  local delay=0 bdev=$2
  case $1 in SPDK) app=spdk_tgt ;; "SPDK, 50 us") app=spdk_tgt delay=50 ;; *) app=coalesce_spdk_tgt ;; esac
  for other in "${!pid[@]}"; do [ "$other" = "$app" ] || kill -STOP "${pid[$other]}"; done
  kill -CONT "${pid[$app]}"
  if [ "$app" = spdk_tgt ]; then
    rpc vhost_controller_set_coalescing "$bdev.c" "$delay" 60000
  else
    rpc coalesce_set_policy -c "$bdev.c" "$1"
  fi
}

# CPU time that the application has had, in ms
used() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print int(($12 + $13) * 1000 / hz) }' "/proc/${pid[$app]}/stat"; }
# bench BDEV OPTION...: the client; again if somebody else took more than 5 % of the application's CPU meanwhile
bench() {
  local bdev=$1 from wall try
  shift
  for try in 1 2 3 4 5; do
    from=$(used) wall=$(date +%s%3N)
    taskset -c 1 timeout 60 "$client" --socket "$work/$app/$bdev.c" --event-idx off --seconds "$each" \
      --warmup 2 --seed "$round" --quiet --json "$@" > "$work/result"
    [ $((($(used) - from) * 100)) -lt $((($(date +%s%3N) - wall) * 95)) ] || return 0
    printf '%s, %s: disturbed (%s)\n' "$app" "$bdev" "$try" >&2
  done
}

# run BDEV JOB OPTION...: a line "job<TAB>who<TAB>number..." of everybody
run() {
  local bdev=$1 job=$2 who
  shift 2
  for who in SPDK "SPDK, 50 us" none vic cint auto; do
    be "$who" "$bdev"
    bench "$bdev" "$@"
    jq -r --arg job "$bdev, $job" --arg who "$who" '. as $all | .jobs[] | select(.queue == "all") |
        [$job + (if .jobname == "async" then "" else ", " + .jobname end), $who, .iops, .clat_ns.percentile["50.000000"] / 1000,
         .clat_ns.percentile["99.000000"] / 1000, $all.interrupts / $all.elapsed_s, $all.ios_per_interrupt,
         ($all.cpu.usr + $all.cpu.sys) / $all.elapsed_s,
         ([$all.queues[].total_ios] | add / length as $mean | map(100 * (. / $mean - 1) | fabs) | max)] | @tsv' "$work/result"
  done
}

null() {
  for depth in 1 8 32 64; do run null "depth $depth" --depth "$depth"; done
  run null "bursts of 64" --depth 64 --bursts 64:2ms
}
delay() {
  for depth in 1 8 32; do run "$1" "depth $depth" --depth "$depth"; done
  for rate in 20 100 300; do run "$1" "$rate K/s" --depth 256 --rate "${rate}000" --poisson; done
}
delay10() { delay delay10; }
delay80() { delay delay80; }
mixed() { run delay10 "sync beside 32" --job mixed --depth 32; }
queues() { for bdev in null delay10; do run "$bdev" "4 queues, depth 32" --queues 4 --depth 32; done; }

[ $# -gt 0 ] || set -- null delay10 delay80 mixed queues
start spdk_tgt
start coalesce_spdk_tgt
rows=${ROWS:-$work/rows}
for round in $(seq "${ROUNDS:-5}"); do
  for stage; do "$stage"; done
done > "$rows"
jq -Rrs 'def median: sort | .[(length - 1) / 2 | floor];
  def short: if . >= 100 then round else . * 100 | round / 100 end;
  ["job", "who", "IOPS", "p50_us", "p99_us", "interrupts/s", "requests/interrupt", "client_CPU", "queue_spread_%"],
  ([split("\n")[] | select(. != "") | split("\t")] | group_by(.[0]) | .[] | group_by(.[1])[] | . as $runs
    | .[0][:2] + [range(2; 9) as $i | $runs | map(.[$i] | tonumber) | median | short]) | @tsv' "$rows" | column -t -s "$(printf '\t')"
