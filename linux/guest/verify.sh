# shellcheck shell=dash
# Data is right however completions are taken: verified writes beside a reader that waits for each read, with out-of-order
# completions on and off and with strict Barriers, and while the controller is reset. The driver's counters show that
# completions were taken out of order.
# shellcheck source=linux/guest/lib.sh
. /cint/lib.sh
verified() { # NAME: batches with checksums, and urgent reads between them
  GLOBAL="--size=32M --time_based=0 --verify_fatal=1 --verify_state_save=0 --thread=1" \
    measure "$1" --rw=randwrite --verify=crc32c --verify_backlog=256 --do_verify=1 --bs=16k --iodepth=64 \
    --iodepth_batch_submit=32 --iodepth_batch_complete_min=1 --name="$1-reads" --ioengine=psync --rw=randread --offset=64M \
    --io_size=4M || fail "$1"
}
counters() { echo "$(parameter cint_early) $(parameter cint_held) $(parameter cint_timeouts)"; }
pass() { # NAME: prints how often the driver took one early, held a batch, or was told by its timer
  # shellcheck disable=SC2046 # three words
  set -- "$1" $(counters)
  verified "$1"
  # shellcheck disable=SC2046
  set -- "$@" $(counters)
  early=$(($5 - $2)) held=$(($6 - $3)) timeouts=$(($7 - $4))
  echo "RESULT {\"job\":\"counters\",\"name\":\"$1\",\"early\":$early,\"held\":$held,\"timeouts\":$timeouts}"
}
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
set_parameter cint_strict 1
reset_controller
# Coalescing Disable of vector 1: each completion may interrupt. Whether one finds an incomplete batch is chance: no check.
nvme set-feature /dev/nvme0 -f 9 -v 0x10001 > out 2>&1 || fail "Feature 09h: $(head -n 1 out)"
pass strict
set_parameter cint_ooo 1
( while sleep 0.5; do nvme reset /dev/nvme0; done ) & resets=$!
pass strict-out-of-order-reset
kill $resets
wait $resets 2> /dev/null
up_again
dmesg | grep -E 'timeout, |genctr|invalid id|nobody cared|cut here|BUG:|Call Trace' && fail "the kernel complains"
finish
