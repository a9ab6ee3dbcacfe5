#!/usr/bin/env bash
# Scheduler awareness in a real guest: its CPU comes in slices, and vIC is told of them, or not.
#
#   slices.sh   a quarter of an hour; needs root, for the real-time priority of slices.py
#
#   RUN_US=N, PAUSE_US=N   the guest's slices, and the pauses between them [5000, 5000]
#   LATENCY=TIME           of a request [1ms]
#   DEPTHS=A,B             [1,8,16,32]
#   ROUNDS=N               of all turns [4]      RUNTIME=S   seconds of each [2]
#   OUT=DIR                keeps what was measured
#
# A guest with one CPU, a virtio-blk disk in memory, QEMU's emulation also where there is KVM, so that runs are comparable. The slices are
# exact but for the lateness that is printed: the helper that makes them tells of them. What a scheduler would only guess is known here.
# All of QEMU stops, its device threads too, as the guest's CPU alone would under KVM. The disk does not stop.
#   vic-told   vic, and the target is told of each slice and pause; the others are not told
#   signals    the disk's, for each I/O        guest irq   as the guest counts them
#   mean, p99  fio's lat in the guest, pauses included, over that of "none" in the same round; median (smallest, largest)
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; }
cd "$(dirname "$0")/.."
missing=$(guest/ready.sh) || { echo "SKIPPED: slices of a guest: $missing"; exit; }
cargo build --quiet --locked --release --package coalesce-target
program=$(realpath "${CARGO_TARGET_DIR:-target}")/release/coalesce-target
run_us=${RUN_US:-5000} pause_us=${PAUSE_US:-5000}
work=$(mktemp -d)
target=''
# shellcheck disable=SC2317 # called by trap
cleanup() { [ -z "$target" ] || kill "$target" 2> /dev/null || true; wait; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

"$program" serve --socket "$work/disk" --memory 256M --latency "${LATENCY:-1ms}" --queues 1 --control "$work/control" 2> "$work/log" &
target=$!
for _ in $(seq 600); do [ ! -S "$work/control" ] || break; sleep 0.05; done
# At each step "disk:policy load": what the target has counted, then the policy. The first one begins the slices.
cat > "$work/step" <<STEP
call() { "$program" call --control "$work/control" "\$@"; }
call get_stats | jq -c --arg step "\$1" '.[0].queues[0] | {step: \$step, completions, signals: .interrupts, delivered}' >> "$work/stats"
policy=\${1#*:} policy=\${policy%% *}
case \$policy in
  end) exit ;;
  *-told) touch "$work/told" ;;
  *) rm -f "$work/told" ;;
esac
call set_policy "{\"ctrlr\":\"disk\",\"policy\":\"\${policy%[-2]*}\"}" > /dev/null
[ -e "$work/begun" ] || { touch "$work/begun"; scripts/slices.py "\$GUEST_PID" "$work/control" disk $run_us $pause_us "$work/told" > "$work/late" & }
STEP
depths=${DEPTHS:-1,8,16,32}
ACCEL=tcg CPUS=1 TIMEOUT=3000 ON_STEP="sh $work/step" guest/run-guest.sh compare "$work/disk" \
  TURNS=disk:none,disk:vic,disk:vic-told,disk:none2 "ROUNDS=${ROUNDS:-4}" "LOADS=depth${depths//,/,depth}" "RUNTIME=${RUNTIME:-2}" \
  > "$work/lines" 2> "$work/err" || { grep -E 'ERROR|FIO' "$work/lines" >&2 || true; tail -n 20 "$work/err" >&2; exit 1; }
sleep 0.5

echo "$(date -u +%F), $(qemu-system-x86_64 --version | sed -n '1s/.*version \([^ ]*\).*/QEMU \1/p'), $(sed -n 's/^GUEST-READY \(kernel=[^ ]*\).* \(accel=.*\)/\1, \2/p' "$work/lines")," \
  "$(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg), $(git rev-parse --short HEAD)"
echo "slices of $run_us us, pauses of $pause_us us, disk ${LATENCY:-1ms}; slices ended late by (us: median, 99 %, most; slices): $(cat "$work/late")"
jq -nRc --slurpfile stats "$work/stats" '
  [(reduce inputs as $line ([];
    if $line | startswith("GUEST-STEP ") then . + [{step: $line[11:]}]
    elif $line | startswith("RESULT ") then .[-1] += ($line[7:] | fromjson) else . end))[] | select(.step != "end")]
  | to_entries[] | .key as $k | .value
  | (.step | capture("[^:]*:(?<policy>.*) depth(?<depth>.*)")) as $turn
  | ($stats[$k + 1].completions - $stats[$k].completions) as $n
  | {depth: ($turn.depth | tonumber), policy: $turn.policy, mean: .lat_us_mean, p99: .lat_us_p99, iops, guest: .irqs_per_io,
     signals: (($stats[$k + 1].signals - $stats[$k].signals) / $n),
     ends: ((($stats[$k + 1].delivered.slice_end // 0) - ($stats[$k].delivered.slice_end // 0)) / $n)}' "$work/lines" > "$work/turns"
jq -rn --slurpfile turns "$work/turns" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def show(digits): . * pow(10; digits) | round / pow(10; digits) | tostring;
  def spread: "\(median | show(2)) (\(min | show(2)), \(max | show(2)))";
  ["depth", "policy", "signals", "at the end of a slice", "guest irq", "IOPS", "mean us", "mean, over none", "p99, over none"],
  ["--:", "--", "--:", "--:", "--:", "--:", "--:", "--:", "--:"],
  ($turns | group_by(.depth)[] | . as $of | map(select(.policy == "none")) as $none
   | ("none", "none2", "vic", "vic-told") as $policy | [$of[] | select(.policy == $policy)] as $rows
   | [($of[0].depth | tostring), ($policy | if . == "none2" then "none, again" else . end), ([$rows[].signals] | median | show(3)),
      ([$rows[].ends] | median | show(3)), ([$rows[].guest] | median | show(3)), ([$rows[].iops] | median | show(0)),
      ([$rows[].mean] | median | show(0)), ([range($rows | length) | $rows[.].mean / $none[.].mean] | spread),
      ([range($rows | length) | $rows[.].p99 / $none[.].p99] | spread)])
  | "| " + join(" | ") + " |"' | tee "$work/table"
if [ -n "${OUT:-}" ]; then mkdir -p "$OUT"; cp "$work"/{turns,table,late} "$OUT"; fi
