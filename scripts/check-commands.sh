#!/usr/bin/env bash
# Runs the commands of the documentation and of the programs' help as they are typed, in an empty folder, with the programs
# that the tests build. A command in any Markdown file that is neither run here nor listed below, with a reason, is a failure; so is a line
# of the list that no command needs.
# shellcheck disable=SC2016 # what is in single quotes is for other programs
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-commands: %s\n' "$*" >&2; exit 1; }

# FILE | begins with | who runs it, or why nobody does
exceptions='
README.md | make demo | minutes; the tests of the demo and measurements/results.sh --check
README.md | make test | this is a part of it
CONTRIBUTING.md | cargo test | the tests themselves
CONTRIBUTING.md | cargo run --release --manifest-path examples | a stage of the tests, in a debug build
CONTRIBUTING.md | make check | parts of the tests
CONTRIBUTING.md | make lint | a stage of the tests
CONTRIBUTING.md | scripts/test.sh | the tests themselves
CONTRIBUTING.md | make test | this is a part of it
CONTRIBUTING.md | make fmt | changes the sources; the lint stage has --check
docs/c-abi.md | make install | scripts/check-install.sh
docs/c-abi.md | cc | scripts/check-install.sh
docs/install.md | make install | scripts/check-install-target.sh, scripts/check-install.sh
docs/install.md | scripts/deb.sh | scripts/check-container.sh, as typed
docs/install.md | apt-get | the same
docs/install.md | coalesce-target serve --socket /tmp/disk | the same
docs/install.md | coalesce-bench --socket /tmp/disk | the same
docs/install.md | kill | the same
docs/install.md | podman | minutes, and needs root; scripts/check-container.sh, as typed
docs/install.md | systemctl | needs systemd as the first process; scripts/check-install-target.sh checks the units and serves on their socket
docs/install.md | coalesce-target --fd | needs an open descriptor; crates/coalesce-target/tests/backend_program.rs
docs/operating.md | coalesce-target call --control /run/coalesce-target/db.control set_running | crates/coalesce-target/tests/command_line.rs, and the help of call
docs/install.md | virsh | needs libvirt; tried by hand, as that section says
docs/json.md | cargo build --release --package coalesce-sim | scripts/check-python.sh, which runs both examples
docs/json.md | export PATH=$PWD/target/release | the same
docs/json.md | python3 examples/python/notebook.py | the same
docs/json.md | COALESCE_LIBRARY= | the same
docs/hooks.md | cloud-hypervisor | needs KVM and this monitor; tried by hand, as that section says
docs/hooks.md | crosvm | needs KVM and this monitor; written after its documentation
docs/hooks.md | curl --unix-socket /tmp/firecracker | needs KVM and this monitor; tried by hand, as that section says
docs/hooks.md | export RUSTC_BOOTSTRAP | the library for a kernel: needs the source of the standard library; tried by hand
docs/hooks.md | scripts/bare-library.sh | the same
docs/without-rust.md | sha256sum | scripts/check-release.sh, as typed
docs/without-rust.md | tar | the same
docs/without-rust.md | export | the same
docs/without-rust.md | arm-none-eabi-gcc | the same
docs/without-rust.md | riscv64-unknown-elf-gcc | the same
docs/without-rust.md | qemu-system | the same
docs/without-rust.md | cmake | the same
docs/without-rust.md | meson | the same
docs/without-rust.md | with- | the same
docs/without-rust.md | cc | the same
docs/without-rust.md | ./with-cc | the same
docs/start.md | make -C spdk | needs an installed SPDK; the stage spdk of scripts/test.sh
docs/start.md | make -C firmware-demo | scripts/firmware.sh, on every board
ARCHITECTURE.md | coalesce-target serve | a drawing
firmware-demo/README.md | make -C firmware-demo | scripts/firmware.sh, on every board
docs/linux-hints.md | LATENCY=1ms | minutes, in a guest; tried by hand
linux/README.md | make -C linux | linux/test.sh; the guests are tried by hand
spdk/README.md | make -C spdk | needs an installed SPDK; the stage spdk of scripts/test.sh
spdk/README.md | export PYTHONPATH | the same
spdk/README.md | target/spdk/coalesce_spdk_tgt | the same
spdk/README.md | rpc= | the same
spdk/README.md | $rpc | the same
spdk/README.md | mkdir -p /tmp/disk && $rpc | the same
spdk/README.md | qemu-system-x86_64 ... | needs a guest
help | blktrace | needs a disk and root
help | perf | needs an NVMe disk and root; tests/traces has what it prints
help | qemu-system-x86_64 | started below, each on its own disk
help | coalesce-target serve | the same
'

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
scripts/built.sh coalesce-bench coalesce-sim coalesce-target
mkdir -p "$work/target" "$work/run/coalesce-target" "$work/run/vm" "$work/srv" "$work/docs" "$work/var/lib/coalesce-target"
ln -s "$target/debug" "$work/target/release"
ln -s "$PWD/crates" "$work/crates"
truncate --size 64M "$work/srv/vm.img" "$work/srv/b.img" "$work/var/lib/coalesce-target/db.img"
export PATH=$target/debug:$PATH

