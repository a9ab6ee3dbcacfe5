#!/usr/bin/env bash
# Check the guest kit itself, against qemu-storage-daemon: no target of ours is involved.
#
#   check.sh [PART...]     parts: demo irqs ioprio verify soak stale failures hang accel bare; all of them by default, 75 to 110 s
#
# One line per part; exit status 0 when all passed. Where no guest can run it prints SKIPPED and exits with 0,
# with 1 if REQUIRE_QEMU is set. Only what is exact is asserted: counts and states, never a speed.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
all=(demo irqs ioprio verify soak stale failures hang accel bare)
[ $# -gt 0 ] || set -- "${all[@]}"
for part; do [[ " ${all[*]} " == *" $part "* ]] || { echo "check: no part $part; there are: ${all[*]}" >&2; exit 2; }; done
here=$(cd "$(dirname "$0")" && pwd)
if ! missing=$("$here/ready.sh"); then
  echo "SKIPPED: the guest kit: $missing" >&2
  if [ -n "${REQUIRE_QEMU:-}" ]; then exit 1; else exit 0; fi
fi

tmp=$(mktemp -d)
# shellcheck disable=SC2317 # called by trap
cleanup() { for f in "$tmp"/*.pid; do [ ! -f "$f" ] || kill "$(cat "$f")" 2> /dev/null || true; done; rm -rf "$tmp"; }
trap cleanup EXIT

# serve NAME BLOCKDEV-OPTIONS: a disk on the socket $tmp/NAME, in a session of its own, as a target would be.
cat > "$tmp/serve" <<'SERVE'
rm -f "$1"
setsid qemu-storage-daemon --blockdev "node-name=d,$2" \
  --export "vhost-user-blk,id=e,node-name=d,addr.type=unix,addr.path=$1,writable=on,num-queues=2" > "$1.log" 2>&1 < /dev/null &
echo $! > "$1.pid"
i=0
while [ ! -S "$1" ] && [ $((i += 1)) -le 100 ]; do sleep 0.1; done
SERVE
truncate -s 256M "$tmp/disk.img"
null="driver=null-co,size=1073741824,read-zeroes=on" file="driver=file,filename=$tmp/disk.img"
sh "$tmp/serve" "$tmp/null" "$null"
sh "$tmp/serve" "$tmp/file" "$file"

run() { # JOB ARGUMENTS...: status in $rc, lines in $tmp/out, RESULT objects in $tmp/results
  rc=0
  "$here/run-guest.sh" "$@" > "$tmp/out" 2> "$tmp/err" || rc=$?
  sed -n 's/^RESULT //p' "$tmp/out" > "$tmp/results"
}
expect() { # TEXT JQ-CONDITION on the array of all results
  jq -se "$2" "$tmp/results" > /dev/null && return
  echo "FAILED: $part: $1" >&2
  cat "$tmp/out" "$tmp/err" >&2
  exit 1
}
is() { # TEXT GOT WANTED
  [ "$2" = "$3" ] || { echo "FAILED: $part: $1: got \"$2\", expected \"$3\"" >&2; cat "$tmp/out" "$tmp/err" >&2; exit 1; }
}
steps() { sed -n 's/^GUEST-STEP //p' "$tmp/out"; }
# At depth 1 every request has its interrupt, save one that completes while the guest is still in its handler.
depth1='(.irqs <= .requests and .irqs >= .requests * 0.99)'

demo() {
  RUNTIME=1 run demo "$tmp/null" "$tmp/file"
  is status $rc 0
  is order "$(jq -r '"\(.disk).\(.job)"' "$tmp/results" | tr '\n' ' ')" "$(for job in depth1 depth8 depth32 mixed batch4 fsync; do
    for disk in vda vdb; do
      if [ $job = mixed ]; then printf "$disk.%s " mixed-sync mixed-async; else printf "$disk.%s " $job; fi
    done
  done)"
  expect "keys" 'all(has("disk", "job", "rc", "errors", "ios", "read_iops", "write_iops", "iops", "clat_us_mean",
    "clat_us_p50", "clat_us_p99",
    "lat_us_mean", "lat_us_p50", "lat_us_p90", "lat_us_p99", "lat_us_p99_9", "irqs", "irqs_per_io", "flushes", "requests"))'
  expect "no errors" 'all(.rc == 0 and .errors == 0)'
  expect "I/O everywhere" 'all(.ios > 0 and .iops > 0 and .lat_us_p50 > 0 and .lat_us_p90 >= .lat_us_p50 and .lat_us_p99 >= .lat_us_p90 and .lat_us_p99_9 >= .lat_us_p99 and .lat_us_mean >= .clat_us_mean and .irqs > 0)'
  expect "no interrupt without request" 'all(.irqs <= .requests)'
  expect "depth 1" "map(select(.job == \"depth1\")) | all($depth1)"
  # fio may stop, or end its ramp time, between a write and its flush.
  expect "one flush per write" 'map(select(.job == "fsync")) | all(.flushes > 0 and .requests - 2 * .flushes <= 3)'
  expect "reads only" 'map(select(.job != "fsync")) | all(.flushes == 0 and .write_iops == 0)'
}
irqs() {
  ON_STEP="echo >> '$tmp/steps'" COUNT=1000 QUEUES=2 run irqs "$tmp/null" "$tmp/file" PAUSE=0.3
  is status $rc 0
  expect "counts" 'map([.disk, .job, .ios, .requests]) == [["vda", "count1", 1000, 1000], ["vda", "count32", 1000, 1000],
    ["vdb", "count1", 1000, 1000], ["vdb", "count32", 1000, 1000]]'
  expect "depth 1" "map(select(.job == \"count1\")) | all($depth1)"
  expect "depth 32" 'all(.irqs > 0 and .irqs <= .requests)'
  is "steps" "$(steps | wc -l)" 8
}
ioprio() {
  run ioprio "$tmp/null"
  is status $rc 0
  expect "requests per case" 'map(.requests) == [1000, 1100, 1200, 1300, 1400, 1500] and all(.ios == .requests)'
}
verify() {
  run verify "$tmp/file"
  is status $rc 0
  expect "states" 'map([.job, .rc, .errors]) == [["write-verify", 0, 0], ["reread-verify", 0, 0], ["write-fsync", 0, 0], ["control-corrupt", 1, 84]]'
  expect "flushes" '.[2].flushes >= 16'
}
soak() { # the target is killed and started again under load
  cat > "$tmp/hook" <<HOOK
echo "\$1" >> "$tmp/steps"
[ "\$1" = end ] || kill -0 "\$GUEST_PID" || exit 1
[ "\$1" = reconnect ] || exit 0
kill -9 "\$(cat "$tmp/file.pid")"
sleep 0.2
sh "$tmp/serve" "$tmp/file" "$file"
HOOK
  : > "$tmp/steps"
  ON_STEP="sh '$tmp/hook'" run soak "$tmp/file" SECONDS=6
  is status $rc 0
  expect "result" '.[-1] | .job == "soak" and .errors == 0 and .passes > 0 and .flushes > 0'
  is "host's steps" "$(tr '\n' ' ' < "$tmp/steps")" "$(steps | tr '\n' ' ')"
  is "hooks" "$(cat "$tmp/err")" ""
  is "first, last, reconnect" "$(sed -n '1p;$p' "$tmp/steps" | tr '\n' ' ')$(grep -c reconnect "$tmp/steps")" "start end 1"
}
stale() { # the disk goes back to older, well-formed blocks: soak must notice
  cat > "$tmp/hook" <<HOOK
case \$1 in
  tick-3) dd if="$tmp/disk.img" of="$tmp/old" bs=1M count=16 ;;
  # Again and again until the end: once could hit what is written anew before it is read, on a slow machine.
  tick-6) touch "$tmp/going"; setsid sh -c 'while [ -e "$tmp/going" ]; do dd if="$tmp/old" of="$tmp/disk.img" bs=1M conv=notrunc; done' & ;;
esac > /dev/null 2>&1 < /dev/null
HOOK
  ON_STEP="sh '$tmp/hook'" run soak "$tmp/file" SECONDS=9
  rm -f "$tmp/going"
  is status $rc 1
  expect "noticed" '.[-1] | .job == "soak" and .errors > 0'
}
failures() {
  # sectors of 512 bytes: the disks must come in the order of the sockets
  # shellcheck disable=SC2016 # for the guest
  echo 'echo "GUEST-INFO" $(cat /sys/block/vda/size /sys/block/vdb/size) $MORE; exit 3' > "$tmp/three"
  run "$tmp/three" "$tmp/null" "$tmp/file" MORE=more; is "failing job" $rc 1
  is "order, variable" "$(grep INFO "$tmp/out")" "GUEST-INFO 2097152 524288 more"
  is "console shown" "$(grep -c 'GUEST-DONE rc=3' "$tmp/err")" 1
  echo 'sleep 60' > "$tmp/slow"; TIMEOUT=6 run "$tmp/slow" "$tmp/null"; is "timeout" $rc 124
  run nosuchjob "$tmp/null"; is "unknown job" $rc 2
  run demo "$tmp/nosuchsocket"; is "no socket" $rc 2
  run demo "nvme:$tmp/nosuchsocket"; is "no socket of a controller" $rc 2
}

hang() { # a kernel that hangs before its first process is booted once more, and only once
  cat > "$tmp/qemu" <<'QEMU'
#!/bin/sh
case $1 in --version) exec qemu-system-x86_64 "$1" ;; esac
echo >> "$BOOTS"
[ "$(wc -l < "$BOOTS")" -gt "$HANGS" ] || exec qemu-system-x86_64 -S "$@"
exec qemu-system-x86_64 "$@"
QEMU
  chmod +x "$tmp/qemu"
  echo ':' > "$tmp/nothing"
  local hangs status boots
  while read -r hangs status boots; do
    : > "$tmp/boots"
    BOOTS=$tmp/boots HANGS=$hangs QEMU=$tmp/qemu ACCEL=tcg SILENCE=3 TIMEOUT=$((status ? 5 : 120)) run "$tmp/nothing" "$tmp/null"
    is "status after $hangs" "$rc" "$status"
    is "boots, $hangs" "$(wc -l < "$tmp/boots")" "$boots"
    is "said, $hangs" "$(grep -c 'it is booted once more' "$tmp/err")" 1
  done <<< $'1 0 2\n2 124 2'
}
accel() { # a /dev/kvm under which nothing boots is not used, and one under which a guest boots is
  local opens='' used
  ! (exec 3<> /dev/kvm) 2> /dev/null || opens=1
  LOG=$tmp/log TIMEOUT=60 run irqs "$tmp/null" COUNT=10 PAUSE=0
  is status $rc 0
  used=$(sed -n 's/^GUEST-READY .* accel=//p' "$tmp/out")
  case $used in
    kvm) is "/dev/kvm opens" "$opens" 1 ;;
    *)
      is accelerator "$used" tcg
      is why "$(grep -c '^accel: tcg, as ' "$tmp/log")" 1
      [ -z "$opens" ] || { ACCEL=kvm TIMEOUT=10 run irqs "$tmp/null" COUNT=10 PAUSE=0; is "boots under KVM" $((rc == 0)) 0; }
      ;;
  esac
  ACCEL=xen run irqs "$tmp/null"; is "unknown accelerator" $rc 2
}
bare() { # under -icount, on disks of QEMU's that answer in no time, two runs of the bare-metal guest count the same
  local blank=(-icount "shift=0,sleep=off" -blockdev "driver=null-co,node-name=d,size=67108864,read-zeroes=on")
  local disk run
  printf '%s\n' "run 2000 0:1" "run 2000 0:8" "run 3200 2:32:0:32:100000" off > "$tmp/loads"
  for disk in virtio-blk-pci,num-queues=3,queue-size=256,event_idx={on,off},disable-legacy=on nvme,serial=s,max_ioqpairs=3; do
    for run in 1 2; do
      rc=0
      timeout 60 "$here/run-bare.sh" none -- "${blank[@]}" -device "$disk,drive=d,ioeventfd=off" < "$tmp/loads" > "$tmp/out" 2> "$tmp/err" || rc=$?
      is "status, $disk" $rc 0
      sed -n 's/^RESULT //p' "$tmp/out" > "$tmp/results"
      # What is read is not what the guest expects of a disk, and it notices each time.
      expect "loads, $disk" 'length == 3 and all(.strays == 0 and all(.streams[]; .ios > 0 and .failed == 0 and .bad == .ios))'
      expect "one interrupt for what is submitted at once, $disk" '[.[] | .streams[0].ios / .taken[.streams[0].queue + 1]] == [1, 8, 32]'
      jq -c '[.taken, .kicks, [.streams[].ios]]' "$tmp/results" > "$tmp/run$run"
    done
    is "counts, $disk" "$(cat "$tmp/run1")" "$(cat "$tmp/run2")"
  done
  # What goes beyond a limit is refused, and what follows is done.
  printf '%s\n' "run 1 3:1" "run 1 0:65" "run 1 0:64 0:1" "run 1 0:0" "run 1 0" "run 1 0:1:0:8" "run 1 0:1:0:8:0:0" "run 1" "run 0:1" \
    "run 1$(printf ' %s' {0..2}:{1..6})" stop "run 1 0:64 1:64" off > "$tmp/loads"
  timeout 60 "$here/run-bare.sh" none -- "${blank[@]}" -device "$disk,drive=d" < "$tmp/loads" > "$tmp/out" 2> "$tmp/err" || rc=$?
  is "status, refused" "$rc" 0
  is "refused loads" "$(grep -c '^GUEST-ERROR not a' "$tmp/out")" 11
  is "loads at the limit" "$(grep -c '^RESULT' "$tmp/out")" 1
}

for part; do
  start=$SECONDS
  $part
  echo "ok: $part ($((SECONDS - start)) s)"
done
