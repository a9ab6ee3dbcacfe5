#!/usr/bin/env bash
# Our NVMe disk, our virtio-blk disk, QEMU's own nvme device and SPDK's side by side in one guest, in turns, under each policy.
#
#   nvme-compare.sh   about seven minutes, 15 with SPDK; all disks are in memory, and no medium slows them down, but for:
#   LATENCY=TIME      that each request of our own disks takes, as 1ms or 500us..2ms, so that many are in flight [none]
#
#   SPDK_TGT=PROGRAM   coalesce_spdk_tgt, whose NVMe disks over vfio-user are measured, too: "spdk" in memory, "spdk-null", a
#                      null bdev. Policy "none" is SPDK as it is. It polls, so it is stopped during the other disks' turns
#   ROUNDS=N    of all turns [2]       RUNTIME=S   seconds of each measurement [0.8]
#   LOADS=A,B   [depth1,depth8,depth32,mixed,batch4,fsync]
#   POLICIES=A,B   [none,vic,cint,auto]; "none" is measured twice: how far the two differ is noise
#   OUT=DIR     keeps what was measured
#
# Two guests: one for times and interrupts, and one, with one round of 2 s each, whose instructions a plugin of QEMU counts. Counts carry
# over to other machines; times under emulation (TCG) do not. Columns, medians over the rounds:
#   irq/IO guest   /proc/interrupts       irq/IO dev, msg/IO   the target's own: signals, and doorbells that came as messages
#   instr/IO       the guest's, all CPUs, without those of starting fio
#   IOPS, p50, p99 of fio's lat; of mixed the synchronous reader's latency, and both readers' IOPS
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; }
cd "$(dirname "$0")/.."
missing=$(guest/ready.sh) || { echo "SKIPPED: NVMe in a guest: $missing"; exit; }
QEMU=$(guest/make-qemu.sh 2>&1) || { echo "SKIPPED: NVMe in a guest: $QEMU"; exit; }
export QEMU
command -v cc > /dev/null || guest/packages.sh build-essential
cargo build --quiet --locked --release --package coalesce-target
program=$PWD/target/release/coalesce-target
work=$(mktemp -d)
target='' spdk=''
# shellcheck disable=SC2317 # called by trap
cleanup() {
  [ -z "$target" ] || kill "$target" 2> /dev/null || true
  [ -z "$spdk" ] || kill -9 "$spdk" 2> /dev/null || true
  wait
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$work/root"
guest/plugin/build.sh "$work" "$work/root/mark"
(cd "$work/root" && echo mark | cpio --quiet -o -H newc -R 0:0) > "$work/mark.cpio"

takes=${LATENCY:+latency = \'$LATENCY\'}
cat > "$work/disks.toml" <<TOML
[[disk]]
device = "virtio-blk"
socket = "$work/virtio"
memory = "256M"
$takes
queues = 2
serial = "virtio"
[[disk]]
device = "nvme"
socket = "$work/nvme"
memory = "256M"
$takes
queues = 2
serial = "nvme"
TOML
"$program" serve --config "$work/disks.toml" --control "$work/control" 2> "$work/log" &
target=$!
for _ in $(seq 200); do [ ! -S "$work/control" ] || break; sleep 0.05; done

disks=(virtio nvme) sockets=("$work/virtio" "nvme:$work/nvme") with_spdk=()
nqn=nqn.2016-06.io.spdk
if [ -n "${SPDK_TGT:-}" ]; then
  "$SPDK_TGT" --no-huge -s 1536 --iova-mode va -u -m 0x1 --disable-cpumask-locks -S "$work" -r "$work/rpc" \
    > "$work/spdk.log" 2>&1 &
  spdk=$!
  # SeaBIOS hangs with two controllers of SPDK. Their namespaces can be shared, and Linux would take them for multipath devices.
  with_spdk=(-bios qboot.rom)
  export APPEND=nvme_core.multipath=N
  rpc() { "$program" call --control "$work/rpc" "$@"; } # SPDK's calls have the form of ours
  for _ in $(seq 200); do if rpc spdk_get_version > /dev/null 2>&1; then break; fi; sleep 0.1; done
  {
    rpc bdev_malloc_create '{"name": "spdk", "num_blocks": 524288, "block_size": 512}'
    rpc bdev_null_create '{"name": "spdk-null", "num_blocks": 524288, "block_size": 512}'
    rpc nvmf_create_transport '{"trtype": "VFIOUSER"}'
  } > /dev/null
  for disk in spdk spdk-null; do
    mkdir "$work/$disk"
    {
      rpc nvmf_create_subsystem "{\"nqn\": \"$nqn:$disk\", \"allow_any_host\": true, \"serial_number\": \"$disk\"}"
      rpc nvmf_subsystem_add_ns "{\"nqn\": \"$nqn:$disk\", \"namespace\": {\"bdev_name\": \"$disk\"}}"
      rpc nvmf_subsystem_add_listener "{\"nqn\": \"$nqn:$disk\",
        \"listen_address\": {\"trtype\": \"VFIOUSER\", \"traddr\": \"$work/$disk\", \"trsvcid\": \"0\"}}"
    } > /dev/null
    disks+=("$disk") sockets+=("nvme:$work/$disk/cntrl")
  done
fi

# At each step "disk:policy load": what the targets have counted, then the policy. Policy "none2" is "none" once more.
cat > "$work/step" <<STEP
[ -z "$spdk" ] || kill -CONT "$spdk"
call() { "$program" call --control "$work/control" "\$@"; }
rpc() { if [ -n "$spdk" ]; then "$program" call --control "$work/rpc" "\$@"; else echo '[]'; fi; }
{ call get_stats '{"idle": true}'; rpc coalesce_get_stats | jq 'map(select(.nqn) | .ctrlr = (.nqn | sub(".*:"; "")))'; } |
  jq -sc --arg step "\$1" '{step: \$step, disks: add}' >> "\$STATS"
disk=\${1%%:*} policy=\${1#*:} policy=\${policy%% *}
case \$1 in
  virtio:* | nvme:*) call set_policy "{\"ctrlr\":\"\$disk\",\"policy\":\"\${policy%2}\"}" > /dev/null ;;
  spdk*) rpc coalesce_set_policy "{\"nqn\":\"$nqn:\$disk\",\"policy\":\"\${policy%2}\"}" > /dev/null ;;
esac
case \$1 in spdk* | end) ;; *) [ -z "$spdk" ] || kill -STOP "$spdk" ;; esac
STEP
turns=
for disk in "${disks[@]}"; do
  for policy in $(echo "${POLICIES:-none,vic,cint,auto},none2" | tr , ' '); do turns+="$disk:$policy,"; done
