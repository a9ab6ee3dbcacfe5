# shellcheck shell=dash
# Table 1 of the paper: what each system call's requests carry. Behind each row comes a read of 28 KiB, a size that nothing
# else has: the host splits the device's record at these.
# shellcheck source=linux/guest/lib.sh
. /cint/lib.sh
load cint_wire="${WIRE:-cdw12:16}" poll_queues=1

row() { # NAME COMMAND...: a name of "-" is no row of the table
  name=$1; shift
  "$@" > out 2>&1 || { fail "$name: $(tail -n 1 out)"; tail -n 5 out; }
  sync
  dd if="$DEV" of=/dev/null bs=28672 count=1 iflag=direct 2> /dev/null
  echo "RESULT {\"job\":\"row\",\"name\":\"$name\"}"
}
# 64 requests of 4 KiB, at other places than the rows before.
at=8
io() {
  at=$((at + 8)) offset=${at}M
  [ -z "${FILE:-}" ] || offset=0
  echo 3 > /proc/sys/vm/drop_caches
  # shellcheck disable=SC2086 # a list of words
  ${WITH:-} fio --name=row --filename="${FILE:-$DEV}" --bs=4k --size=256k --offset=$offset --disk_util=0 --thread=1 \
    --output-format=terse "$@"
}
batch() { io --iodepth=16 --iodepth_batch_submit=16 --iodepth_batch_complete_min=16 --direct=1 --rw=randread "$@"; }
# The last close of a disk writes what is dirty.
exec 9< "$DEV"
sync
row - true
row "pread, O_DIRECT" io --ioengine=psync --direct=1 --rw=randread
row "pread" io --ioengine=psync --rw=randread
row "pwrite, O_DIRECT" io --ioengine=psync --direct=1 --rw=randwrite
row "pwrite, O_DIRECT, O_DSYNC" io --ioengine=psync --direct=1 --sync=dsync --rw=randwrite
row "preadv2, O_DIRECT" io --ioengine=pvsync2 --direct=1 --rw=randread
row "preadv2 with RWF_NOWAIT, O_DIRECT" io --ioengine=pvsync2 --nowait=1 --direct=1 --rw=randread
row "preadv2 with RWF_HIPRI, O_DIRECT" io --ioengine=pvsync2 --hipri=1 --direct=1 --rw=randread
row "io_submit of 1, O_DIRECT" io --ioengine=libaio --iodepth=1 --direct=1 --rw=randread
row "io_submit of 16, O_DIRECT" batch --ioengine=libaio
row "io_submit of 16 writes, O_DIRECT" batch --ioengine=libaio --rw=randwrite
row "io_uring_enter of 16, O_DIRECT" batch --ioengine=io_uring
row "io_uring_enter of 16, polled, O_DIRECT" batch --ioengine=io_uring --hipri=1
# What the device takes at once: larger requests are split.
parts() { echo "$1" > "/sys/block/$DISK/queue/max_sectors_kb" || fail "max_sectors_kb $1"; }
largest=$(cat "/sys/block/$DISK/queue/max_sectors_kb")
large() { io --bs=1m --size=4m --direct=1 --rw=read "$@"; }
row "io_submit of 16 adjacent reads, O_DIRECT" batch --ioengine=libaio --rw=read
parts 256
row "pread of 1 MiB in parts of 256 KiB, O_DIRECT" large --ioengine=psync
row "io_submit of one 1 MiB in parts of 256 KiB, O_DIRECT" large --ioengine=libaio --iodepth=1
parts 64
row "pread of 1 MiB in parts of 64 KiB, O_DIRECT" large --ioengine=psync
row "io_submit of one 1 MiB in parts of 64 KiB, O_DIRECT" large --ioengine=libaio --iodepth=1
row "io_submit of 4 of 1 MiB in parts of 64 KiB, O_DIRECT" large --ioengine=libaio --iodepth=4 --iodepth_batch_submit=4
parts "$largest"
row "page fault" io --ioengine=mmap --rw=randread
row "pwrite, then fsync" io --ioengine=psync --rw=randwrite --size=8M --number_ios=64 --end_fsync=1
row "pwrite, then sync" io --ioengine=psync --rw=randwrite --size=8M --number_ios=64
row "16 page faults and stores, then msync with MS_SYNC" /cint/msync "$DEV" 0
write_and_leave() {
  io --ioengine=psync --rw=randwrite --size=8M --number_ios=64 || return
  # fio is gone; the kernel's own threads write.
  i=0
  while [ "$(awk '/^(Dirty|Writeback):/ { sum += $2 } END { print sum }' /proc/meminfo)" -gt 0 ] && [ $((i += 1)) -le 100 ]; do sleep 0.1; done
}
for setting in writeback expire; do
  cat /proc/sys/vm/dirty_${setting}_centisecs > $setting
  echo 10 > /proc/sys/vm/dirty_${setting}_centisecs
done
row "pwrite, then the flusher" write_and_leave
for setting in writeback expire; do cat $setting > /proc/sys/vm/dirty_${setting}_centisecs; done
WITH="ionice -c1 -n0" row "io_submit of 16, real-time priority" batch --ioengine=libaio
row "pread, O_DIRECT, real-time priority" /cint/priority "$DEV" realtime 64
WITH="ionice -c3" row "pread, O_DIRECT, idle priority" io --ioengine=psync --direct=1 --rw=randread
row "io_uring passthrough, urgent" /cint/passthrough /dev/ng0n1 urgent 64
row "io_uring passthrough, barrier at 16" /cint/passthrough /dev/ng0n1 barrier 64
row "io_uring passthrough, plain" /cint/passthrough /dev/ng0n1 plain 64
row "io_uring passthrough in Rust, barrier at 16" /cint/nvme_hints /dev/ng0n1 barrier 64
# A file system without a journal: what it writes is the file's data, and its inode when the row is over.
/usr/bin/mke2fs -q -F -t ext4 -O ^has_journal -E nodiscard,lazy_itable_init=0 "$DEV" > out 2>&1 || fail "mke2fs: $(tail -n 1 out)"
mkdir -p /mnt
mount -t ext4 -o noatime "$DEV" /mnt || fail "mount"
dd if=/dev/zero of=/mnt/file bs=256k count=1 conv=fsync 2> out || fail "$(cat out)"
row - true
FILE=/mnt/file
fua() { io --ioengine=psync --direct=1 --sync=dsync --rw=randwrite; }
row "ext4: pwrite, O_DIRECT, O_DSYNC" fua
set_parameter cint_sync 0
row "ext4: the same, cint_sync off" fua
set_parameter cint_fua 0
row "ext4: the same, cint_sync and cint_fua off" fua
FILE=''
umount /mnt
row - true
for source in ioprio sync flush fua last; do set_parameter cint_$source 0; done
row "all sources off: pread, O_DIRECT" io --ioengine=psync --direct=1 --rw=randread
row "all sources off: io_submit of 16, O_DIRECT" batch --ioengine=libaio
finish
