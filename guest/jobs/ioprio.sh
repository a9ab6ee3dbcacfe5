# shellcheck shell=dash
# I/O priorities, on the first disk. Every case makes a different number of reads, so that a target which
# counts requests by the ioprio field of the virtio-blk header (class << 13 | level) can tell them apart:
#   default         1000 reads   0x4004 (best effort, level 4: not 0)
#   ionice-rt0      1100 reads   0x2000
#   ionice-idle     1200 reads   0x6000
#   cmdprio-rt3     1300 reads   0x2003
#   cmdprio-rt2-50  1400 reads   0x2002 on about half of them, 0x4004 on the rest
#   prioclass-be6   1500 reads   0x4006
# Requests with no process behind them (partition scan, flush) carry 0.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
reads() { name=$1 n=$2; shift 2; measure "$name" --rw=randread --size=64M --number_ios="$n" "$@" || fail "$name"; }
reads default 1000 --iodepth=1
WITH="ionice -c1 -n0" reads ionice-rt0 1100 --iodepth=1
WITH="ionice -c3" reads ionice-idle 1200 --iodepth=1
reads cmdprio-rt3 1300 --iodepth=32 --cmdprio_percentage=100 --cmdprio_class=1 --cmdprio=3
reads cmdprio-rt2-50 1400 --ioengine=io_uring --iodepth=32 --cmdprio_percentage=50 --cmdprio_class=1 --cmdprio=2
reads prioclass-be6 1500 --iodepth=1 --prioclass=2 --prio=6
finish
