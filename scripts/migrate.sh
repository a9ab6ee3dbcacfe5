#!/usr/bin/env bash
# Migrates Linux guests between two targets under verified writes, with the installed QEMU and with that of guest/make-qemu.sh.
# QEMU 7.2 without KVM loses a guest now and then, with its own disk too: docs/migration.md.
#
#   migrate.sh [MIGRATIONS]   of each guest, one with policy auto and one with vic [20]; a minute for 10
#
# A line for each guest: downtimes and times in ms, requests that each target served, and what the guest counted. Exit status 1 if
# anything was lost.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
missing=$(guest/ready.sh) || { echo "SKIPPED: migration of a guest: $missing"; exit; }
newer=$(guest/make-qemu.sh 2>&1) || { echo "SKIPPED: migration with another QEMU: $newer"; newer="qemu-system-x86_64"; }
status=0
for qemu in $(printf '%s\n' qemu-system-x86_64 "$newer" | sort -u); do
  "$qemu" --version | head -n 1
  QEMU=$qemu COALESCE_MIGRATIONS=${1:-20} \
    cargo test --quiet --locked --package coalesce-target --test migration_guest -- --ignored --nocapture || status=1
done
exit $status
