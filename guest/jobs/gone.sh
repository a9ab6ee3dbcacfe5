# shellcheck shell=dash
# The disk's target ends under load, and nobody takes its place: the guest must be told, and nothing may be wrong afterwards.
# PHASE 1 writes, says "kill", and writes the same again until it fails. PHASE 2, another guest on the same image, reads.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
write_back
if [ "$PHASE" = 2 ]; then
  read_pass 1 gone-read || fail "what was flushed is not there"
  finish
fi
write_pass 1 gone-write || fail gone-write
sync; dd if=/dev/null of="$DEV" conv=fsync,notrunc 2> /dev/null || fail flush
step kill
if pass 1 gone-under-load --time_based --runtime=600 > out; then fail "fio did not notice"; fi
sed -n 's/^RESULT/GUEST-INFO/p' out
dmesg | grep -E 'nvme|I/O error|virtio' | tail -n 4 | sed 's/^/GUEST-INFO /'
bytes=$(timeout 60 dd if="$DEV" bs=4k count=1 iflag=direct 2> dd.err | wc -c)
[ "$bytes" = 0 ] || fail "a dead disk can be read"
echo "GUEST-INFO $(tail -n 1 dd.err)"
finish
