# shellcheck shell=dash
# The guest writes, reboots, and finds what it has written. QEMU must let it: -action reboot=reset.
# The first block tells which of the two boots it is.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
write_back
if [ "$(dd if="$DEV" bs=512 count=1 skip=131072 2> /dev/null | head -c 8)" = rebooted ]; then
  read_pass 1 reboot-read || fail reboot-read
  write_pass 2 reboot-write || fail reboot-write
  finish
fi
write_pass 1 before-reboot || fail before-reboot
echo rebooted | dd of="$DEV" bs=512 seek=131072 conv=sync,notrunc,fsync 2> /dev/null
step reboot
reboot -f
