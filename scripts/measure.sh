#!/usr/bin/env bash
# The long measurements: measure.sh [STAGE...]
#
#   guest        every job of the demonstration in a guest, through the page cache and without it; none and auto
#   soak         verified writes in a guest for five minutes, while policies change and the target dies once
#   properties   random operations against references and rules, ten times as many as the tests have
#
# All by default (about 20 minutes). SECONDS_EACH=S for each job of guest [60]; IMAGES=DIR for disk images [a temporary one].
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
all=(guest soak properties)
[ $# -gt 0 ] || set -- "${all[@]}"
for stage; do [[ " ${all[*]} " == *" $stage "* ]] || { echo "measure: no stage $stage; there are: ${all[*]}" >&2; exit 2; }; done
each=${SECONDS_EACH:-60}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

guest() {
  cargo build --quiet --locked --release --package coalesce-target --package coalesce-demo
  for direct in '' --direct; do
    "${CARGO_TARGET_DIR:-target}/release/coalesce-demo" --places guest,counted --policies none,auto --seconds "$each" \
      --jobs depth1,depth8,depth32,mixed,batch4,fsync,sqlite --image-dir "${IMAGES:-$work}" $direct --out "$work/report.html" --json "$work/report.json"
  done
}
soak() {
  COALESCE_SOAK_SECONDS=300 REQUIRE_QEMU=1 cargo test --quiet --locked --release --package coalesce-target --test guest \
    nothing_is_lost -- --nocapture
}
properties() {
  POLICY_TEST_TIMES=10 cargo test --locked --release --package vic-core --package cint-core --package coalesce-policy
}

echo "$(date -u '+%Y-%m-%d %H:%M UTC'), $(git rev-parse --short=12 HEAD), Linux $(uname -r), $(nproc) CPUs:" \
  "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
for stage; do
  printf '\n== %s\n' "$stage"
  "$stage"
done
