#!/usr/bin/env bash
# Every script that says at its beginning how it is called prints that with --help, and does nothing else; and one that is given
# what it does not know says what it knows, and touches nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-help: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Of make-*.sh and accel.sh the very bytes name what is kept in the cache, and they take no such options.
for script in scripts/*.sh guest/*.sh guest/firmware/*.sh guest/plugin/*.sh measurements/*.sh scripts/slices.py scripts/read-traces.py; do
  case $script in guest/make-*.sh | guest/accel.sh) continue ;; esac
  grep -m 1 -E "^(#|   ) .*\b${script##*/}( |$)" "$script" > "$work/said" || continue
  # The line is looked for before the script runs: one without it would begin its work.
  grep -qE -- '(!=|==) \[?"?--help' "$script" || die "$script has no --help"
  timeout 10 "$script" --help > "$work/out" 2>&1 < /dev/null || die "$script --help: status $?"
  grep -q "${script##*/}" "$work/out" || die "$script --help does not say how it is called"
  count=$((${count:-0} + 1))
done

# A script, what it does not know, and what it then says.
git status --porcelain > "$work/before"
while IFS='|' read -r script argument says; do
  status=0
  timeout 10 "$script" "$argument" > "$work/out" 2>&1 < /dev/null || status=$?
  [[ $status = [12] ]] || die "$script $argument: status $status"
  grep -qF -- "$says" "$work/out" || { cat "$work/out" >&2; die "$script $argument does not say: $says"; }
done << 'END'
scripts/test.sh|cers|there are: check lint
scripts/measure.sh|echo|there are: guest soak properties
scripts/nvme-guest.sh|echo|there are: soak resets
scripts/firmware-boots.sh|echo|there are: seabios grub
guest/check.sh|echo|there are: demo irqs
guest/packages.sh|--list|packages.sh [PACKAGE...]
scripts/deb.sh|--out|deb.sh DIR
scripts/release.sh|--out|release.sh DIR [TARGET...]
guest/plugin/build.sh|1|build.sh DIR PROGRAM
scripts/slices.py|1|PID CONTROL CTRLR RUN_US PAUSE_US TOLD
measurements/pictures.sh||one page of make demo
measurements/pictures.sh|/nope.html|one page of make demo
measurements/results.sh|foo|NAME=REPORT.json
measurements/results.sh|12-minute=/nope.json|there is no file /nope.json
measurements/results.sh|12-minute=Cargo.toml|is not JSON
measurements/results.sh|12-minute=packaging/grafana-dashboard.json|neither of make demo nor of compare.sh
measurements/results.sh|../foo=measurements/runs/12-minute.json|letters, digits
END
git status --porcelain > "$work/after"
cmp "$work/before" "$work/after" || die "a script that was called wrongly has changed the checkout"
echo "check-help: ${count:-0} scripts say how they are called"
