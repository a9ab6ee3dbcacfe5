#!/usr/bin/env bash
# Runs the commands of README.md, of docs/start.md and of `coalesce-target serve --help` as they are typed, in an empty folder, with
# the programs of a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-commands: %s\n' "$*" >&2; exit 1; }
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
set -m # each command below in a process group of its own, which is ended with what it has started
groups=()
# shellcheck disable=SC2317 # called by trap
end() {
  local group
  for group in "${groups[@]}"; do kill -- "-$group" 2> /dev/null || true; done
  rm -rf "$work"
}
trap end EXIT
cargo build --quiet --locked --package coalesce-target --package coalesce-sim
mkdir "$work/target"
ln -s "$target/debug" "$work/target/release"
ln -s "$PWD/crates" "$work/crates"

# The commands of a section: what is built is built, what is in /tmp is here, and a scoreboard of a minute, which has a test of its
# own, is shorter. A person takes a moment between two lines.
section() { # FILE TITLE
  awk -v title="## $2" '/^## / { here = $0 == title } here && /^```/ { inside = $0 == "```sh"; next } here && inside' "$1" |
    sed -e 's/^cargo build .*/:/' -e 's|\(coalesce-sim score\) .*|\1 --workloads optane/depth1 --policies vic|' -e "s|/tmp/|$work/|g" -e 's/$/\nsleep 0.5/'
}
check() { # FILE TITLE
  section "$1" "$2" > "$work/commands"
  [ "$(grep -c target/release "$work/commands")" -ge 3 ] || die "$1 has no commands under \"$2\""
  (cd "$work" && exec bash -euo pipefail commands) > "$work/output" 2>&1 &
  groups+=("$!")
  wait "$!" || { tail -n 20 "$work/output" >&2; die "\"$2\" of $1 fails"; }
}
check README.md "Serve a disk"
check README.md "Simulate and replay"
check docs/start.md "You run virtual machines"
check docs/start.md "You study interrupts"

# Each QEMU of the help is started on the disk that is served by the line before it.
"$target/debug/coalesce-target" serve --help |
  awk '/^EXAMPLES/ { here = 1 } here && /^      / { line = line substr($0, 7); if (sub(/\\$/, "", line)) next; print line; line = "" }' |
  sed -e "s|/tmp/|$work/|g" > "$work/help"
[ "$(grep -c '^qemu-system' "$work/help")" = 2 ] || die "the help has no QEMU"
truncate --size 64M "$work/disk.img"
while read -r command; do
  case $command in
    coalesce-target*)
      [ -z "${served:-}" ] || { kill "$served"; wait "$served" || die "$was: status $?"; }
      was=$command
      (cd "$work" && eval "exec $target/debug/$command" 2> "$work/log") & served=$!
      groups+=("$served")
      sleep 1
      kill -0 "$served" 2> "$work/null" || { cat "$work/log" >&2; die "$command: has ended"; }
      ;;
    qemu-system*)
      qemu="qemu-system-x86_64"
      case $command in *vfio-user*) qemu=$(guest/make-qemu.sh 2> "$work/why") || { echo "SKIPPED: $command: $(cat "$work/why")"; continue; } ;; esac
      command -v "$qemu" > "$work/null" || { echo "SKIPPED: $command: no $qemu"; continue; }
      eval "timeout 5 $qemu ${command#qemu-system-x86_64} -display none -monitor none" > "$work/output" 2>&1 < /dev/null || true
      if ! grep -q ': connected' "$work/log" || grep -q 'disconnected: ' "$work/log"; then
        cat "$work/output" "$work/log" >&2
        die "$command: does not connect"
      fi
      [ ! -S "$work/control" ] || "$target/debug/coalesce-target" call --control "$work/control" get_stats |
        grep '"completions": [1-9]' > "$work/null" || die "$command: its firmware reads nothing from the disk"
      ;;
    *) die "unknown in the help: $command" ;;
  esac
done < "$work/help"
kill "$served"; wait "$served" || die "$was: status $?"
echo "check-commands: those of README.md, docs/start.md and the help do what they say"
