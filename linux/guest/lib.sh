# shellcheck shell=dash
# Helpers for the jobs of this directory, besides the guest kit's own.
# shellcheck source=/dev/null
. /lib.sh

# The guest has loaded the driver with hints in the place of the kernel's. Parameters are set while it runs.
parameter() { cat "/sys/module/nvme/parameters/$1"; }
set_parameter() { echo "$2" > "/sys/module/nvme/parameters/$1" || fail "$1=$2"; }
[ -e /sys/module/nvme/parameters/cint_wire ] || fail "the driver has no hints"
use nvme0n1
# load NAME=VALUE...: the driver again, with these parameters.
load() {
  rmmod nvme || fail "rmmod nvme"
  insmod /mods/nvme.ko "$@" || fail "insmod nvme.ko $*"
  up_again
}
reset_controller() {
  i=0
  until nvme reset /dev/nvme0; do # another one may be under way
    [ $((i += 1)) -le 20 ] || { fail "nvme reset"; return; }
    sleep 0.1
  done
  up_again
}
# A scheduler hides who asks for a request.
up_again() {
  i=0
  until [ -b "$DEV" ] && [ "$(cat /sys/class/nvme/nvme0/state)" = live ]; do
    [ $((i += 1)) -le 50 ] || { fail "no disk"; return; }
    sleep 0.1
  done
  echo none > "/sys/block/$DISK/queue/scheduler"
}
