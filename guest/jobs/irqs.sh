# shellcheck shell=dash
# Count exactly: COUNT reads (default 2000) at depth 1 and again at depth 32, for each disk.
#   PAUSE   seconds of silence before and after each, default 1
# The steps "DISK-JOB-begin" and "DISK-JOB-end" are printed while no I/O is under way, so that the
# host can read the target's statistics in the pauses and compare. QEMU may merge signals that arrive
# close together: the guest's number is at most the target's, and the same at depth 1.
# shellcheck source=/dev/null
. /lib.sh
for disk in $DISK_LIST; do
  use "$disk"
  for depth in 1 32; do
    step "$disk-count$depth-begin"
    sleep "${PAUSE:-1}"
    measure "count$depth" --rw=randread --iodepth="$depth" --size=64M --number_ios="${COUNT:-2000}" || fail "$disk count$depth"
    sleep "${PAUSE:-1}"
    step "$disk-count$depth-end"
  done
done
show_irqs
finish