# Every command of the documentation: FILE, section, command; one a line. `## ` begins a section.
documented() {
  git ls-files -z --cached --others --exclude-standard '*.md' | xargs -0 awk '
    function say(command) { if (command !~ /^(#|$)/) print FILENAME "\037" title "\037" command }
    FNR == 1 { title = ""; inside = 0; line = "" }
    /^## / && !inside { title = substr($0, 4) }
    /^```/ { inside = !inside && $0 == "```sh"; next }
    inside { line = line $0 }
    !inside && (/^    (\$ |(coalesce-(bench|sim|target)|make|cargo) [^ ])/ || line != "") { sub(/^    (\$ )?/, ""); line = line $0 }
    line ~ /\\$/ { sub(/\\$/, "", line); next }
    line != "" { say(line); line = "" }'
}
documented > "$work/documented"
[ "$(wc -l < "$work/documented")" -ge 50 ] || die "found only $(wc -l < "$work/documented") commands"

# Whether a command is an exception; notes which one it needs.
: > "$work/needed"
is_exception() { # FILE COMMAND
  local file begins why
  while IFS='|' read -r file begins why; do
    file=${file% } begins=${begins# } begins=${begins% }
    if [ "$file" = "$1" ] && [[ $2 == "$begins"* ]]; then
      printf '%s | %s |%s\n' "$file" "$begins" "$why" >> "$work/needed"
      return
    fi
  done <<< "$exceptions"
  return 1
}

# Paths are within our folder, what is built is built, what runs for minutes is shorter, and what runs until it is stopped is stopped.
# A look at one millisecond becomes one at 300: a busy machine may do nothing in a millisecond.
here() {
  sed -E -e 's/^cargo build .*/:/' -e "s#/(tmp|run|srv|var/lib)/#$work/\1/#g" -e "s#$work/tmp/#$work/#g" \
    -e 's/^coalesce-target (top|--socket-path)/until_stopped &/' \
    -e 's/(coalesce-sim score)$/\1 --workloads optane\/depth1 --policies vic/; s/(coalesce-sim score)( +#.*)$/\1 --workloads optane\/depth1 --policies vic\2/' \
    -e 's/(coalesce-sim score)( --seeds 3| --policies auto)/\1 --workloads optane\/depth1\2/' -e 's/--seeds 3/--seeds 2/; s/--duration 500ms/--duration 50ms/; s/--seeds 1000/--seeds 10/' \
    -e 's/(coalesce-sim contract) --first .RANDOM/\1 --seeds 3 --loads seed/; s/coalesce-sim contract/& --duration 200ms --limit 9/' \
    -e 's/(coalesce-bench .*)--seconds 5/\1--seconds 0.2/; s/(coalesce-bench .*)--seconds 10/\1--seconds 1/; s/(explain load.*)--at 5s --for 1ms/\1--at 500ms --for 300ms/; s/ \| less$/ | cat/'
}
# What begins in the background must not have failed at the end. A person takes a moment between two lines.
script() { # FILE OF COMMANDS
  cat << 'EOF'
until_stopped() { local status=0; timeout 3 "$@" || status=$?; [ "$status" = 124 ]; }
EOF
  sed -e 's/$/\nsleep 0.5/' "$1"
  echo 'for job in $(jobs -p); do kill -0 "$job" 2> kill.log || wait "$job"; done'
}
run() { # NAME FILE OF COMMANDS
  script "$2" > "$work/script"
  (cd "$work" && exec bash -euo pipefail script) > "$work/output" 2>&1 &
  groups+=("$!")
  wait "$!" || { cat "$2" >&2; tail -n 20 "$work/output" >&2; die "$1 fails"; }
  kill -- "-$!" 2> "$work/null" || true
}
check() { # FILE TITLE
  local file title command
  : > "$work/commands"
  while IFS=$'\037' read -r file title command; do
    [ "$file|$title" = "$1|$2" ] || continue
    is_exception "$file" "$command" || here <<< "$command" >> "$work/commands"
  done < "$work/documented"
  [ -s "$work/commands" ] || die "$1 has no commands under \"$2\""
  run "\"$2\" of $1" "$work/commands"
  printf '%s|%s\n' "$1" "$2" >> "$work/checked"
}
check docs/start.md "You run virtual machines"
check docs/start.md "You study interrupts"
check docs/traces.md "Is it worth it?"
check docs/traces.md "Calibration"
check docs/traces.md "The optimum"
check docs/traces.md "Why did it interrupt, or not?"
check docs/policies.md "Bursts"
check docs/policies.md "A steady load"
for picture in bursts steady; do cmp "$work/docs/$picture.svg" "docs/$picture.svg"; done
check docs/migration.md ""
check docs/hooks.md "Only the socket"
check docs/install.md "Started by management software"
# In the place of the service.
coalesce-target serve --socket "$work/run/coalesce-target/db.sock" --control "$work/run/coalesce-target/db.control" \
  --file "$work/var/lib/coalesce-target/db.img" 2> "$work/log" &
groups+=("$!")
# Several disks in processes of their own.
coalesce-target serve --config <(printf '%s\n' "control = \"$work/run/disks.control\"" '[[disk]]' "socket = \"$work/run/a.sock\"" 'memory = "16M"') 2> "$work/log-disks" &
groups+=("$!")
sleep 1
check docs/install.md "A disk as a service"
check docs/operating.md "See what it does"
check docs/operating.md "What it has counted"
check docs/operating.md "Change the size of a disk"
check docs/operating.md "Limit a disk"
check docs/operating.md "Add and remove disks"

while IFS=$'\037' read -r file title command; do
  grep --quiet --fixed-strings --line-regexp "$file|$title" "$work/checked" || is_exception "$file" "$command" ||
    die "$file: neither run nor an exception: $command"
done < "$work/documented"

# Within a sentence: `cargo run ...`.
while read -r command; do
  status=0
  (eval "${command/cargo run/cargo run --quiet --locked}") > "$work/output" 2>&1 || status=$?
  [ "$status" = 0 ] || { tail -n 20 "$work/output" >&2; die "$command: status $status"; }
done < <(git ls-files -z '*.md' | xargs -0 grep -oh '`cargo run [^`]*`' | tr -d '`' | sort -u | grep -v 'manifest-path\|\.\.\.')

# The help of each subcommand, beside a disk of each kind.
examples() { # PROGRAM SUBCOMMAND
  "$@" --help | awk '/^EXAMPLES/ { here = 1 } here && /^      / { line = line substr($0, 7); if (sub(/\\$/, "", line)) next; print line; line = "" }'
}
truncate --size 64M "$work/disk.img" "$work/disk2.img"
(cd "$work" && exec coalesce-target serve --socket "$work/s" --control "$work/control" --file disk.img 2> "$work/log") & groups+=("$!")
coalesce-target serve --device nvme --socket "$work/n" --memory 64M 2> "$work/log-nvme" & groups+=("$!")
beside=("$!" "${groups[-2]}")
# A disk's queue, busy in the second after the first minute.
awk 'BEGIN { for (ms = 0; ms < 62000; ms++) { if (ms > 1300 && ms < 59990) continue
  for (i = 0; i < 4; i++) printf "{\"time_ns\":%.0f,\"disk\":\"s\",\"queue\":2,\"event\":\"submit\",\"id\":%d}\n", ms * 1e6 + i, ms * 4 + i
  for (i = 0; i < 4; i++) printf "{\"time_ns\":%.0f,\"disk\":\"s\",\"queue\":2,\"event\":\"complete\",\"id\":%d}\n", ms * 1e6 + 1e5 + i * 2000, ms * 4 + i } }' > "$work/disk.jsonl"
cp "$work/disk.jsonl" "$work/load.trace"
cp "$work/disk.jsonl" "$work/disk.trace"
sleep 1
for of in coalesce-bench "coalesce-target call" "coalesce-sim "{run,score,contract,replay,calibrate,explain,fuzz}; do
  read -ra words <<< "$of"
  examples "${words[@]}" > "$work/examples"
  [ -s "$work/examples" ] || die "$of --help has no examples"
  : > "$work/commands"
  while read -r command; do
    case $command in
      coalesce-bench*--seconds* | coalesce-bench*--ops*) ;;
      coalesce-bench*) command+=" --seconds 0.2" ;;
    esac
    is_exception help "$command" || here <<< "$command" >> "$work/commands"
  done < "$work/examples"
  run "the help of $of" "$work/commands"
done
kill "${beside[@]}"
wait "${beside[@]}"

# Each QEMU of the help is started on the disk that is served by the line before it.
examples coalesce-target serve | sed -e "s|/tmp/|$work/|g" > "$work/help"
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

while IFS= read -r line; do
  [ -z "$line" ] || grep --quiet --fixed-strings --line-regexp -- "$line" "$work/needed" || die "no command needs this exception: $line"
done <<< "$(grep -v '^help | coalesce-target serve\|^help | qemu' <<< "$exceptions")"
echo "check-commands: $(wc -l < "$work/documented") documented commands and those of the help do what they say, or are exceptions"
