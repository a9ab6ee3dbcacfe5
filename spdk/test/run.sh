#!/usr/bin/env bash
# Tests coalesce_spdk_tgt: run.sh COALESCE_SPDK_TGT RPC_PY [CASE...]
#
# RPC_PY: SPDK's rpc.py, or the spdk-rpc that it installs. No hugepages, no root. Cases: see the end; all of them by default.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
app=$1 rpc_py=$2
shift 2
client=${CARGO_TARGET_DIR:-$root/target}/release/coalesce-bench
work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null || true; wait; rm -rf "$work"' EXIT
export PYTHONPATH=$here/..${PYTHONPATH:+:$PYTHONPATH}

skip() { printf 'SKIPPED: spdk, %s\n' "$*"; outcome=skipped; }
fail() { printf 'FAILED: %s\n' "$*" >&2; tail -n 20 "$work/log" >&2; exit 1; }
rpc() { "$rpc_py" -s "$work/rpc" --plugin coalesce_rpc "$@"; }
expect() { [ "$2" = "$3" ] || fail "$1: expected $3, got $2"; }

# start [OPTION...]: starts the application. controller NAME BDEV: creates a vhost-blk controller.
start() {
  "$app" --no-huge -s 1536 --iova-mode va -u -m 0x1 --disable-cpumask-locks -S "$work" -r "$work/rpc" "$@" > "$work/log" 2>&1 &
  pid=$! pids+=("$!")
  for _ in $(seq 200); do rpc spdk_get_version > "$work/answer" 2>&1 && return; kill -0 "$pid" || break; sleep 0.1; done
  fail "$app does not answer: $(tail -n 1 "$work/answer")"
}
# SPDK hangs if a connection closes while it ends, so clients are gone by then.
stop() {
  kill "$pid"
  for _ in $(seq 200); do kill -0 "$pid" 2> /dev/null || { wait "$pid"; return; }; sleep 0.1; done
  fail "it does not end"
}
controller() { rpc vhost_create_blk_controller "$1" "$2"; }
bench() { local name=$1; shift; exec timeout 60 "$client" --socket "$work/$name" --quiet --json "$@"; }
# The sums of the statistics of a controller's queues, as one object.
stats() {
  rpc coalesce_get_stats -c "$1" | jq -c '.[0].queues | {queues: length, interrupts: (map(.interrupts) | add),
    completions: (map(.completions) | add), owed: (map(.owed) | add), held: (map(.held) | add)}'
}
bdevs() {
  rpc bdev_null_create null0 1024 512 > /dev/null
  rpc bdev_malloc_create -b malloc0 128 512 > /dev/null
  rpc bdev_malloc_create -b malloc1 16 512 > /dev/null
  rpc bdev_delay_create -b malloc1 -d slow0 -r 80 -t 200 -w 80 -n 200 > /dev/null
}

