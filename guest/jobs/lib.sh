# shellcheck shell=dash
# Helpers for jobs; run in the guest by busybox sh. DISK_LIST names the disks: "vda vdb nvme0n1".

bad=0
fail() { echo "GUEST-ERROR $*"; bad=1; }
finish() { exit "$bad"; } # the end of every job
step() { echo "GUEST-STEP $*"; }

# use vda: the disk that the functions below look at. IRQS matches the names of its queues' interrupts in /proc/interrupts:
# "virtioN-req.Q", where N is not the disk's number but the device's; or "nvmeNqQ", without the admin queue's nvmeNq0.
use() {
  DISK=$1 DEV=/dev/$1
  case $DISK in
    nvme*) IRQS="^${DISK%n*}q[1-9]" ;;
    *) IRQS="^$(basename "$(readlink -f "/sys/block/$1/device")")-req[.]" ;;
  esac
  awk -v name="$IRQS" '$NF ~ name { found = 1 } END { exit !found }' /proc/interrupts ||
    fail "$DISK has no interrupt of its own per queue"
}

# Interrupts of the disk's request queues so far, over all CPUs.
irqs() {
  awk -v name="$IRQS" '$NF ~ name { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { printf "%d\n", sum }' \
    /proc/interrupts
}
# answer_irqs TTY: for each line that comes, the same line and the interrupts of the disk's request queues so far: of each vector, by
# CPU with commas between. These are the counts of /proc/interrupts, without the time that it takes to print all of those.
answer_irqs() {
  files=$(awk -v name="$IRQS" '$NF ~ name { print "/sys/kernel/irq/" $1 + 0 "/per_cpu_count" }' /proc/interrupts)
  stty -F "$1" 115200 raw -echo
  # shellcheck disable=SC2094 # a serial line
  while read -r answer; do
    for file in $files; do
      read -r counts < "$file"
      answer="$answer $counts"
    done
    echo "$answer"
  done < "$1" > "$1"
}
# The CPU that the disk's first request queue interrupts.
irq_cpu() {
  cat "/proc/irq/$(awk -v name="$IRQS" '$NF ~ name && !seen++ { print $1 + 0 }' /proc/interrupts)/effective_affinity_list"
}
# Requests the disk has completed so far (the kernel counts a flush as a write, too); flushes alone.
requests() { awk '{ printf "%d\n", $1 + $5 }' "/sys/block/$DISK/stat"; }
flushes() { awk '{ printf "%d\n", $16 }' "/sys/block/$DISK/stat"; }

# A device that says it has no write cache gets no flushes from Linux, unless it is told otherwise.
write_back() {
  cache=/sys/block/$DISK/cache_type
  if [ -e "$cache" ] && grep -q through "$cache"; then echo "write back" > "$cache" || true; fi
  grep -q back "/sys/block/$DISK/queue/write_cache" || echo "GUEST-INFO $DISK has no write cache: no flushes"
}

# The request queues' lines themselves, for a look at the spread over CPUs and queues.
show_irqs() { grep -E -- '-req\.|nvme[0-9]+q' /proc/interrupts | sed 's/^/IRQ /'; }

# for_seconds S: fio's options to run that long. S may have a fraction; fio's own seconds may not, and it says nothing.
for_seconds() { awk -v s="$1" 'BEGIN { printf "--time_based --runtime=%dms\n", s * 1000 }'; }

