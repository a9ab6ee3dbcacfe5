# shellcheck shell=dash
# What is compared differs in nothing but what the host changes at each step: one disk, one turn after the other.
#   TURNS    names of the turns, as none,auto; each is printed as a step, and the host has PAUSE seconds (default 0.5) to act
#   RUNTIME  seconds per measurement, default 2      SIZE     part of the disk that is used, default 64M
#   ROUNDS   measurements of each turn, default 5    DEPTHS   requests in flight, default 1,32
# shellcheck source=/dev/null
. /lib.sh
# shellcheck disable=SC2034 # for measure
GLOBAL="--time_based --runtime=${RUNTIME:-2} --ramp_time=200ms --size=${SIZE:-64M}"
use "${DISK_LIST%% *}"
for depth in $(echo "${DEPTHS:-1,32}" | tr , ' '); do
  for _ in $(seq "${ROUNDS:-5}"); do
    for turn in $(echo "${TURNS:?}" | tr , ' '); do
      step "$turn"
      sleep "${PAUSE:-0.5}"
      measure "depth$depth-$turn" --rw=randread --iodepth="$depth" || fail "depth$depth $turn"
    done
  done
done
finish
