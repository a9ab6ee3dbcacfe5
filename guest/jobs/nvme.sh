# shellcheck shell=dash
# An NVMe disk, the first one: commands of nvme-cli, features that are read back, resets under verified writes, and a driver
# that goes and comes back.
#   SIZE   part of the disk that is written, default 16M      TIMES   how often each of the resets is repeated, default 1
# Steps: "commands", "reset", "flr", "unbind", "rescan". RESULT job=nvme has what was done, and errors=0 or it fails.
# shellcheck source=/dev/null
. /lib.sh
# shellcheck disable=SC2086 # the last of the words
for DISK in $DISK_LIST; do case $DISK in nvme*) break ;; esac; done
use "$DISK"
CTRL=${DEV%n*} PCI=$(basename "$(readlink -f "/sys/class/nvme/${DISK%n*}/device")")
commands=0 resets=0 passes=0

quiet() { commands=$((commands + 1)); "$@" > out 2>&1 || fail "$*: $(grep -m 1 . out)"; }
refused() { if "$@" > out 2>&1; then fail "$* succeeded"; fi; }
is() { [ "$2" = "$3" ] || fail "$1: $2 instead of $3"; }

# The value of a feature: feature ID [nvme get-feature's options]
feature() {
  id=$1; shift
  nvme get-feature "$CTRL" -f "$id" "$@" | sed -n 's/.*[Cc]urrent value: *//p' | awk '{ printf "%d", $1 }'
}
features() { # COALESCING VECTOR-1
  is "feature 08h" "$(feature 8)" "$1"
  is "feature 09h" "$(feature 9 --cdw11=1)" "$2"
}
set_features() {
  quiet nvme set-feature "$CTRL" --feature-id=8 --value=0x0503
  quiet nvme set-feature "$CTRL" --feature-id=9 --value=0x10001
  features 1283 65537
}

step commands
# shellcheck disable=SC2086 # a list of words
for command in id-ctrl list-ns smart-log error-log fw-log "effects-log --csi=0"; do quiet nvme $command "$CTRL"; done
for command in id-ns ns-descs flush; do quiet nvme $command "$DEV"; done
for id in 1 2 4 5 6 7 8 10 11; do quiet nvme get-feature "$CTRL" -f $id; done
refused nvme get-feature "$CTRL" -f 3
refused nvme admin-passthru "$CTRL" --opcode=0xc0
features 0 1
set_features
blocks=$((4096 / $(cat "/sys/block/$DISK/queue/logical_block_size")))
head -c 4096 /dev/urandom > new
head -c 4096 /dev/zero > zeros
same() { quiet nvme read "$DEV" -s 0 -c $((blocks - 1)) -z 4096 -d old; quiet cmp old "$1"; }
quiet nvme write "$DEV" -s 0 -c $((blocks - 1)) -z 4096 -d new; same new
quiet nvme write-zeroes "$DEV" -s 0 -c $((blocks - 1)); same zeros
quiet nvme dsm "$DEV" -d -s 0 -b $blocks; same zeros
refused nvme read "$DEV" -s 0xffffffffff -c 0 -z 4096 -d old

# What was counted: SMART / Health Information.
health() { nvme smart-log "$CTRL" -o json | tr -d ' ,"' | sed -n "s/^$1://p"; }
for counter in host_write_commands data_units_read power_cycles; do
  [ "$(health $counter)" -ge 1 ] || fail "smart-log: $counter: $(health $counter)"
done

write() { passes=$((passes + 1)); write_pass $passes "$1" || fail "$1"; }
# What the last pass wrote is there.
read_back() { read_pass $passes "$1" || fail "$1"; }

under_load() { # NAME COMMAND...
  step "$1"
  for _ in $(seq "${TIMES:-1}"); do
    set_features
    n=$(requests)
    write "$1" > load.out & load=$!
    while [ "$(requests)" -lt $((n + 500)) ] && kill -0 $load; do sleep 0.05; done
    "$@" || fail "$1"
    kill -0 $load || fail "$1 came after the load"
    resets=$((resets + 1))
    wait $load; cat load.out # its interrupts are not counted across a reset
    if grep -q GUEST-ERROR load.out; then bad=1; fi
    passes=$((passes + 1)) # in the background it was another shell's
    features 0 1
    read_back "$1-read"
  done
}
reset() { nvme reset "$CTRL"; }
flr() { echo flr > "/sys/bus/pci/devices/$PCI/reset_method" && echo 1 > "/sys/bus/pci/devices/$PCI/reset"; }
under_load reset
under_load flr

back() { # the disk is there again, perhaps under another name
  for _ in $(seq 50); do
    for d in /sys/bus/pci/devices/"$PCI"/nvme/nvme*/nvme*n*; do
      if [ -b "/dev/${d##*/}" ]; then
        use "${d##*/}"; CTRL=${DEV%n*}
        echo none > "/sys/block/$DISK/queue/scheduler"
        return
      fi
    done
    sleep 0.1
  done
  fail "the disk does not come back"; finish
}
unbind() { echo "$PCI" > /sys/bus/pci/drivers/nvme/unbind && echo "$PCI" > /sys/bus/pci/drivers/nvme/bind; }
rescan() { echo 1 > "/sys/bus/pci/devices/$PCI/remove" && echo 1 > /sys/bus/pci/rescan; }
for way in unbind rescan; do
  step $way
  for _ in $(seq "${TIMES:-1}"); do
    set_features
    $way || fail $way
    back
    resets=$((resets + 1))
    features 0 1
    read_back $way-read
    write $way-write
  done
done
# shellcheck disable=SC2154 # bad: lib.sh
printf 'RESULT {"disk":"%s","job":"nvme","rc":%d,"errors":%d,"commands":%d,"resets":%d,"passes":%d}\n' \
  "$DISK" "$bad" "$bad" $commands $resets $passes
finish
