# shellcheck shell=dash
# Loads, one after the other, on each disk.
#   LOADS     names of lib.sh's loads, default depth1,depth8,depth32,mixed,batch4,fsync
#   RUNTIME   seconds (or 500ms) of each. Without it each is printed as a step, and runs until the host writes a line to the
#             console (INPUT of run-guest.sh); then GUEST-MEASURED.
#   SIZE      part of the disk that is used, default 64M
#   TAKEN     a serial line (ttyS1) on which the guest tells the host how many interrupts it has taken, while a load runs until it is told
# The I/O is submitted on the CPU that the disk interrupts, as it is where each CPU has a queue: otherwise disks would
# differ by where Linux happened to put their interrupts.
# shellcheck source=/dev/null
. /lib.sh
# What prepares a load is no part of it.
on_console() { step "$load" > /dev/console; "$@"; }
until_told() { # LOAD
  if [ -n "${TAKEN:-}" ]; then
    answer_irqs "/dev/$TAKEN" &
    answers=$!
  fi
  WITH=on_console load "$1" > out &
  running=$!
  read -r _
  kill "$(pidof fio | tr ' ' '\n' | sort -n | head -n 1)" # the process that began the others
  wait "$running"
  [ -z "${TAKEN:-}" ] || kill "$answers"
  grep '^GUEST-INFO' out || true
  # fio counts being told to end as an error of none of its jobs.
  grep -q '"errors":0,"ios":[1-9]' out || { cat out; fail "$disk $1"; }
  echo GUEST-MEASURED
}
for load in $(echo "${LOADS:-depth1,depth8,depth32,mixed,batch4,fsync}" | tr , ' '); do
  for disk in $DISK_LIST; do
    use "$disk"
    global="--time_based --runtime=${RUNTIME:-1d} --size=${SIZE:-64M} --cpus_allowed=$(irq_cpu)"
    # shellcheck disable=SC2034 # for measure
    if [ -z "${RUNTIME:-}" ]; then
      GLOBAL=$global
      until_told "$load"
    else
      GLOBAL="$global --ramp_time=200ms"
      load "$load" || fail "$disk $load"
    fi
  done
done
show_irqs
finish
