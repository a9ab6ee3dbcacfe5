#!/usr/bin/env bash
# The playground of the site: it is built, and a browser runs it, with the numbers of coalesce-sim.
#
#   check-play.sh
#   PLAY_PICTURES    a folder for pictures of the page [none]
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
simulator=$(scripts/play.sh)
scripts/built.sh coalesce-sim coalesce-site
"$target/debug/coalesce-site" "$target/site" "$simulator" > /dev/null
PLAY_PAGE=$target/site/docs/play.html COALESCE_SIM=$target/debug/coalesce-sim \
  timeout 600 cargo test --quiet --locked --workspace --test browser -- --ignored --test-threads 1 --nocapture
