#!/usr/bin/env bash
# Boot the bare-metal guest with one disk: in a second, without a download, under KVM wherever that runs anything. It does on standard
# input what it reads there, and answers on standard output.
#
#   run-bare.sh [nvme:]SOCKET|none [-- more QEMU arguments]
#
#   SOCKET, nvme:SOCKET   as for run-guest.sh; none: the disk is among the QEMU arguments
#   QUEUES      virtqueues of the disk, default 1 (an NVMe disk is asked for all it has); 15 at most, as the guest has 16 vectors
#   EVENT_IDX   on or off, default on         ACCEL   kvm or tcg, default what accel.sh finds out; with -icount it is tcg
#   QEMU        default qemu-system-x86_64, or what make-qemu.sh finds
#
# It says "GUEST-READY disk=NAME queues=N blocks=N event_idx=on|off accel=kvm|tcg", reads commands, and answers:
#
#   run N STREAM...   reads random blocks of 4 KiB until the first stream has completed N; 0: until stop. A stream is
#                     QUEUE:DEPTH[:WORK[:BURST:PAUSE]]: reads in flight; work for each read, in ns, before it is submitted (each rings a
#                     doorbell of its own, without work all that can be submitted do together); after BURST reads, once they have
#                     completed, a pause in ns. 64 reads in flight at most in a queue; 16 streams. It answers when all reads have
#                     completed, with a line "RESULT {...}": interrupts that were taken, of each vector; doorbells; waits; and of each
#                     stream ios, failed, bad (block n does not begin with n + 1 as 64 bits, little endian, and end with its
#                     complement), latencies. strays: completions of nothing.
#   stop              ends a run without an end
#   off               ends the guest, with exit status 0
#
# A queue is looked at only after an interrupt of its own vector, so a run in which one is lost does not end. What is wrong, a line
# "GUEST-ERROR" says. On a second serial port (-serial) it answers each line "QUESTION" with "QUESTION N": interrupts that all queues
# together have taken.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
here=$(cd "$(dirname "$0")" && pwd)
die() { printf 'run-bare: %s\n' "$*" >&2; exit 2; }

[ $# -ge 1 ] || { sed -n '5p' "$0" | cut -c3- >&2; exit 2; }
disk=$1; shift
[ "${1:-}" != -- ] || shift
qemu=${QEMU:-qemu-system-x86_64}
case $disk in
  none) device=() ;;
  nvme:*)
    [ -S "${disk#*:}" ] || die "not a socket: ${disk#*:}"
    qemu=$("$here/make-qemu.sh")
    device=(-device "$(jq -n --arg path "${disk#*:}" '{driver: "vfio-user-pci", socket: {type: "unix", path: $path}}')")
    ;;
  *)
    [ -S "$disk" ] || die "not a socket: $disk"
    device=(-chardev "socket,id=disk,path=${disk//,/,,}" -device
      "vhost-user-blk-pci,chardev=disk,num-queues=${QUEUES:-1},queue-size=256,event_idx=${EVENT_IDX:-on},disable-legacy=on")
    ;;
esac
command -v "$qemu" > /dev/null || die "$qemu is missing: run packages.sh"
image=$("$here/make-bare.sh")
# QEMU 7.2 asks KVM for a register of the host's that some have not, and aborts.
# Before 8.1 QEMU leaves out the barriers of an emulated machine that cannot have a second CPU ("tcg: Do not elide memory barriers for
# !CF_PARALLEL in system mode"). The guest then reads a used index from before it has asked for an interrupt, and sleeps for ever.
machine=(-cpu "max,-arch-capabilities" -smp "1,maxcpus=2" -m 64 -bios "$image")
case " $* " in
  *" -icount "*) accel=tcg ;;
  *) accel=$("$here/accel.sh" "$qemu" -machine q35 "${machine[@]}") ;;
esac
exec "$qemu" -accel "$accel" -machine q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=64M,share=on "${machine[@]}" \
  -nodefaults -no-user-config -display none -serial stdio -no-reboot "${device[@]}" "$@"
