# shellcheck shell=dash
# Data integrity on the first disk (at least 128 MiB): write with checksums, read back, flush, and a
# control: a block that was overwritten behind fio's back must be noticed.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
write_back
seed=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ') # other data in every run
check() { name=$1; shift; measure "$name" --rw=randwrite --size=32M --iodepth=16 --randseed="$seed" \
  --verify=crc32c --verify_fatal=1 --verify_state_save=0 "$@"; }
check write-verify --do_verify=1 || fail write-verify
echo 3 > /proc/sys/vm/drop_caches
check reread-verify --verify_only || fail reread-verify
f=$(flushes)
measure write-fsync --rw=write --direct=0 --ioengine=psync --offset=64M --size=1M --fsync=16 --end_fsync=1 || fail write-fsync
f=$(($(flushes) - f))
[ $f -ge 16 ] || fail "only $f flushes for 16 fsyncs"
dd if=/dev/zero of="$DEV" bs=4k count=1 seek=100 conv=notrunc oflag=direct 2> /dev/null
if check control-corrupt --verify_only; then fail "the corrupted block was not noticed"; fi
finish