done
turns+=qemu:own

run() { # NAME ROUNDS RUNTIME [QEMU-ARGUMENTS]: a guest; "$work/NAME" gets a line for each turn
  local name=$1 rounds=$2 runtime=$3
  shift 3
  : > "$work/stats"
  [ -z "$spdk" ] || kill -CONT "$spdk" # the guest looks at all disks
  STATS=$work/stats ON_STEP="sh $work/step" QUEUES=2 MORE_DISKS=1 TIMEOUT=3000 guest/run-guest.sh compare "${sockets[@]}" \
    "TURNS=$turns" "ROUNDS=$rounds" "LOADS=${LOADS:-depth1,depth8,depth32,mixed,batch4,fsync}" "RUNTIME=$runtime" -- \
    -drive driver=null-co,size=256M,read-zeroes=on,if=none,id=own -device nvme,serial=qemu,drive=own "${with_spdk[@]}" "$@" \
    > "$work/lines" 2> "$work/err" || { grep -E 'ERROR|FIO' "$work/lines" >&2 || true; tail -n 20 "$work/err" >&2; exit 1; }
  touch "$work/marks"
  # A turn is a step and the results after it; the k-th has the statistics k and k + 1, and the marks 2k and 2k + 1.
  jq -nRc --slurpfile stats "$work/stats" --slurpfile marks "$work/marks" '
    # SPDK counts its admin queue, which is number 0 there, and no messages: QEMU maps its doorbells.
    def count(disk; f): [.disks[] | select(.ctrlr == disk) | .queues[] | select(disk[:4] != "spdk" or .queue > 0) | f] | add;
    [(reduce inputs as $line ([];
      if $line | startswith("GUEST-STEP ") then . + [{step: $line[11:], results: []}]
      elif $line | startswith("RESULT ") then .[-1].results += [$line[7:] | fromjson] else . end))[] | select(.step != "end")]
    | to_entries[] | .key as $k | .value | (.step | capture("(?<disk>[^:]*):(?<policy>.*) (?<load>.*)")) + . | .results[0] as $first
    | {disk, policy, load, requests: $first.requests, guest: $first.irqs_per_io, iops: ([.results[].iops] | add),
       p50: $first.lat_us_p50, p99: $first.lat_us_p99}
      + (if .disk == "qemu" then {} else
          .disk as $disk | def delta(f): ($stats[$k + 1] | count($disk; f)) - ($stats[$k] | count($disk; f));
          delta(.completions) as $n | {device: (delta(.interrupts) / $n)}
            + (if .disk[:4] == "spdk" then {} else {messages: (delta(.device.kicks) / $n)} end) end)
      + (if $marks == [] then {} else {instructions: ($marks[2 * $k + 1] - $marks[2 * $k])} end)' "$work/lines" > "$work/$name"
}
run times "${ROUNDS:-2}" "${RUNTIME:-0.8}"
plugin=(-plugin "$work/count.so,out=$work/marks")
if echo quit | "$QEMU" -machine none -display none -monitor stdio "${plugin[@]}" > "$work/plugin" 2>&1; then
  INITRD=$work/mark.cpio run counts 1 2 "${plugin[@]}"
