#!/usr/bin/env bash
# The programs that the tests have built, in target/debug, or else built now; and pack of the test kit, in target/debug/examples.
#
#   built.sh [PROGRAM...]     such as coalesce-bench, coalesce-figures, coalesce-sim, coalesce-site, coalesce-target, xtask
#
# In the way of the tests: for the whole workspace, as a build of less would compile what packages share with other features once
# more; and with an example, without which cargo leaves out what only tests need.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
cargo build --quiet --locked --workspace "${@/#/--bin=}" --example pack