# Under every policy: the statistics agree with the client's count of its eventfd, every request completes, nothing stays held.
# SPDK sends an interrupt without a completion when a queue starts ("owed"), which the client may or may not count.
counts() {
  local many=200000
  [ $# = 0 ] || many=2000 # SPDK loses kicks in interrupt mode: README, Limits
  start "$@"; bdevs; controller c0 null0; controller c1 slow0
  for policy in none auto vic cint cint:ooo=on cint:delta=0s nvme batch dim spdk_vhost; do
    # Many where they are fast, so that auto tries to hold.
    for load in "c0 2000 --depth 1" "c0 $many --depth 32 --queues 2" "c1 2000 --job batch --batch 4" "c1 2000 --job mixed --depth 16"; do
      read -r ctrlr count options <<< "$load"
      rpc coalesce_set_policy -c "$ctrlr" "$policy"
      rpc coalesce_reset_stats -c "$ctrlr"
      # shellcheck disable=SC2086
      (bench "$ctrlr" --warmup 0 --ops $count $options) > "$work/result" || fail "$policy, $load"
      stats "$ctrlr" > "$work/stats"
      jq -se '.[0] as $client | .[1] | .held == 0 and .completions == $client.total_ios and .owed <= .queues
        and $client.interrupts <= .interrupts and $client.interrupts >= .interrupts - .owed' "$work/result" "$work/stats" > /dev/null ||
        fail "$policy, $load: $(jq -c '{interrupts, total_ios}' "$work/result") but $(cat "$work/stats")"
    done
  done
  stop
}
# In interrupt mode a timer wakes SPDK for a deadline.
interrupt_mode() { counts --interrupt-mode; }

# Depth 1 interrupts once per request. Depth 32 takes fewer interrupts than SPDK alone, which sends one per poll.
coalesces() {
  start; bdevs; controller c0 slow0
  for policy in none auto; do
    rpc coalesce_set_policy -c c0 "$policy"
    expect "$policy at depth 1" "$(bench c0 --ops 1000 --warmup 0 --depth 1 | jq '.interrupts_per_io <= 1.01 and .interrupts_per_io >= 1')" true
    (bench c0 --ops 50000 --warmup 0 --depth 32) | jq .interrupts_per_io > "$work/$policy"
  done
  expect "auto below none: $(cat "$work/auto" "$work/none" | tr '\n' ' ')" \
    "$(jq -s '.[0] < .[1]' "$work/auto" "$work/none")" true
  stop
}

# A latency budget's account: the time that requests take is no less than their bdev's 80 us, and no more than the client sees.
account() {
  start; bdevs; controller c0 slow0
  accounted c0 -c c0
  stop
}
account_nvme() {
  has_nvme "the account of the native client over vfio-user" || return 0
  start; bdevs; subsystem slow0
  accounted nvme/cntrl -q "$nqn" --device nvme
  stop
}
# accounted SOCKET OPTION OF-WHOM [OPTION...]
accounted() {
  local socket=$1 who=("$2" "$3") load
  shift 3
  rpc coalesce_set_policy "${who[@]}" budget
  for load in "--job batch --batch 8" "--depth 8" "--rate 8000 --poisson --pauses 600us:2ms --depth 200"; do
    rpc coalesce_reset_stats "${who[@]}"
    # shellcheck disable=SC2086 # a list of options
    (bench "$socket" "$@" --warmup 0 --ops 10000 $load) > "$work/result" || fail "account of $socket, $load"
    rpc coalesce_get_stats "${who[@]}" | jq -c '.[0].queues | map(select(.completions >= 10000))[0] | {completions, budget}' > "$work/stats"
    jq -se '(.[0].jobs[] | select(.queue == "all").clat_ns | .mean * .N) as $seen | .[1]
      | .budget.outstanding_ns >= .completions * 80000 * 0.95 and .budget.outstanding_ns <= $seen' "$work/result" "$work/stats" > /dev/null ||
      fail "account of $socket, $load: $(jq -c '.jobs[0].clat_ns | {mean, N}' "$work/result") but $(cat "$work/stats")"
  done
}

# Data is correct, flushes included, while the policy changes.
data() {
  start; bdevs; controller c0 malloc0
  bench c0 --rw randwrite --write-percent 50 --verify --fsync-every 16 --ops 100000 --depth 16 > "$work/result" & local client_pid=$!
  while kill -0 "$client_pid" 2> /dev/null; do
    for policy in auto vic none cint; do rpc coalesce_set_policy -c c0 "$policy"; done
  done
  wait "$client_pid" || fail "data"
  expect errors "$(jq .errors "$work/result")" 0
  stop
}

# Sessions come and go while something is held; a client is killed in the middle; nothing hangs.
sessions() {
  start "$@"; bdevs; controller c0 slow0
  rpc coalesce_set_policy -c c0 "cint:delta=10ms,thr=1000,in_flight=off,max_hold=off"
  local i client_pid
  for i in $(seq 25); do
    (bench c0 --ops 20 --warmup 0 --depth 8 --queues 2) > /dev/null || fail "session $i"
    "$client" --socket "$work/c0" --quiet --seconds 30 --depth 8 > /dev/null 2>&1 & client_pid=$!
    sleep 0.1
    kill -9 "$client_pid"
    wait "$client_pid" 2> /dev/null || true
  done
  # Hot remove: requests fail, and every failure interrupts.
  (bench c0 --seconds 10 --depth 8) > "$work/result" 2> "$work/errors" & client_pid=$!
  sleep 0.5
  rpc bdev_delay_delete slow0
  wait "$client_pid" || true
  expect "after a hot remove: $(cat "$work/result" "$work/errors")" "$(jq '.unfinished == 0 and .errors > 0' "$work/result")" true
  expect held "$(stats c0 | jq .held)" 0
  rpc vhost_delete_controller c0
  expect "after deletion" "$(rpc coalesce_get_policy | jq length)" 0
  stop
}
sessions_interrupt_mode() { sessions --interrupt-mode; }

# With too little memory it ends, and says how much is enough; with that it starts.
memory() {
  local enough
  "$app" --no-huge -s 512 --iova-mode va -u -m 0x1 --disable-cpumask-locks -r "$work/rpc" > "$work/log" 2>&1 && fail "started with 512 MB"
  enough=$(sed -n 's/.*-s 512: too little memory; -s \([0-9]*\) .*/\1/p' "$work/log")
  [ -n "$enough" ] || fail "512 MB"
  start -s "$enough"
  stop
}

# RPCs: errors and their messages; save_config and load_config.
rpcs() {
  start; bdevs; rpc vhost_create_blk_controller c0 null0; rpc vhost_create_scsi_controller scsi0
  refused() { local what=$1; shift; ! rpc "$@" > "$work/answer" 2>&1 || fail "accepted: $*"; grep -qF "$what" "$work/answer" || fail "$* says $(cat "$work/answer")"; }
  refused 'no vhost-blk controller \"c1\"' coalesce_set_policy -c c1 auto
  refused 'no vhost-blk controller \"scsi0\"' coalesce_set_policy -c scsi0 auto
  refused 'no NVMe subsystem \"nqn.2016-06.io.spdk:no\"' coalesce_set_policy -q nqn.2016-06.io.spdk:no auto
  refused 'unknown policy \"fast\"' coalesce_set_policy -c c0 fast
  refused 'no vhost-blk controller' coalesce_get_stats -c c1
  # Parameters that rpc.py would not send.
  call() { python3 -c 'import socket, sys
rpc = socket.socket(socket.AF_UNIX)
rpc.connect(sys.argv[1])
rpc.send(b"""{"jsonrpc": "2.0", "id": 1, "method": "%s", "params": %s}""" % (sys.argv[2].encode(), sys.argv[3].encode()))
print(rpc.recv(65536).decode())' "$work/rpc" "$@" | jq -r .error.message; }
  while IFS='|' read -r method params message; do
    expect "$method $params" "$(call "$method" "$params")" "$message"
  done <<'EOF'
coalesce_set_policy|{"ctrlr": "c0"}|policy is missing
coalesce_set_policy|{"policy": "auto"}|ctrlr (a vhost-blk controller) or nqn (an NVMe subsystem) is needed
coalesce_set_policy|{"ctrlr": "c0", "nqn": "n", "policy": "auto"}|ctrlr or nqn, not both
coalesce_set_policy|{"ctrlr": "c0", "polcy": "auto"}|unknown parameter "polcy"; allowed: ctrlr, nqn, policy
coalesce_set_policy|{"ctrlr": "c0", "policy": {"auto": [1]}}|policy is not a string
coalesce_set_policy|{"ctrlr": "c0", "ctrlr": "c1", "policy": "auto"}|ctrlr is given twice
coalesce_set_policy|["c0", "auto"]|the parameters are not an object
coalesce_get_stats|{"name": "c0"}|unknown parameter "name"; allowed: ctrlr, nqn
coalesce_get_policy|{"ctrlr": 0}|ctrlr is not a string
EOF
  rpc vhost_controller_set_coalescing c0 50 60000
  refused "SPDK's own coalescing is on" coalesce_set_policy -c c0 auto
  rpc vhost_controller_set_coalescing c0 0 60000
  rpc coalesce_set_policy -c c0 "cint:delta=20us"
  refused '' vhost_controller_set_coalescing c0 50 60000
  expect policy "$(rpc coalesce_get_policy -c c0 | jq -r '.[0].policy')" "cint:delta=20us"
  rpc save_config > "$work/config"
  expect saved "$(jq -c '.subsystems[] | select(.subsystem == "coalesce").config' "$work/config")" \
    '[{"method":"coalesce_set_policy","params":{"ctrlr":"c0","policy":"cint:delta=20us"}}]'
  stop
  start --json "$work/config"
  expect "loaded policy" "$(rpc coalesce_get_policy -c c0 | jq -r '.[0].policy')" "cint:delta=20us"
  stop
}

# An NVMe subsystem is listed as soon as it exists, and until it is deleted.
subsystems() {
  has_nvme "NVMe subsystems" || return 0
  start
  rpc nvmf_create_subsystem "$nqn" -a
  expect policies "$(rpc coalesce_get_policy | jq -c .)" "[{\"nqn\":\"$nqn\",\"policy\":\"none\"}]"
  expect statistics "$(rpc coalesce_get_stats | jq -c .)" "[{\"nqn\":\"$nqn\",\"queues\":[]}]"
  rpc nvmf_delete_subsystem "$nqn"
  expect "after deletion" "$(rpc coalesce_get_policy | jq -c .)" "[]"
  stop
}

# An NVMe disk behind vfio-user, with these options of the transport: subsystem BDEV [OPTION...]
nqn=nqn.2016-06.io.spdk:c0
subsystem() {
  rpc nvmf_create_transport -t VFIOUSER "${@:2}"
  rpc nvmf_create_subsystem "$nqn" -a
  rpc nvmf_subsystem_add_ns "$nqn" "$1" > /dev/null
  mkdir -p "$work/nvme"
  rpc nvmf_subsystem_add_listener "$nqn" -t VFIOUSER -a "$work/nvme" -s 0
}
has_nvme() {
  grep -qF __wrap_vfu_irq_trigger "$app" || { skip "$1: this SPDK is configured without vfio-user"; return 1; }
}

# The native client over vfio-user, with its three kinds of doorbells: counts agree, and data is correct while policies change.
nvme() {
  local how policy client_pid load="--device nvme --queues 2 --depth 32 --warmup 0 --ops 20000"
  has_nvme "the native client over vfio-user" || return 0
  for how in mapped shadow messages; do
    case $how in
      mapped) set -- ;;
      shadow) set -- --disable-mappable-bar0 ;;
      messages) set -- --disable-mappable-bar0 --disable-shadow-doorbells ;;
    esac
    start; bdevs; subsystem malloc0 "$@"
    for policy in none auto vic cint; do
      rpc coalesce_set_policy -q "$nqn" "$policy"
      rpc coalesce_reset_stats -q "$nqn"
      # shellcheck disable=SC2086 # a list of options
      (bench nvme/cntrl $load) > "$work/result" || fail "$how, $policy"
      rpc coalesce_get_stats -q "$nqn" | jq '[.[0].queues[] | select(.queue > 0)] | {completions: (map(.completions) | add),
        interrupts: (map(.interrupts) | add), held: (map(.held) | add)}' > "$work/stats"
      jq -se --arg how "$how" '.[0] as $client | .[1] | .held == 0 and .completions == 40000
        and .interrupts == $client.interrupts
        and $client.doorbells_mapped == ($how == "mapped") and $client.event_idx == ($how == "shadow")
        and if $how == "mapped" then $client.kicks == 0 else $client.kicks > 0 end' "$work/result" "$work/stats" > /dev/null ||
        fail "$how, $policy: $(jq -c '{interrupts, kicks, doorbells_mapped}' "$work/result") but $(jq -c . "$work/stats")"
    done
    # shellcheck disable=SC2086 # a list of options
    bench nvme/cntrl $load --rw randwrite --write-percent 50 --verify --fsync-every 16 > "$work/result" & client_pid=$!
    while kill -0 "$client_pid" 2> /dev/null; do
      for policy in auto vic none cint; do rpc coalesce_set_policy -q "$nqn" "$policy"; done
    done
    wait "$client_pid" || fail "$how: data"
    ! grep -F "failed to trigger interrupt" "$work/log" || fail "$how: a vector without an eventfd"
    stop
  done
}

