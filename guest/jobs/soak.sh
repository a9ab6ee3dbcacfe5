# shellcheck shell=dash
# Verified random writes with flushes on the first disk, for SECONDS (default 20), while the host changes
# the policy or restarts the target (see ON_STEP in run-guest.sh).
# Passes over SIZE (default 16M) follow each other. Blocks are read back and compared soon after they were written, and all
# of them at the end of the pass. After the last pass everything is read back once more, by another process.
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
while [ "$(now)" -lt $deadline ]; do
  passes=$((passes + 1))
  write_pass $passes "soak-$passes" > soak.out || { cat soak.out; fail "pass $passes"; break; }
done
kill $ticker
read_pass $passes soak-readback || fail "read-back"
# shellcheck disable=SC2154 # bad: lib.sh
printf 'RESULT {"disk":"%s","job":"soak","rc":%d,"errors":%d,"passes":%d,"requests":%d,"irqs":%d,"flushes":%d}\n' \
  "$DISK" "$bad" "$bad" $passes $(($(requests) - n_start)) $(($(irqs) - i_start)) $(($(flushes) - f_start))
step end
finish
