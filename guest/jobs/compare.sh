# shellcheck shell=dash
# Disks side by side: each load on each of TURNS, as "disk:policy,disk:policy", where disk is a serial number. Each turn is
# printed as a step, before it, and "end" at last; the host has PAUSE seconds (default 0.3) to act while nothing is in flight.
#   LOADS    names of lib.sh's loads, default depth1,depth8,depth32,mixed,batch4,fsync
#   ROUNDS   measurements of each, each round another disk first, default 2      RUNTIME   seconds each, default 1
# Where there is a program /mark, it is run before and after each measurement, and of one that only reads once ("empty").
# shellcheck source=/dev/null
. /lib.sh
find_disk() { # SERIAL
  for d in $DISK_LIST; do
    if [ "$(cat "/sys/block/$d/serial" "/sys/block/$d/device/serial" 2> /dev/null | tr -d ' ')" = "$1" ]; then echo "$d"; fi
  done
}
mark() { if [ -x /mark ]; then /mark; fi; }
turn() { # DISK:POLICY LOAD
  step "$1 $2"
  sleep "${PAUSE:-0.3}"
  use "$(find_disk "${1%%:*}")"
  # shellcheck disable=SC2034 # for measure
  if [ "$2" = empty ]; then GLOBAL="--size=64M --number_ios=1"; else
    GLOBAL="$(for_seconds "${RUNTIME:-1}") --size=64M --cpus_allowed=$(irq_cpu)"
  fi
  mark
  load "$2" || fail "$*"
  mark
}
# shellcheck disable=SC2046 # lists of words
for load in $(echo "${LOADS:-depth1,depth8,depth32,mixed,batch4,fsync}" | tr , ' '); do
  set -- $(echo "${TURNS:?}" | tr , ' ')
  if [ -x /mark ]; then turn "$1" empty; fi
  for _ in $(seq "${ROUNDS:-2}"); do
    for turn; do turn "$turn" "$load"; done
    first=$1; shift; set -- "$@" "$first"
  done
done
step end
sleep "${PAUSE:-0.3}"
show_irqs
finish
