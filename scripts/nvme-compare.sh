#!/usr/bin/env bash
# Our NVMe disk, our virtio-blk disk and QEMU's own nvme device side by side in one guest, in turns, under each policy.
#
#   nvme-compare.sh   about seven minutes; all disks are in memory, and no medium slows them down
#
#   ROUNDS=N    of all turns [2]       RUNTIME=S   seconds of each measurement [0.8]
#   LOADS=A,B   [depth1,depth8,depth32,mixed,batch4,fsync]
#   POLICIES=A,B   [none,vic,cint,auto]; "none" is measured twice: how far the two differ is noise
#   OUT=DIR     keeps what was measured
#
# Two guests: one for times and interrupts, and one, with one round of 0.4 s each, whose instructions a plugin of QEMU counts. Counts carry
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
target=''
# shellcheck disable=SC2317 # called by trap
cleanup() { [ -z "$target" ] || kill "$target" 2> /dev/null || true; wait; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$work/root"
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$work/count.so" guest/plugin/count.c
as -o "$work/mark.o" guest/plugin/mark.s && ld -s -o "$work/root/mark" "$work/mark.o"
(cd "$work/root" && echo mark | cpio --quiet -o -H newc -R 0:0) > "$work/mark.cpio"

cat > "$work/disks.toml" <<TOML
[[disk]]
device = "virtio-blk"
socket = "$work/virtio"
memory = "256M"
queues = 2
serial = "virtio"
[[disk]]
device = "nvme"
socket = "$work/nvme"
memory = "256M"
queues = 2
serial = "nvme"
TOML
"$program" serve --config "$work/disks.toml" --control "$work/control" 2> "$work/log" &
target=$!
for _ in $(seq 200); do [ ! -S "$work/control" ] || break; sleep 0.05; done

# At each step "disk:policy load": what the target has counted, then the policy. Policy "none2" is "none" once more.
cat > "$work/step" <<STEP
call() { "$program" call --control "$work/control" "\$@"; }
call get_stats | jq -c --arg step "\$1" '{step: \$step, disks: .}' >> "\$STATS"
policy=\${1#*:} policy=\${policy%% *}
case \$1 in
  virtio:* | nvme:*) call set_policy "{\"ctrlr\":\"\${1%%:*}\",\"policy\":\"\${policy%2}\"}" > /dev/null ;;
esac
STEP
turns=
for disk in virtio nvme; do for policy in $(echo "${POLICIES:-none,vic,cint,auto},none2" | tr , ' '); do turns+="$disk:$policy,"; done; done
turns+=qemu:own

run() { # NAME ROUNDS RUNTIME [QEMU-ARGUMENTS]: a guest; "$work/NAME" gets a line for each turn
  local name=$1 rounds=$2 runtime=$3
  shift 3
  : > "$work/stats"
  STATS=$work/stats ON_STEP="sh $work/step" QUEUES=2 MORE_DISKS=1 TIMEOUT=900 guest/run-guest.sh compare "$work/virtio" "nvme:$work/nvme" \
    "TURNS=$turns" "ROUNDS=$rounds" "LOADS=${LOADS:-depth1,depth8,depth32,mixed,batch4,fsync}" "RUNTIME=$runtime" -- \
    -drive driver=null-co,size=256M,read-zeroes=on,if=none,id=own -device nvme,serial=qemu,drive=own "$@" \
    > "$work/lines" 2> "$work/err" || { grep -E 'ERROR|FIO' "$work/lines" >&2 || true; tail -n 20 "$work/err" >&2; exit 1; }
  touch "$work/marks"
  # A turn is a step and the results after it; the k-th has the statistics k and k + 1, and the marks 2k and 2k + 1.
  jq -nRc --slurpfile stats "$work/stats" --slurpfile marks "$work/marks" '
    def count(disk; f): [.disks[] | select(.ctrlr == disk) | .queues[] | f] | add;
    [(reduce inputs as $line ([];
      if $line | startswith("GUEST-STEP ") then . + [{step: $line[11:], results: []}]
      elif $line | startswith("RESULT ") then .[-1].results += [$line[7:] | fromjson] else . end))[] | select(.step != "end")]
    | to_entries[] | .key as $k | .value | (.step | capture("(?<disk>.*):(?<policy>.*) (?<load>.*)")) + . | .results[0] as $first
    | {disk, policy, load, requests: $first.requests, guest: $first.irqs_per_io, iops: ([.results[].iops] | add),
       p50: $first.lat_us_p50, p99: $first.lat_us_p99}
      + (if .disk == "qemu" then {} else
          .disk as $disk | def delta(f): ($stats[$k + 1] | count($disk; f)) - ($stats[$k] | count($disk; f));
          delta(.completions) as $n | {device: (delta(.interrupts) / $n), messages: (delta(.device.kicks) / $n)} end)
      + (if $marks == [] then {} else {instructions: ($marks[2 * $k + 1] - $marks[2 * $k])} end)' "$work/lines" > "$work/$name"
}
run times "${ROUNDS:-2}" "${RUNTIME:-0.8}"
plugin=(-plugin "$work/count.so,out=$work/marks")
if echo quit | "$QEMU" -machine none -display none -monitor stdio "${plugin[@]}" > "$work/plugin" 2>&1; then
  INITRD=$work/mark.cpio run counts 1 0.4 "${plugin[@]}"
else
  echo "SKIPPED: counting instructions: $(tail -n 1 "$work/plugin")"
  : > "$work/counts"
fi

echo "$(date -u +%F), $("$QEMU" --version | sed -n '1s/.*version \([^ ]*\).*/QEMU \1/p'), $(sed -n 's/^GUEST-READY \(kernel=[^ ]*\).*/\1/p' "$work/lines")," \
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
