# shellcheck shell=dash
# A job for guest/run-guest.sh: interrupts per request of an NVMe disk at depths 1 and 32, then data integrity.
# shellcheck source=/dev/null
. /lib.sh
i=0
while [ ! -e /dev/nvme0n1 ] && [ $((i += 1)) -le 50 ]; do sleep 0.2; done
export DISK=nvme0n1 DEV=/dev/nvme0n1 # what lib.sh looks at
# Of the disk's request queues, not of its admin queue.
irqs() {
  awk '$NF ~ /^nvme0q[1-9]/ { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { printf "%d\n", sum }' /proc/interrupts
}
for depth in 1 32; do measure "nvme$depth" --rw=randread --iodepth="$depth" --size=64M --number_ios=3000 || fail "depth $depth"; done
measure verify --rw=randwrite --size=16M --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 \
  --fsync=64 || fail verify
finish
