#!/usr/bin/env bash
# Applications in a guest that has the driver with hints, on our NVMe disk: what each policy costs and saves them.
#
#   applications.sh        a table (docs/linux-hints.md); three quarters of an hour
#
#   LOADS=A,B      [sync,sync-bulk,sync-bulk256,bulk64,bulk256,batch4,batch16,sqlite,sqlite-bulk,rocksdb-write,rocksdb-read,
#                  rocksdb-mixed,postgres]; all: linux/guest/applications.sh
#   POLICIES=A,B   [none,nvme,vic,cint-plain,cint,cint-ooo,auto]; "none" is measured twice: how far the two differ is noise
#                  nvme: 9 completions or 100 us (thr=8, which counts from 0, as Set Features 08h does)
#                  cint-plain: without hints; cint: the driver's hints; cint-ooo: the driver takes urgent completions first, too
#                  adaptive, paper, paper-ooo: the same three, as the paper has them: no rule on commands in flight, thr=32;
#                  adaptiveN: thr=N; urgent, urgent-ooo: without Barriers; storm: with the storm guard; nvmeN: N us, or 33;
#                  paper-idle: RocksDB's own threads with I/O priority idle, for which there is no hint
#   LATENCY=TIME   the disk is memory that takes TIME for a command, for many at once, instead of a file
#   SCALE=N        times the times of nvme, adaptive, paper and paper-ooo: they are for a disk of 10 us (LATENCY=1ms: 100) [1]
#   ROUNDS=N       of all turns [6]        RUNTIME=S   seconds of each turn of fio [2]
#   KVELL=PROGRAM  a statically linked KVell, for the loads kvell and kvell-rocksdb: arguments disks, workers, requests, and its files in
#                  /mnt
#   KERNEL         as for build.sh [6.1]   OUT=DIR     keeps what was measured
#   SPDK_TGT=PROGRAM   coalesce_spdk_tgt, whose NVMe disk over vfio-user is used instead of ours, on the same file. Policy
#                  "none" is SPDK as it is. It polls, and takes a CPU
#
# Counts, per I/O or per transaction, are exact: signals that the disk sent, interrupts as the guest counts them, context
# switches, and instructions of all the guest's CPUs, which a plugin of QEMU counts, without those of starting the programs.
# Times are of an emulated CPU (TCG): ratios to "none" of the same round, their median, and between which the median of many
# rounds would be (sign test, 95 %; it needs six rounds).
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; }
cd "$(dirname "$0")/.."
missing=$(guest/ready.sh) || { echo "SKIPPED: applications in a guest: $missing"; exit; }
policies=${POLICIES:-none,nvme,vic,cint-plain,cint,cint-ooo,auto}
[[ ,$policies, == *,none,* ]] || { echo "POLICIES=$policies: none is missing, to which the others are compared" >&2; exit 2; }
QEMU=$(guest/make-qemu.sh 2>&1) || { echo "SKIPPED: applications in a guest: $QEMU"; exit; }
command -v cc > /dev/null || guest/packages.sh build-essential
loads=${LOADS:-sync,sync-bulk,sync-bulk256,bulk64,bulk256,batch4,batch16}
[ -n "${LOADS:-}" ] || loads+=,sqlite,sqlite-bulk,rocksdb-write,rocksdb-read,rocksdb-mixed,postgres
packages=(dash util-linux)
[[ $loads != *rocksdb* ]] || packages+=(rocksdb-tools)
[[ $loads != *postgres* ]] || packages+=(postgresql)
module=$(linux/build.sh "${KERNEL:-6.1}")
tools=$(guest/make-tools.sh "${packages[@]}")
cargo build --quiet --locked --release --package coalesce-target
program=$(realpath "${CARGO_TARGET_DIR:-target}")/release/coalesce-target
work=$(mktemp -d)
# On the machine's own disk, past its page cache: completions come after a disk's time, one by one. /tmp may be memory.
image=$(mktemp -p "$(dirname "$program")" disk.XXXXXX)
target='' signal=TERM failed=''
trap '[ -z "$target" ] || kill -"$signal" "$target" 2> /dev/null || true; rm -rf "$work" "$image"' EXIT

mkdir -p "$work/root/cint" "$work/root/mods"
guest/plugin/build.sh "$work" "$work/root/mark"
if [ -n "${KVELL:-}" ]; then install -D "$KVELL" "$work/root/tools/usr/bin/kvell"; fi
cp "$module" "$work/root/mods/nvme.ko"
cp linux/guest/lib.sh "$work/root/cint"
{ cat "$tools"; (cd "$work/root" && find . | cpio --quiet -o -H newc -R 0:0); } > "$work/initrd"

