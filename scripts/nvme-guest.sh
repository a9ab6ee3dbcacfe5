#!/usr/bin/env bash
# The long tests of an NVMe disk in a Linux guest; make test has the short ones. Results: docs/robustness.md.
#
#   nvme-guest.sh [STAGE...]   stages: soak resets suspend reboot gone nvme_cli blktests; all of them by default (15 minutes)
#
#   MINUTES=N        of verified writes, while the policy changes every 100 ms [5]
#   TIMES=N          of each reset, and suspends [20]
#   GUEST_SUITES=S   kernel and programs of other Debian suites, as "trixie trixie-backports" [the system's sources]
#   NVME_CLI=DIR     a checkout of linux-nvme/nvme-cli that has tests/tap_runner.py (v3.0-a.5)
#   BLKTESTS=DIR     a checkout of blktests, built by make; TESTS="nvme/032 ..." of it
#
# A line for each stage: ok, FAILED or SKIPPED, and what was counted. Exit status 1 if one failed.
# shellcheck disable=SC2317 # the stages are called by name
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; }
cd "$(dirname "$0")/.."
all="soak resets suspend reboot gone nvme_cli blktests"
stages=${*:-$all}
for stage in $stages; do [[ " $all " == *" $stage "* ]] || { echo "nvme-guest: no stage $stage; there are: $all" >&2; exit 2; }; done
tests=${TESTS:-nvme/032 nvme/046 nvme/049 nvme/053 nvme/059 nvme/067 block/003 block/004 block/005 block/007 block/008 block/011 block/012 block/019 block/042}
# What the suites of others need.
packages="python3 bash coreutils gawk grep sed findutils util-linux fio nvme-cli pciutils udev kmod xfsprogs procps diffutils bsdextrautils gzip hostname liburing2"

