# shellcheck shell=dash
# The first disk gets another size while the guest runs, twice: the host resizes it at the steps "longer" and "shorter". The guest's
# driver must hear of it. Prints the sectors that it then sees, and uses the last ones.
# shellcheck source=/dev/null
. /lib.sh
use "${DISK_LIST%% *}"
sectors() { cat "/sys/block/$DISK/size"; }
for change in longer shorter; do
  before=$(sectors)
  step "$change"
  for _ in $(seq 300); do
    [ "$(sectors)" -eq "$before" ] || break
    sleep 0.1
  done
  now=$(sectors)
  echo "RESULT {\"job\": \"$change\", \"sectors\": $now}"
  measure "$change-end" --rw=write --verify=crc32c --offset=$((now * 512 - 65536)) --size=64k || fail "the end of $DISK"
done
finish
