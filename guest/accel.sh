#!/usr/bin/env bash
# Which accelerator runs a guest on this machine: prints kvm, or tcg and, on standard error, why.
#
#   accel.sh QEMU ARGUMENT...   what boots the guest, which says GUEST-READY on its serial line without a disk
#   ACCEL   kvm or tcg: this one, and nothing is tried
#
# A /dev/kvm that opens need not boot anything: where KVM interprets the kernel mode of its guests, no Linux gets as far as its first
# process. So the guest is booted once, and has 10 s. The answer is kept below ${XDG_CACHE_HOME:-~/.cache}/coalesce/accel until the
# machine boots again, and asked for another QEMU or with other arguments.
set -euo pipefail
device=/dev/kvm patience=10

tcg() { echo "accel: tcg, as $*" >&2; echo tcg; exit; }
case ${ACCEL:-} in
  kvm | tcg) echo "$ACCEL"; exit ;;
  ?*) echo "accel: ACCEL=$ACCEL: expected kvm or tcg" >&2; exit 2 ;;
esac
[ -e "$device" ] || tcg "there is no $device"
(exec 3<> "$device") 2> /dev/null || tcg "$device does not open"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce/accel
mkdir -p "$cache"
boot=$(cat /proc/sys/kernel/random/boot_id)
kept=$cache/$boot-$({ "$1" --version; printf '%s\n' "$@"; } | cat - "$0" | sha256sum | cut -c1-12)
exec {lock}> "$cache/lock"; flock "$lock"
if [ ! -f "$kept" ]; then
  find "$cache" -type f ! -name lock ! -name "$boot-*" -delete # of the machine's earlier boots
  answer="a guest is not ready after $patience s with it" said=
  exec {console}< <(exec {lock}>&- timeout -k 1 "$patience" "$1" -accel kvm "${@:2}" -nodefaults -no-user-config -display none \
    -serial stdio -no-reboot < /dev/null 2>&1)
  pid=$!
  while IFS= read -r line <&"$console"; do
    said=$line
    if [[ $line == GUEST-READY* ]]; then answer=kvm; kill "$pid"; break; fi
  done
  rc=0; wait "$pid" || rc=$?
  [ "$answer" = kvm ] || [ "$rc" = 124 ] || answer="QEMU ends with it: ${said%$'\r'}"
  printf '%s\n' "$answer" > "$kept.new"
  mv "$kept.new" "$kept"
fi
answer=$(< "$kept")
[ "$answer" = kvm ] || tcg "$device opens, but $answer"
echo kvm
