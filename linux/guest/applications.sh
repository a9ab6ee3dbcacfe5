# shellcheck shell=dash
# Applications on the NVMe disk, in turns: each of LOADS under each of POLICIES, ROUNDS times, each round another policy first.
# The host sets the device's policy at each step "POLICY LOAD"; what the driver does by it is set here.
#
# A turn executes /mark before and after, where the host counts instructions, and prints a RESULT: operations and how
# long they took, latency of one in us where the load has it, and what the guest did meanwhile. Policy "start", before the
# others, is none for a load of next to nothing: what its programs need to start.
# shellcheck source=linux/guest/lib.sh
. /cint/lib.sh
# shellcheck disable=SC2086 # a list of words
for dir in proc sys dev; do mount --bind /$dir /tools/$dir; done
mount -t tmpfs tmp /tools/tmp
mkdir -p /tools/dev/shm /tools/mnt /tools/etc
mount -t tmpfs shm /tools/dev/shm
chmod 1777 /tools/tmp /tools/dev/shm
cp /etc/passwd /etc/group /tools/etc/
ln -sf dash /tools/usr/bin/sh
echo "nobody:x:65534:65534::/tmp:/bin/sh" >> /tools/etc/passwd
inside() { env -i PATH=/usr/lib/postgresql/bin:/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C chroot /tools "$@"; }
nobody() { inside /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
ln -s "$(cd /tools && echo usr/lib/postgresql/*/bin | sed 's,usr/lib/postgresql/,,')" /tools/usr/lib/postgresql/bin

# A file system on the first half of the disk; the bulk reader has the second.
half=$(($(cat "/sys/block/$DISK/size") / 4096))
if ! /usr/bin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 "$DEV" ${half}M > out 2>&1 ||
  ! mount -t ext4 "$DEV" /tools/mnt > out 2>&1; then
  fail "no file system: $(head -n 1 out)"
fi
chmod 1777 /tools/mnt
cpu=$(irq_cpu)
set_parameter cint_hold_us $((200 * ${SCALE:-1}))
fio_load() { # NAME FIO-OPTIONS...
  time=$(for_seconds "${RUNTIME:-2}")
  [ -z "$start" ] || time=--number_ios=1
  GLOBAL="$time --offset=${half}M --size=64M" measure "$@" > out || fail "$1: $(grep GUEST-FIO out)"
  grep '^RESULT' out > fio_result || fail "$1: no result"
}
from_fio() { sed -n "${2:-1}s/.*\"$1\":\([0-9.]*\).*/\1/p" fio_result; }
bulk() { # beside what comes next, until end_bulk
  fio --name=bulk --filename="$DEV" --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --rw=randread --randrepeat=0 \
    --time_based --runtime=1d --offset=${half}M --size=64M --disk_util=0 --cpus_allowed="$cpu" > /dev/null 2>&1 &
  until pidof fio > /dev/null; do sleep 0.1; done
  sleep 0.5
}
end_bulk() { killall fio; wait; }
wrong() { cat "$@" | tail -n 5 | sed 's/^/GUEST-INFO /'; return 1; } # FILE...: what went wrong
now() { cut -d' ' -f1 /proc/uptime; }

# What has to be there before the first turn.
prepare() {
  case $1 in
    sqlite*)
      [ ! -e /tools/mnt/sqlite ] || return 0
      new_database /tools/mnt/sqlite ;;
    rocksdb-fill) ;;
    rocksdb*)
      [ ! -e /tools/mnt/rocksdb ] || return 0
      db_bench --benchmarks=fillrandom > out 2>&1 || wrong out ;;
    kvell)
      [ -x /tools/usr/bin/kvell ] || { fail "kvell needs KVELL=PROGRAM"; return 1; }
      inside kvell 1 1 1 > out 2>&1 || wrong out ;;
    kvell-rocksdb) prepare kvell && prepare rocksdb ;;
    postgres)
      nobody initdb --no-sync --no-instructions -A trust -D /mnt/postgres > out 2>&1 || wrong out || return
      nobody pg_ctl -w -D /mnt/postgres -l /tmp/log -o "-k /tmp -B 2048 -c jit=off -c listen_addresses=" start > out 2>&1 ||
        wrong out /tools/tmp/log || return
      nobody pgbench -h /tmp -i -q -s 2 postgres > out 2>&1 || wrong out ;;
  esac
}
db_bench() {
  inside db_bench --db=/mnt/rocksdb --num=40000 --value_size=400 --compression_type=none --cache_size=65536 \
    --use_direct_reads=1 --use_direct_io_for_flush_and_compaction=1 --write_buffer_size=2097152 \
    --target_file_size_base=2097152 --histogram=1 "$@"
}
# N at a time, submitted together and taken together, on the CPU that the disk interrupts.
in_batches() {
  echo --iodepth_batch_submit="$1" --iodepth_batch_complete_min="$1" --iodepth_batch_complete_max="$1" --cpus_allowed="$cpu"
}
# Runs a load; with "start" set to 1, its programs for next to nothing. Sets ops (what is counted), and where it is known
# seconds, p50 and p99 (us).
run() {
  seconds='' p50='' p99='' cpu_first='' cpu_second=''
  # shellcheck disable=SC2046 # lists of words
  case $1 in
    # One reader that waits for each read, alone, and beside a bulk reader: its latency, and both readers' requests.
    sync) fio_load sync --rw=randread --ioengine=psync ;;
    sync-bulk) fio_load sync --rw=randread --ioengine=psync --name=bulk --rw=randread --iodepth=32 --cpus_allowed="$cpu" ;;
    sync-bulk256) fio_load sync --rw=randread --ioengine=psync --name=bulk --rw=randread --iodepth=256 $(in_batches 16) ;;
    # As the paper's Figures 10 and 11 have it: both on one CPU, and each of the bulk reader's requests submitted by itself.
    mixed[0-9]*) fio_load sync --rw=randread --ioengine=psync --cpus_allowed="$cpu" \
      --name=bulk --rw=randread --iodepth="${1#mixed}" --cpus_allowed="$cpu" ;;
    # Figure 17: four that wait for each read, on one CPU.
    sync4) fio_load sync --rw=randread --ioengine=psync --numjobs=4 --group_reporting --cpus_allowed="$cpu" ;;
    # Figure 12: threads of one CPU with a batch each.
    batch4x[0-9]) fio_load batch --rw=randread --iodepth=4 --numjobs="${1#batch4x}" --group_reporting $(in_batches 4) ;;
    bulk256) fio_load bulk --rw=randread --iodepth=256 $(in_batches 16) ;;
    # N reads at a time, and nothing until all are back.
    batch*) fio_load batch --rw=randread --iodepth="${1#batch}" $(in_batches "${1#batch}") ;;
    bulk64) fio_load bulk --rw=randread --iodepth=64 --cpus_allowed="$cpu" ;;
    sqlite) ops=${start:-300}; transactions "$ops" | sqlite3 /tools/mnt/sqlite > /dev/null || return 1 ;;
    sqlite-bulk) ops=${start:-300}; bulk; t0=$(now)
      transactions "$ops" | sqlite3 /tools/mnt/sqlite > /dev/null || return 1
      t1=$(now); end_bulk
      seconds=$(echo "$t0 $t1" | awk '{ print $2 - $1 }') ;;
    rocksdb-fill) rocksdb fillrandom --db=/mnt/fill --num=${start:-20000} ;;
    rocksdb-write) rocksdb overwrite --num=${start:-20000} --use_existing_db=1 ;;
    rocksdb-read) rocksdb readrandom --threads=4 --reads=${start:-1500} --use_existing_db=1 ;;
    rocksdb-mixed) rocksdb readwhilewriting --threads=4 --reads=${start:-1000} --use_existing_db=1 ;;
    # Reads of 1 KiB, 64 at a time, by one worker that submits in batches.
    kvell)
      inside kvell 1 1 ${start:-60000} > out 2>&1 || wrong out || return
      set -- "$1" $(sed -n 's,^.* - \([0-9]*\) requests (\([0-9]*\) req/s).*,\1 \2,p' out | tail -n 1)
      ops=$2 seconds=$(awk -v ops="$2" -v rate="$3" 'BEGIN { print ops / rate }')
      p99=$(sed -n 's/.*99p - \([0-9]*\) us.*/\1/p' out | tail -n 1) ;;
    # Four threads of RocksDB beside it, who wait for each read.
    kvell-rocksdb)
      inside kvell 1 1 1000000000 > kvell_out 2>&1 &
      until grep -q 'Init found' kvell_out; do sleep 0.1; done
      sleep 0.5
      rocksdb readrandom --threads=4 --reads=${start:-1500} --use_existing_db=1
      rc=$?
      killall kvell
      wait
      return $rc ;;
    postgres)
      nobody pgbench -h /tmp -n -c 4 -t ${start:-75} -l --log-prefix=/tmp/pgbench postgres > out 2>&1 || wrong out || return
      ops=$(sed -n 's,^number of transactions actually processed: \([0-9]*\).*,\1,p' out)
      seconds=$(sed -n 's/^tps = \([0-9.]*\) .*/\1/p' out | awk -v ops="$ops" '{ print ops / $1 }')
      set -- $(awk '{ print $3 }' /tools/tmp/pgbench* | sort -n |
        awk '{ a[NR] = $1 } END { print a[int(NR / 2) + 1], a[int(NR * .99) + 1] }')
      p50=$1 p99=$2
      rm /tools/tmp/pgbench* ;;
    *) fail "no such load: $1"; return 1 ;;
  esac
  case $1 in sync* | mixed* | bulk* | batch*)
    ops=$(awk -F'"ios":' '{ sum += $2 } END { print sum }' fio_result) seconds=${RUNTIME:-2}
    p50=$(from_fio lat_us_p50) p99=$(from_fio lat_us_p99) cpu_first=$(from_fio cpu) cpu_second=$(from_fio cpu 2) ;;
  esac
}
# The threads that flush and compact get I/O priority idle, by which the driver's hints know that nobody waits for them.
mark_background() {
  until pidof db_bench > /dev/null; do sleep 0.05; done
  while pidof db_bench > /dev/null; do
    for comm in /proc/"$(pidof db_bench | cut -d' ' -f1)"/task/*/comm; do
      case $(cat "$comm" 2> /dev/null) in
        rocksdb:*) comm=${comm%/comm}; ionice -c 3 -p "${comm##*/}" 2> /dev/null ;;
      esac
    done
    sleep 0.2
  done
}
rocksdb() { # BENCHMARK OPTIONS...
  name=$1; shift
  case $policy in *-idle) mark_background & ;; esac
  db_bench --benchmarks="$name" "$@" > out 2>&1 || wrong out || return
  # NAME : X micros/op Y ops/sec Z seconds N operations; ...
  # shellcheck disable=SC2046 # two words
  set -- $(sed -n "s,^$name .* \([0-9.]*\) seconds \([0-9]*\) operations.*,\1 \2,p" out)
  seconds=$1 ops=$2
  p50=$(sed -n 's/^Percentiles: P50: \([0-9.]*\) .*/\1/p' out | head -n 1)
  p99=$(sed -n 's/^Percentiles: .* P99: \([0-9.]*\) .*/\1/p' out | head -n 1)
}
switches() { awk '$1 == "ctxt" { print $2 }' /proc/stat; }
turn() { # POLICY LOAD
  policy=$1 start=
  case $1 in start) start=1 ;; esac
  case $1 in cint | cint-ooo | paper* | urgent* | storm) wire=cdw12:16 ;; *) wire=none ;; esac
  case $1 in urgent*) last=0 ;; *) last=1 ;; esac
  case $1 in *-ooo) ooo=1 ;; *) ooo=0 ;; esac
  # Each turn finds the same database.
  case $2 in rocksdb-fill) ;; *rocksdb*) db_bench --benchmarks=compact --use_existing_db=1 > out 2>&1 || { wrong out; fail "$*"; } ;; esac
  sync
  echo 3 > /proc/sys/vm/drop_caches
  step "$1 $2"
  sleep "${PAUSE:-0.3}"
  set_parameter cint_wire $wire
  set_parameter cint_last $last
  set_parameter cint_ooo $ooo
  n0=$(requests) i0=$(irqs) s0=$(switches) t=$(now)
  /mark
  run "$2" || fail "$*"
  /mark
  : "${seconds:=$(echo "$t $(now)" | awk '{ print $2 - $1 }')}"
  printf 'RESULT {"policy":"%s","load":"%s","ops":%d,"seconds":%s,"p50":%s,"p99":%s,' \
    "$1" "$2" "$ops" "$seconds" "${p50:-null}" "${p99:-null}"
  printf '"cpu":%s,"cpu2":%s,' "${cpu_first:-null}" "${cpu_second:-null}"
  printf '"requests":%d,"interrupts":%d,"switches":%d}\n' $(($(requests) - n0)) $(($(irqs) - i0)) $(($(switches) - s0))
}
for load in $(echo "${LOADS:?}" | tr , ' '); do
  prepare "$load" || { fail "$load cannot be prepared"; continue; }
  turn start "$load"
  # shellcheck disable=SC2046 # a list of words
  set -- $(echo "${POLICIES:?}" | tr , ' ')
  for _ in $(seq "${ROUNDS:-1}"); do
    for policy; do turn "$policy" "$load"; done
    first=$1; shift; set -- "$@" "$first"
  done
done
step end
sleep "${PAUSE:-0.3}"
finish