missing=$(guest/ready.sh) || { echo "SKIPPED: NVMe in a guest: $missing"; exit; }
QEMU=$(guest/make-qemu.sh 2>&1) || { echo "SKIPPED: NVMe in a guest: $QEMU"; exit; }
export QEMU
cargo build --quiet --locked --release --package coalesce-target
program=$PWD/target/release/coalesce-target
work=$(mktemp -d)
target='' changer=''
cleanup() { for p in $changer $target; do kill "$p" 2> /dev/null || true; done; wait; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

serve() { # on the image that is there
  "$program" serve --device nvme --socket "$work/disk" --file "$work/image" --queues 2 --control "$work/control" 2>> "$work/log" &
  target=$!
  for _ in $(seq 200); do if "$program" call --control "$work/control" list > /dev/null 2>&1; then return; fi; sleep 0.05; done
  echo "the target does not start" >&2; exit 1
}
fresh() { stop; rm -f "$work/image"; truncate -s 256M "$work/image"; : > "$work/log"; serve; }
stop() {
  [ -n "$target" ] || return 0
  kill "$target" 2> /dev/null || true
  wait "$target" || true
  target=''
}
guest() { guest/run-guest.sh "$1" "nvme:$work/disk" "${@:2}" > "$work/out" 2> "$work/err"; }
count() { grep -c "$@" "$work/out" || true; }
last() { sed -n 's/^RESULT //p' "$work/out" | tail -n 1; }
stat() { "$program" call --control "$work/control" get_stats | jq -c "[.[0].queues[] | $1] | add"; }
change_policies() { # until it is killed
  local policy
  while true; do
    for policy in none nvme:thr=8,time=100us vic:cif_threshold=2 cint:ooo=on cint dim auto; do
      "$program" call --control "$work/control" set_policy "{\"ctrlr\":\"disk\",\"policy\":\"$policy\"}" > /dev/null 2>&1 && echo >> "$work/changes"
      sleep 0.1
    done
  done
}
while_changing() {
  local rc=0
  : > "$work/changes"
  change_policies & changer=$!
  "$@" || rc=$?
  kill "$changer"; wait "$changer" 2> /dev/null || true; changer=''
  return "$rc"
}

soak() {
  fresh
  while_changing guest soak SECONDS=$((60 * ${MINUTES:-5})) || return 1
  [ "$(stat .in_flight)" = 0 ] && [ "$(stat .device.malformed)" = 0 ] || return 1
  about="$(last | jq -r '"\(.requests) requests, \(.flushes) flushes, \(.passes) passes, \(.irqs) interrupts"'), $(wc -l < "$work/changes") policy changes"
}
resets() {
  fresh
  TIMEOUT=600 while_changing guest nvme TIMES="${TIMES:-20}" || return 1
  about="$(last | jq -r '"\(.resets) resets, \(.passes) passes"'), $(wc -l < "$work/changes") policy changes"
}
suspend() {
  fresh
  TIMEOUT=600 guest suspend TIMES="${TIMES:-20}" || return 1
  about="$(count GUEST-STEP) suspends to memory"
}
reboot() {
  fresh
  guest reboot -- -action reboot=reset || return 1
  [ "$(count GUEST-READY)" = 2 ] || return 1
  about="a reboot, the data is there"
}
gone() { # the target ends under load: the guest has an error, and the image what was flushed
  local signal noticed
  about=
  for signal in TERM KILL; do
    fresh
    noticed=noticed
    if ! ON_STEP="sleep 2; kill -$signal $target; :" TIMEOUT=300 guest gone PHASE=1; then
      # QEMU 11.1.3 may set an error twice when the socket closes, and abort.
      grep -q 'error_setv: Assertion' "$work/err" || return 1
      noticed="QEMU aborted"
    fi
    wait "$target" 2> /dev/null || true
    serve
    guest gone PHASE=2 || return 1
    about+="${about:+, }SIG$signal $noticed and nothing lost"
  done
}
sources() { # DIRECTORY NAME...: an archive with make-tools.sh's and these, below /tools/src
  local tools
  mkdir -p "$work/root/tools/src/$1"
  (cd "$2" && tar -c --exclude=.git "${@:3}") | tar -x -C "$work/root/tools/src/$1"
  # shellcheck disable=SC2086 # a list of words
  tools=$(guest/make-tools.sh $packages) || return 1
  { cat "$tools"; (cd "$work/root" && find . | cpio --quiet -o -H newc -R 0:0); } > "$work/initrd"
  rm -rf "$work/root"
}
nvme_cli() {
  [ -f "${NVME_CLI:-}/tests/tap_runner.py" ] || { skip="NVME_CLI is no checkout with tests/tap_runner.py"; return 1; }
  sources nvme-cli "$NVME_CLI" tests || return 1
  fresh
  INITRD=$work/initrd MEM=2048 TIMEOUT=600 guest upstream SUITE=nvme-cli || return 1
  sed -n 's/^GUEST-INFO \(\(not \)\{0,1\}ok .*\)/  \1/p' "$work/out"
  # Write Uncorrectable is optional, and its test does not ask for it.
  ! grep '^GUEST-INFO not ok' "$work/out" | grep -v test_write_uncor || return 1
  [ "$(count '^GUEST-INFO ok')" -ge 10 ] || return 1
  about="$(count '^GUEST-INFO ok [^#]*$') passed, $(count '^GUEST-INFO not ok') failed, $(count '^GUEST-INFO ok .*# SKIP') skipped"
}
blktests() {
  [ -x "${BLKTESTS:-}/check" ] || { skip="BLKTESTS is no checkout of blktests"; return 1; }
  sources blktests "$BLKTESTS" . || return 1
  fresh
  INITRD=$work/initrd MEM=2048 TIMEOUT=1200 guest upstream SUITE=blktests TESTS="${tests// /,}" || return 1
  grep -E '^GUEST-INFO (nvme|block)/.*\]$' "$work/out" | sed 's/^GUEST-INFO /  /'
  [ "$(count '\[passed\]')" -gt 0 ] && [ "$(count '\[failed\]')" = 0 ] || return 1
  about="$(count '\[passed\]') passed, $(count '\[failed\]') failed, $(count '\[not run\]') not run"
}

"$QEMU" --version | head -n 1
failed=0
for stage in $stages; do
  start=$SECONDS about='' skip=''
  if $stage; then
    echo "ok: $stage: $about ($(sed -n 's/^GUEST-READY \(kernel=[^ ]*\).* \(accel=.*\)/\1, \2/p' "$work/out" | head -n 1), $((SECONDS - start)) s)"
  elif [ -n "$skip" ]; then
    echo "SKIPPED: $stage: $skip"
  else
    failed=1
    echo "FAILED: $stage"
    tail -n 30 "$work/out" "$work/err" "$work/log" >&2
  fi
done
exit $failed
