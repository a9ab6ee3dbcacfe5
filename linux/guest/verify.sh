# shellcheck shell=dash
# Data is right however completions are taken: verified writes beside a reader that waits for each read, with out-of-order
# completions on and off and with strict Barriers, and while the controller is reset. The driver's counters show that
# completions were taken out of order. Strict Barriers hold every batch with a slow member back until it is whole. Before all
# that, the golden traces of the consumer run in this kernel.
# shellcheck source=linux/guest/lib.sh
. /cint/lib.sh
verified() { # NAME: batches with checksums, and urgent reads between them
  GLOBAL="--size=32M --time_based=0 --verify_fatal=1 --verify_state_save=0 --thread=1" \
    measure "$1" --rw=randwrite --verify=crc32c --verify_backlog=256 --do_verify=1 --bs=16k --iodepth=64 \
    --iodepth_batch_submit=32 --iodepth_batch_complete_min=1 --name="$1-reads" --ioengine=psync --rw=randread --offset=64M \
    --io_size=4M || fail "$1"
}
insmod /mods/cint-replay.ko || fail "the golden traces: $(dmesg | grep cint-replay | tail -n 1)"
replayed() { cat "/sys/module/cint_replay/parameters/cint_$1"; }
echo "RESULT {\"job\":\"traces\",\"lines\":$(replayed lines),\"looks\":$(replayed looks)}"
counters() { echo "$(parameter cint_early) $(parameter cint_held) $(parameter cint_timeouts) $(parameter cint_torn)"; }
counted() { # NAME COMMAND...: prints how often the driver took one early, held a batch, or was told by its timer
  counted=$1; shift
  # shellcheck disable=SC2046 # four words
  set -- $(counters) "$@"
  before=$1,$2,$3,$4; shift 4
  "$@"
  # shellcheck disable=SC2046
  set -- $(echo "$before" | tr , ' ') $(counters)
  early=$(($5 - $1)) held=$(($6 - $2)) timeouts=$(($7 - $3)) torn=$(($8 - $4))
  echo "RESULT {\"job\":\"counters\",\"name\":\"$counted\",\"early\":$early,\"held\":$held,\"timeouts\":$timeouts,\"torn\":$torn}"
  [ "$torn" = 0 ] || fail "$counted: an interrupt took $torn completions of incomplete batches"
}
pass() { counted "$1" verified "$1"; }
pass in-order
[ "$early $held $timeouts" = "0 0 0" ] || fail "in order, but $early early, $held held, $timeouts timeouts"
set_parameter cint_ooo 1
pass out-of-order
[ "$early" -gt 0 ] || fail "no completion was taken out of order"
( while sleep 0.5; do nvme reset /dev/nvme0; done ) & resets=$!
pass out-of-order-reset
kill $resets
wait $resets 2> /dev/null
up_again
set_parameter cint_ooo 0
# Batches with a slow member, on the CPU of the interrupts. Coalescing Disable of vector 1: each completion may interrupt.
rounds=200
interrupt_each() { nvme set-feature /dev/nvme0 --feature-id=9 --value=0x10001 > out 2>&1 || fail "Feature 09h: $(head -n 1 out)"; }
slow_members() {
  irq=$(sed -n 's/^ *\([0-9]*\):.*nvme0q1$/\1/p' /proc/interrupts)
  whole=$(taskset -c "$(cat "/proc/irq/$irq/effective_affinity_list")" /cint/batch "$DEV" $rounds) || fail "$counted: batch"
  echo "RESULT {\"job\":\"batches\",\"name\":\"$counted\",\"whole\":${whole:-0},\"of\":$rounds}"
}
interrupt_each
counted slow-members-relaxed slow_members
[ "$whole" -lt $rounds ] || fail "relaxed, but no batch was taken in parts: no member was slow"
set_parameter cint_strict 1
set_parameter cint_hold_us 2000000
reset_controller
interrupt_each
counted slow-members-strict slow_members
[ "$whole" = $rounds ] || fail "strict, but $((rounds - whole)) batches were taken in parts"
[ "$held" -gt 0 ] || fail "strict, but nothing was held back"
[ "$timeouts" = 0 ] || fail "strict, but $timeouts timeouts within 2 s"
set_parameter cint_hold_us 200
pass strict
set_parameter cint_ooo 1
( while sleep 0.5; do nvme reset /dev/nvme0; done ) & resets=$!
pass strict-out-of-order-reset
kill $resets
wait $resets 2> /dev/null
up_again
dmesg | grep -E 'timeout, |genctr|invalid id|nobody cared|cut here|BUG:|Call Trace' && fail "the kernel complains"
finish
