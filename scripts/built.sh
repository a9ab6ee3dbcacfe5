#!/usr/bin/env bash
# The programs that the tests have built, in target/debug, or else built now; and pack of the test kit, in target/debug/examples.
#
#   built.sh [PROGRAM...]     such as coalesce-bench, coalesce-figures, coalesce-sim, coalesce-site, coalesce-target, xtask
#
# Built with the features that the tests have: of the whole workspace, as a build of one package would compile what packages share once
# more; and with an example, as cargo counts the features of dev-dependencies only where a target needs them.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
cargo build --quiet --locked --workspace "${@/#/--bin=}" --example pack
