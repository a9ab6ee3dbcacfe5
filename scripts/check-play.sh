#!/usr/bin/env bash
# The playground of the site: it is built, and a browser runs it, with the numbers of coalesce-sim.
#
#   check-play.sh
#   PLAY_PICTURES    a folder for pictures of the page [none]
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
simulator=$(scripts/play.sh)
cargo run --quiet --locked --profile test --package coalesce-site -- "$target/site" "$simulator" > /dev/null
cargo build --quiet --locked --profile test --package coalesce-sim # which the tests have built
PLAY_PAGE=$target/site/docs/play.html COALESCE_SIM=$target/debug/coalesce-sim \
  timeout 600 cargo test --quiet --locked --package coalesce-site --test browser -- --ignored --test-threads 1 --nocapture
