#!/usr/bin/env bash
# "make install-target" as a packager and a user have it: what is installed is found, runs and says the same as the program;
# systemd takes the units, finds the service little exposed, and allows it the system calls that it makes; the service's command serves
# on the socket that it gets; "make uninstall-target" leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-install-target: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
served=''
trap '[ -z "$served" ] || kill "$served" 2> /dev/null || true; wait; rm -rf "$work"' EXIT
export PROFILE='test'

# Staged.
staged=(DESTDIR="$work/stage" PREFIX=/usr)
make --silent install-target "${staged[@]}"
(cd "$work/stage/usr" && find . ! -type d ! -name 'coalesce-*-*.1' | sort) > "$work/files"
diff "$work/files" - <<END || die "other files are installed than should be"
./bin/coalesce-bench
./bin/coalesce-sim
./bin/coalesce-target
./lib/systemd/system/coalesce-target@.service
./lib/systemd/system/coalesce-target@.socket
./share/bash-completion/completions/coalesce-bench
./share/bash-completion/completions/coalesce-sim
./share/bash-completion/completions/coalesce-target
./share/coalesce-target/grafana-dashboard.json
./share/coalesce-target/prometheus-rules.yml
./share/coalesce-target/prometheus.yml
./share/fish/vendor_completions.d/coalesce-bench.fish
./share/fish/vendor_completions.d/coalesce-sim.fish
./share/fish/vendor_completions.d/coalesce-target.fish
./share/man/man1/coalesce-bench.1
./share/man/man1/coalesce-sim.1
./share/man/man1/coalesce-target.1
./share/qemu/vhost-user/50-coalesce-target.json
./share/zsh/site-functions/_coalesce-bench
./share/zsh/site-functions/_coalesce-sim
./share/zsh/site-functions/_coalesce-target
END
! grep -rI "$work" "$work/stage" || die "the staging folder is in what is installed"
[ "$(jq -r '[.type, .binary] | join(" ")' "$work/stage/usr/share/qemu/vhost-user/50-coalesce-target.json")" = "block /usr/bin/coalesce-target" ] ||
  die "50-coalesce-target.json does not say where the backend is"
! grep -r '@prefix@' "$work/stage/usr/lib" "$work/stage/usr/share" || die "a place is not filled in"
make --silent uninstall-target "${staged[@]}"
[ -z "$(find "$work/stage" ! -type d)" ] || die "uninstall leaves files"

# In place: as management software finds a backend.
make --silent install-target PREFIX="$work/prefix"
binary=$(jq -r .binary "$work/prefix/share/qemu/vhost-user/50-coalesce-target.json")
[ "$("$binary" --print-capabilities | jq -c '[.type, .features]')" = '["block",["read-only","blk-file"]]' ] ||
  die "$binary does not say what it can do"
for page in "$work"/prefix/share/man/man1/*.1; do
  if command -v man > /dev/null; then
    warnings=$(MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 > /dev/null | grep -v 'cannot adjust line' || true) # a long word
    [ -z "$warnings" ] || die "$page: $warnings"
  fi
done
bash -euc "source $work/prefix/share/bash-completion/completions/coalesce-target; complete -p coalesce-target" > /dev/null ||
  die "bash does not take the completions"

if command -v promtool > /dev/null; then
  promtool test rules packaging/prometheus-rules.test.yml > "$work/alerts" 2>&1 || { cat "$work/alerts" >&2; die "the alerts"; }
  promtool check config "$work/prefix/share/coalesce-target/prometheus.yml" > "$work/alerts" 2>&1 || { cat "$work/alerts" >&2; die "the example"; }
else
  echo "SKIPPED: the alerts: no promtool"
fi

# systemd.
units=$work/prefix/lib/systemd/system
if command -v systemd-analyze > /dev/null; then
  cp "$units/coalesce-target@.service" "$work/coalesce-target@disk.service"
  cp "$units/coalesce-target@.socket" "$work/coalesce-target@disk.socket"
  complaints=$(SYSTEMD_UNIT_PATH="$work:" systemd-analyze verify --man=no "$work"/coalesce-target@disk.{service,socket} 2>&1 |
    grep coalesce || true)
  [ -z "$complaints" ] || die "systemd-analyze verify: $complaints"
  # Of 10, as systemd counts what the service could do.
  systemd-analyze security --offline=true --threshold=40 "$work/coalesce-target@disk.service" > "$work/exposure" 2>&1 ||
    { cat "$work/exposure" >&2; die "systemd-analyze security: the service is exposed by more than 4.0"; }
  tail -n 1 "$work/exposure"
else
  echo "SKIPPED: the units of coalesce-target: no systemd-analyze"
fi
if command -v systemd-socket-activate > /dev/null; then
  truncate --size 16M "$work/disk.img"
  start=$(sed -n -e "s|/run/coalesce-target/%i|$work/disk|" -e "s|\$OPTIONS|--file $work/disk.img|" -e 's/^ExecStart=//p' "$units/coalesce-target@.service")
  read -ra start <<< "$start"
  trace=()
  if command -v strace > /dev/null; then
    trace=(strace --follow-forks --quiet=all --output="$work/calls")
  else
    echo "SKIPPED: the system calls of the service: no strace"
  fi
  systemd-socket-activate --listen="$work/disk.sock" "${trace[@]}" "${start[@]}" 2> "$work/log" & served=$!
  for _ in $(seq 200); do [ ! -S "$work/disk.sock" ] || break; sleep 0.05; done
  [ "$("$work/prefix/bin/coalesce-bench" --socket "$work/disk.sock" --ops 500 --json | jq ".jobs[0].total_ios")" = 500 ] ||
    { cat "$work/log" >&2; die "the service's command does not serve on the socket that it gets"; }
  "$binary" call --control "$work/disk.control" get_stats | jq -e '.[0].ctrlr == "disk" and ([.[0].queues[].completions] | add >= 500)' > /dev/null ||
    die "the service's command has no control socket"
  if [ ${#trace[@]} -gt 0 ]; then pkill --signal TERM --parent "$served"; else kill "$served"; fi
  wait "$served" || die "the service's command ends with status $?"
  served=''
  # What systemd would refuse, on a kernel that knows the call.
  calls() { # NAME...: a group of systemd is its calls
    local name
    for name; do
      case $name in
        @*) mapfile -t group < <(systemd-analyze syscall-filter "$name" | sed -n '2,$s/^ *\([@a-z]\)/\1/p'); calls "${group[@]}" ;;
        *) echo "$name" ;;
      esac
    done
  }
  if [ ${#trace[@]} -gt 0 ]; then
    read -ra filter <<< "$(sed -n 's/^SystemCallFilter=//p' "$units/coalesce-target@.service")"
    calls "${filter[@]}" | sort -u > "$work/allowed"
    sed -nE 's/^[0-9]+ +([a-z0-9_]+)\(.*/\1/p' "$work/calls" | sort -u > "$work/used"
    [ "$(wc -l < "$work/used")" -gt 40 ] || die "only $(wc -l < "$work/used") system calls"
    refused=$(comm -23 "$work/used" "$work/allowed" | paste -sd ' ')
    [ -z "$refused" ] || die "the service's SystemCallFilter refuses $refused"
  fi
else
  echo "SKIPPED: socket activation: no systemd-socket-activate"
fi
echo "check-install-target: staged, in place, and started on a socket"