else
  echo "SKIPPED: counting instructions: $(tail -n 1 "$work/plugin")"
  : > "$work/counts"
fi

echo "$(date -u +%F), $("$QEMU" --version | sed -n '1s/.*version \([^ ]*\).*/QEMU \1/p'), $(sed -n 's/^GUEST-READY \(kernel=[^ ]*\).* \(accel=.*\)/\1, \2/p' "$work/lines")," \
  "$(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg), $(git rev-parse --short HEAD)"
jq -rn --slurpfile times "$work/times" --slurpfile counts "$work/counts" '
  def median: map(select(. != null)) | sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor]
    else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def show(digits): if . == null then "-" else . * pow(10; digits) | round / pow(10; digits) | tostring end;
  ([$counts[] | select(.load == "empty")] | INDEX(.load).empty.instructions) as $start
  | ["load", "disk", "policy", "irq/IO guest", "irq/IO dev", "msg/IO", "instr/IO", "IOPS", "p50 us", "p99 us"],
    ["--", "--", "--", "--:", "--:", "--:", "--:", "--:", "--:", "--:"],
    ($times | unique_by([.load, .disk, .policy])[] as $row
     | def of(f): [$times[] | select(.load == $row.load and .disk == $row.disk and .policy == $row.policy) | f] | median;
       def counted(f): [$counts[] | select(.load == $row.load and .disk == $row.disk and .policy == $row.policy) | f] | median;
       [$row.load, $row.disk, ($row.policy | if . == "none2" then "none, again" else . end), (of(.guest) | show(3)), (of(.device) | show(3)),
        (of(.messages) | show(3)), (counted((.instructions - $start) / .requests) | show(0)), (of(.iops) | show(0)),
        (of(.p50) | show(0)), (of(.p99) | show(0))])
  | "| " + join(" | ") + " |"' | tee "$work/table"
if [ -n "${OUT:-}" ]; then mkdir -p "$OUT"; cp "$work"/{times,counts,table} "$OUT"; fi