# measure NAME FIO-OPTIONS...: run fio on the disk, print one RESULT line per fio job, return fio's
# status. More jobs for the same run: ... --name=OTHER FIO-OPTIONS. GLOBAL has options for
# all of them, WITH a command to run fio under.
#   ios, iops         what fio counted, after its ramp time
#   clat, lat         from the end, or the start, of the submission to the completion. Compare lat: ringing
#                     the doorbell is slow under emulation, and the completion can come meanwhile.
#   requests          reads, writes and flushes the disk completed meanwhile, in the ramp time, too, and in all jobs
#   irqs, flushes     the disk's, meanwhile; irqs_per_io is irqs / requests
#   cpu               what the job used of one CPU, in percent
#   errors            fio's error number, 0 if there was none, -1 if fio said nothing
measure() {
  name=$1; shift
  n0=$(requests) i0=$(irqs) f0=$(flushes) rc=0
  # shellcheck disable=SC2086 # lists of words
  ${WITH:-} fio --output=fio.json --output-format=json --percentile_list=50:90:99:99.9 --lat_percentiles=1 --clat_percentiles=1 --name=global --filename="$DEV" \
    --bs=4k --direct=1 --ioengine=libaio --randrepeat=0 --disk_util=0 ${GLOBAL:-} --name="$name" "$@" > fio.err 2>&1 || rc=$?
  i1=$(irqs) f1=$(flushes) n1=$(requests)
  awk -v disk="$DISK" -v name="$name" -v rc="$rc" -v irqs=$((i1 - i0)) -v flushes=$((f1 - f0)) -v n=$((n1 - n0)) '
    function result(errors, d) {
      for (d in way) if (v[way[d] ".iops"] + 0 == 0) v[way[d] ".total_ios"] = 0 # writes that --verify_only only pretends
      d = v["write.total_ios"] > v["read.total_ios"] ? "write" : "read"
      printf "RESULT {\"disk\":\"%s\",\"job\":\"%s\",\"rc\":%d,\"errors\":%d", disk, v["jobname"], rc, errors
      printf ",\"ios\":%d,\"read_iops\":%.0f,\"write_iops\":%.0f,\"iops\":%.0f", v["read.total_ios"] + v["write.total_ios"],
        v["read.iops"], v["write.iops"], v["read.iops"] + v["write.iops"]
      printf ",\"clat_us_mean\":%.1f,\"clat_us_p50\":%.1f,\"clat_us_p99\":%.1f", v[d ".clat_ns.mean"] / 1000,
        v[d ".clat_ns.percentile.50.000000"] / 1000, v[d ".clat_ns.percentile.99.000000"] / 1000
      printf ",\"lat_us_mean\":%.1f,\"lat_us_p50\":%.1f,\"lat_us_p90\":%.1f,\"lat_us_p99\":%.1f,\"lat_us_p99_9\":%.1f",
        v[d ".lat_ns.mean"] / 1000, v[d ".lat_ns.percentile.50.000000"] / 1000, v[d ".lat_ns.percentile.90.000000"] / 1000,
        v[d ".lat_ns.percentile.99.000000"] / 1000, v[d ".lat_ns.percentile.99.900000"] / 1000
      printf ",\"cpu\":%.1f", v["usr_cpu"] + v["sys_cpu"]
      printf ",\"irqs\":%d,\"irqs_per_io\":%.4f,\"flushes\":%d,\"requests\":%d}\n", irqs, n ? irqs / n : 0, flushes, n
      seen = 1
    }
    BEGIN { split("read write", way) }
    # fio puts one key, or one bracket, on a line: keep the path of open keys below each job.
    { gsub(/[ \t\r",]/, "") }
    /^}/ { if (depth == base && inside) { result(v["error"]); split("", v); inside = 0 } depth--; next }
    /^]/ { depth--; next }
    /[[{]$/ {
      depth++; sub(/:?[[{]$/, ""); key[depth] = $0
      if ($0 == "" && key[depth - 1] == "jobs") { base = depth; inside = 1 }
      next
    }
    inside && /:/ {
      path = ""
      for (i = base + 1; i <= depth; i++) path = path key[i] "."
      sep = index($0, ":"); v[path substr($0, 1, sep - 1)] = substr($0, sep + 1)
    }
    END { if (!seen) { split("", v); v["jobname"] = name; result(-1) } }' fio.json
  [ "$rc" = 0 ] || { cat fio.err; grep '^fio:' fio.json || true; } | head -n 3 | sed 's/^/GUEST-FIO /'
  rm -f fio.json fio.err
  return "$rc"
}

# pass N NAME FIO-OPTIONS...: random writes with flushes over SIZE (MiB, default 16M) of the disk. Every block is filled with its
# own offset and N, so that a lost write shows: checksums alone would accept what an earlier pass left.
pass() {
  pattern="%o0x$(printf %08x "$1")" label=$2; shift 2
  measure "$label" --rw=randwrite --size="${SIZE:-16M}" --iodepth=16 --fdatasync=32 --verify=pattern \
    --verify_pattern="$pattern" --verify_fatal=1 --verify_state_save=0 "$@"
}
# Blocks are read back and compared soon after they were written, and all of them at the end.
write_pass() { pass "$@" --verify_backlog=128 --do_verify=1; }
# What pass N has written is there: every block is read, from the disk.
read_pass() { # N NAME
  echo 3 > /proc/sys/vm/drop_caches
  size=${SIZE:-16M} before=$(requests)
  pass "$@" --verify_only=1 && [ $(($(requests) - before)) -ge $((${size%M} * 256)) ]
}

# new_database FILE: for transactions, which have filled its log once.
new_database() {
  sqlite3 "$1" 'PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB); WITH RECURSIVE n (i) AS
    (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) INSERT INTO t SELECT i, randomblob(100) FROM n;' > /dev/null || return 1
  transactions 400 | sqlite3 "$1" > /dev/null
}
# transactions [N]: of one row each, N or without an end. A commit is one write and one flush where the log does not grow: after the
# first checkpoint, which is early, if the log is kept.
transactions() {
  echo '.filectrl persist_wal 1'
  echo 'PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 200;'
  yes 'UPDATE t SET v = randomblob(100) WHERE id = (SELECT abs(random()) % 1000);' | if [ $# = 0 ]; then cat; else head -n "$1"; fi
}

# load NAME: measures 4 KiB requests of one kind, with GLOBAL's options.
load() {
  case $1 in
    depth*) measure "$1" --rw=randread --iodepth="${1#depth}" ;;
    empty) measure empty --rw=randread --iodepth=1 ;;
    # A synchronous reader that someone waits for (real-time I/O priority), on any CPU, beside a bulk reader.
    mixed) measure mixed-sync --rw=randread --ioengine=psync --prioclass=1 --prio=0 \
      --cpus_allowed="$(cat /sys/devices/system/cpu/online)" --name=mixed-async --rw=randread --iodepth=32 ;;
    # Four reads at a time, and nothing until all four are back.
    batch4) measure batch4 --rw=randread --iodepth=4 --iodepth_batch_submit=4 --iodepth_batch_complete_min=4 \
      --iodepth_batch_complete_max=4 ;;
    # Bursts of 32 reads and a pause after each, on a CPU that a loop (compute.s) has in the pauses.
    compute)
      taskset "$(printf '%x' $((1 << $(irq_cpu))))" compute &
      loop=$!
      measure compute --rw=randread --iodepth=32 --iodepth_batch_submit=32 --iodepth_batch_complete_min=32 \
        --iodepth_batch_complete_max=32 --thinktime=2ms --thinktime_blocks=32 && rc=0 || rc=$?
      kill "$loop" 2> /dev/null || { fail "the loop has ended"; rc=1; }
      wait "$loop" || true
      return "$rc" ;;
    # SQLite transactions of one row on a file system in the first 64 MiB, beside a bulk reader of the next 64 MiB.
    sqlite)
      write_back
      mkdir -p /mnt
      # Not busybox's mke2fs, which makes no journal: without one not every fdatasync is a flush.
      /usr/bin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 "$DEV" 64M > /dev/null && mount -t ext4 "$DEV" /mnt || return 1
      new_database /mnt/db || return 1
      f0=$(flushes)
      transactions 200 | sqlite3 /mnt/db > /dev/null
      echo "GUEST-INFO $(($(flushes) - f0)) flushes for 200 transactions"
      transactions | sqlite3 /mnt/db > /dev/null &
      database=$!
      measure sqlite --rw=randread --iodepth=32 --offset=64M && rc=0 || rc=$?
      kill "$database"
      wait "$database" || true
      umount /mnt
      return "$rc" ;;
    fsync) write_back; measure fsync --rw=randwrite --ioengine=psync --fdatasync=1 ;;
    *) fail "no such load: $1" ;;
  esac
}
