# shellcheck shell=dash
# Verified random writes with flushes on the first disk, for SECONDS (default 20; 0: until a line comes from the console), while
# the host changes the policy, restarts the target (see ON_STEP in run-guest.sh), or migrates the guest.
# Passes over SIZE (default 16M) follow each other. Blocks are read back and compared soon after they were written, and all
# of them at the end of the pass. After the last pass everything is read back once more, by another process. Without an end the
# page cache is compared, too; the disk must have 160 MiB then.
# Steps: "start", "tick-N" every TICK seconds (1), "reconnect" once at half time, "end". RESULT errors=0, or it fails.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
write_back
# shellcheck disable=SC3028 # comes from the command line; busybox gives the name no meaning of its own
total=${SECONDS:-20}

step start
for_host() {
  n=0
  while sleep "${TICK:-1}"; do
    step "tick-$((n += 1))"
    [ $n != $((total / 2)) ] || step reconnect
  done
}
for_host &
ticker=$!
n_start=$(requests) i_start=$(irqs) f_start=$(flushes) passes=0
now() { cut -d. -f1 /proc/uptime; }
deadline=$(($(now) + total))
# Pages that only the disk writes, as no one else makes them dirty: 32 MiB are read into the page cache and compared, twice.
sum() { dd if="$DEV" bs=1M skip=128 count=32 2> /dev/null | md5sum; }
compare_cached() {
  exec 9< "$DEV" # a device that is closed loses its cache
  first=$(sum)
  while [ ! -e over ]; do
    echo 3 > /proc/sys/vm/drop_caches
    if [ "$(sum)" != "$first" ] || [ "$(sum)" != "$first" ]; then : > stale; fi
  done
}
if [ "$total" = 0 ]; then
  dd if=/dev/urandom of="$DEV" bs=1M seek=128 count=32 oflag=direct 2> /dev/null
  compare_cached & compared=$!
  (read -r _ < /dev/console; : > over) &
fi
goes_on() { if [ "$total" = 0 ]; then [ ! -e over ]; else [ "$(now)" -lt $deadline ]; fi; }
while goes_on; do
  passes=$((passes + 1))
  write_pass $passes "soak-$passes" > soak.out || { cat soak.out; fail "pass $passes"; break; }
done
kill $ticker
if [ "$total" = 0 ]; then wait "$compared"; fi
if [ -e stale ]; then fail "the page cache has other data than the disk"; fi
read_pass $passes soak-readback || fail "read-back"
# shellcheck disable=SC2154 # bad: lib.sh
printf 'RESULT {"disk":"%s","job":"soak","rc":%d,"errors":%d,"passes":%d,"requests":%d,"irqs":%d,"flushes":%d}\n' \
  "$DISK" "$bad" "$bad" $passes $(($(requests) - n_start)) $(($(irqs) - i_start)) $(($(flushes) - f_start))
step end
finish