# A Linux guest, while the policy changes: data is correct, and at depth 1 every request interrupts once.
switch_policies() { while true; do for policy in auto vic none cint; do rpc coalesce_set_policy "$@" "$policy" > /dev/null 2>&1; done; done; }
guest() {
  command -v qemu-system-x86_64 > /dev/null || { skip "a guest over vhost-user-blk: no QEMU"; return; }
  start; bdevs; rpc vhost_create_blk_controller c0 malloc0
  switch_policies -c c0 & pids+=("$!")
  "$root/guest/run-guest.sh" verify "$work/c0" > "$work/result" 2>&1 || fail "verify: $(tail -n 30 "$work/result")"
  kill "$!"; wait "$!" 2> /dev/null || true
  rpc coalesce_set_policy -c c0 auto
  "$root/guest/run-guest.sh" irqs "$work/c0" COUNT=2000 PAUSE=0 > "$work/result" 2>&1 || fail "irqs: $(tail -n 30 "$work/result")"
  sed -n 's/^RESULT //p' "$work/result"
  expect "interrupts per request at depth 1" "$(sed -n 's/^RESULT //p' "$work/result" | jq 'select(.job == "count1").irqs_per_io')" 1
  stop
}

# The same over vfio-user: with adaptive interrupts, without, and in interrupt mode.
guest_nvme() {
  local qemu=${QEMU:-qemu-system-x86_64} how
  has_nvme "a guest over vfio-user" || return 0
  [[ $("$qemu" -device vfio-user-pci,help 2>&1) == "vfio-user-pci options:"* ]] || # its exit status says nothing
    { skip "a guest over vfio-user: $qemu has no vfio-user-pci (QEMU 10.1 or newer has; give QEMU)"; return; }
  for how in adaptive not-adaptive interrupt-mode; do
    if [ "$how" = interrupt-mode ]; then start --interrupt-mode; else start; fi
    bdevs; rpc vhost_create_blk_controller c0 null0
    case $how in
      adaptive) set -- ;;
      not-adaptive) set -- --disable-adaptive-irq ;;
      interrupt-mode) set -- --disable-mappable-bar0 ;;
    esac
    subsystem malloc0 "$@"
    for policy in none auto vic; do
      rpc coalesce_set_policy -q "$nqn" "$policy"
      rpc coalesce_reset_stats -q "$nqn"
      # SPDK's namespaces can be shared: without multipath=N Linux has two block devices for one.
      MORE_DISKS=1 APPEND=nvme_core.multipath=N QEMU=$qemu "$root/guest/run-guest.sh" "$here/nvme.sh" "$work/c0" -- \
        -device "{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"$work/nvme/cntrl\"}}" \
        > "$work/result" 2>&1 || fail "nvme: $(tail -n 30 "$work/result")"
      sed -n 's/^RESULT //p' "$work/result" | jq -c --arg policy "$policy" --arg how "$how" \
        '{$how, $policy, job, ios, iops, irqs, errors}'
      expect "$policy: one interrupt per request at depth 1" \
        "$(sed -n 's/^RESULT //p' "$work/result" | jq 'select(.job == "nvme1") | .irqs == .ios')" true
      expect "$policy: held" "$(rpc coalesce_get_stats -q "$nqn" | jq '[.[0].queues[].held] | add')" 0
    done
    rpc save_config > "$work/config"
    expect saved "$(jq -c '.subsystems[] | select(.subsystem == "coalesce").config[].params' "$work/config")" \
      "{\"nqn\":\"$nqn\",\"policy\":\"vic\"}"
    rpc nvmf_delete_subsystem "$nqn"
    expect "after deletion" "$(rpc coalesce_get_policy | jq -c 'map(.nqn // empty)')" "[]"
    stop
  done
}

[ $# -gt 0 ] || set -- memory rpcs subsystems counts interrupt_mode coalesces account account_nvme data sessions sessions_interrupt_mode nvme guest guest_nvme
for case; do
  before=$SECONDS outcome=ok
  "$case"
  printf '%s: %s, %s s\n' "$case" "$outcome" $((SECONDS - before))
done