truncate -s 1G "$image"
call() { "$program" call --control "$work/control" "$@"; } # SPDK's calls have the form of ours
if [ -z "${SPDK_TGT:-}" ]; then
  socket=$work/nvme named='"ctrlr": "nvme"' prefix='' queues='.queues[]'
  disk=(--file "$image" --direct)
  [ -z "${LATENCY:-}" ] || disk=(--memory 1G --latency "$LATENCY")
  "$program" serve --device nvme --socket "$socket" "${disk[@]}" --queues 2 --control "$work/control" 2> "$work/log" &
  target=$!
  for _ in $(seq 100); do [ ! -S "$work/control" ] || break; sleep 0.05; done
else
  # Its queue 0 is the admin queue.
  nqn=nqn.2016-06.io.spdk:nvme
  socket=$work/disk/cntrl named="\"nqn\": \"$nqn\"" prefix=coalesce_ queues='.queues[] | select(.queue > 0)'
  signal=KILL # asked to end, it hangs while a connection closes
  "$SPDK_TGT" --no-huge -s 1536 --iova-mode va -u -m 0x1 --disable-cpumask-locks -S "$work" -r "$work/control" > "$work/log" 2>&1 &
  target=$!
  for _ in $(seq 200); do if call spdk_get_version > /dev/null 2>&1; then break; fi; sleep 0.1; done
  mkdir "$work/disk"
  {
    call bdev_aio_create "{\"name\": \"file\", \"filename\": \"$image\", \"block_size\": 512}"
    call nvmf_create_transport '{"trtype": "VFIOUSER"}'
    call nvmf_create_subsystem "{$named, \"allow_any_host\": true}"
    call nvmf_subsystem_add_ns "{$named, \"namespace\": {\"bdev_name\": \"file\"}}"
    call nvmf_subsystem_add_listener "{$named,
      \"listen_address\": {\"trtype\": \"VFIOUSER\", \"traddr\": \"$work/disk\", \"trsvcid\": \"0\"}}"
  } > /dev/null
  # Its namespaces can be shared, and Linux would take them for multipath devices.
  export APPEND="nvme_core.multipath=N${APPEND:+ $APPEND}"
fi
scale=${SCALE:-1}
paper=in_flight=off,delta=$((6 * scale))us,max_hold=off
cat > "$work/step" <<STEP
name=\${1%% *}
case \$name in
  none* | start) policy=none ;;
  nvme) policy=nvme:thr=8,time=$((100 * scale))us ;;
  nvme*) policy=nvme:thr=32,time=\$((\${name#nvme} * $scale))us ;;
  cint-plain) policy=cint:hints=none,bits=none,ooo=off ;;
  cint) policy=cint:ooo=off ;;
  cint-ooo) policy=cint:ooo=on ;;
  adaptive*) thr=\${name#adaptive}; policy=cint:hints=none,bits=none,ooo=off,thr=\${thr:-32},$paper ;;
  storm) policy=cint:ooo=off,storm=$((150000 / scale)),$paper ;;
  paper | paper-idle | urgent) policy=cint:ooo=off,$paper ;;
  paper-ooo | urgent-ooo) policy=cint:ooo=on,$paper ;;
  *) policy=\$name ;;
esac
call() { "$program" call --control "$work/control" "\$@"; }
call ${prefix}get_stats | jq -c 'map($queues | {completions, signals: .interrupts})' >> "$work/stats"
[ "\$1" = end ] || call ${prefix}set_policy '{$named, "policy": "'"\$policy"'"}' > /dev/null
STEP
# The kernel that the module is for.
meta=linux-image-$(PATH=$PATH:/usr/sbin:/sbin modinfo -F vermagic "$module" | cut -d' ' -f1)
touch "$work/marks" "$work/stats"
KERNEL_META=$meta INITRD=$work/initrd MEM=3072 TIMEOUT=7200 ON_STEP="sh $work/step" guest/run-guest.sh \
  linux/guest/applications.sh "nvme:$socket" LOADS="$loads" ROUNDS="${ROUNDS:-6}" RUNTIME="${RUNTIME:-2}" SCALE="$scale" \
  POLICIES="$policies,none2" -- -plugin "$work/count.so,out=$work/marks" \
  > "$work/lines" 2> "$work/err" || failed=1
if [ -n "${OUT:-}" ]; then mkdir -p "$OUT"; cp "$work"/{lines,marks,stats} "$OUT"; fi
if [ -n "$failed" ]; then
  grep -E 'ERROR|FIO|INFO' "$work/lines" >&2 || true
  tail -n 20 "$work/err" >&2
  exit 1
fi

echo "$(date -u +%F), $("$QEMU" --version | sed -n '1s/.*version \([^ ]*\).*/QEMU \1/p')," \
  "$(sed -n 's/^GUEST-READY \(kernel=[^ ]*\).* \(accel=.*\)/\1, \2/p' "$work/lines")," \
  "$(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)," \
  "$(git rev-parse --short HEAD)"
linux/guest/applications.py "$work/lines" "$work/marks" "$work/stats" | tee "${OUT:-$work}/table"
