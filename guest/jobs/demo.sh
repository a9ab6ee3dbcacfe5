# shellcheck shell=dash
# What coalescing changes: interrupts per I/O and latency, for each disk in turn.
#   RUNTIME   seconds per measurement (or 500ms), default 2      SIZE   part of the disk that is used, default 64M
#   ROUNDS    measurements of each job on each disk, default 1
# Every round of a job visits all disks, each round another one first, so that a slow spell of the host hits all alike.
# The I/O is submitted on the CPU that the disk interrupts, as it is where each CPU has a queue: otherwise disks would
# differ by where Linux happened to put their interrupts.
# shellcheck source=/dev/null
. /lib.sh
global="--time_based --runtime=${RUNTIME:-2} --ramp_time=200ms --size=${SIZE:-64M}"

for job in depth1 depth8 depth32 mixed batch4 fsync; do
  # shellcheck disable=SC2086 # a list of words
  set -- $DISK_LIST
  for _ in $(seq "${ROUNDS:-1}"); do
    for disk; do
      use "$disk"
      # shellcheck disable=SC2034 # for measure
      GLOBAL="$global --cpus_allowed=$(irq_cpu)"
      load "$job" || fail "$disk $job"
    done
    first=$1; shift; set -- "$@" "$first"
  done
done
show_irqs
finish
