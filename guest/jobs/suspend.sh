# shellcheck shell=dash
# The guest suspends to memory TIMES times (default 3), and its clock wakes it; the data is there afterwards. (To idle it
# would never wake: an emulated clock with HPET cannot do that.) A reboot ends QEMU: it does not power off after a suspend.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
write_back
write_pass 1 before-suspend || fail before-suspend
for n in $(seq "${TIMES:-3}"); do
  echo 0 > /sys/class/rtc/rtc0/wakealarm
  echo +3 > /sys/class/rtc/rtc0/wakealarm
  step "suspend-$n"
  echo mem > /sys/power/state || fail "suspend $n"
  read_pass "$n" suspend-read || fail suspend-read
  write_pass $((n + 1)) suspend-write || fail suspend-write
done
# shellcheck disable=SC2154 # bad: lib.sh
echo "GUEST-DONE rc=$bad uptime=$(cut -d' ' -f1 /proc/uptime)"
reboot -f
