#!/usr/bin/env bash
# Boot a Linux guest with one disk per socket, run one job in it, print the job's lines.
#
#   run-guest.sh JOB [nvme:]SOCKET... [NAME=VALUE...] [-- more QEMU arguments]
#
#   JOB          a file (busybox sh), or a name in jobs/: demo verify soak ioprio irqs nvme resize
#   SOCKET       of a vhost-user-blk disk: becomes /dev/vda, the next one /dev/vdb, and so on
#   nvme:SOCKET  of an NVMe controller over vfio-user: becomes /dev/nvme0n1, and so on; needs the QEMU of make-qemu.sh
#   NAME=VALUE   a variable of the job; RUNTIME and COUNT are also taken from the environment
#   QUEUES       virtqueues per disk, default 1      CPUS      guest CPUs, default 2
#   MEM          guest memory in MiB, default 512    QEMU      default qemu-system-x86_64, or what make-qemu.sh finds
#   MORE_DISKS   disks among the QEMU arguments      INITRD    one more archive (cpio) for the guest
#   TIMEOUT      seconds, default 900 + SECONDS=...  APPEND    more kernel command line
#   SILENCE      seconds without a word from the kernel after which it is booted once more, default 120
#   LOG          keep the whole console here          ACCEL    kvm or tcg, default what accel.sh finds out
#   INPUT        what the guest reads from its console: a file or a pipe, default nothing
#   ON_STEP      command run here, with the step's name as one more argument, for every line
#                "GUEST-STEP name" of the job: one after the other, in order; the guest does not wait.
#                It finds QEMU's process id in GUEST_PID; what it prints goes to standard error.
#
# Prints the lines that begin with RESULT, GUEST or IRQ; GUEST-READY has accel=kvm or accel=tcg. Exit status: 0 when the job ended
# with 0, 124 on timeout, 2 for wrong usage, 1 otherwise. Neither KVM nor root is needed: where no Linux boots under KVM, and with
# -plugin, which KVM cannot have, QEMU emulates the guest's CPUs (TCG).
# Emulated, a kernel hangs now and then before its first process, with no driver for any disk yet: it is booted once more, and that is said.
# A vhost-user-blk target that goes away and comes back on the same socket is reconnected to within about a second,
# by QEMU 7.2 only if it did not go in the midst of the handshake. QEMU does not reconnect to a vfio-user target.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '4p' "$0" | cut -c3- >&2; exit 2; }
die() { printf 'run-guest: %s\n' "$*" >&2; exit 2; }

[ $# -ge 2 ] || usage
job=$1; shift
[ -f "$job" ] || job=$here/jobs/$job.sh
[ -f "$job" ] || die "no such job: $job"
sockets=() params=() seconds=0 has_nvme=
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    SECONDS=*) params+=("$1"); seconds=${1#*=} ;;
    [A-Z]*=*) params+=("$1") ;;
    nvme:*) [ -S "${1#*:}" ] || die "not a socket: ${1#*:}"; sockets+=("$1"); has_nvme=1 ;;
    *) [ -S "$1" ] || die "not a socket: $1"; sockets+=("$1") ;;
  esac
  shift
done
[ ${#sockets[@]} -gt 0 ] || usage
for name in RUNTIME COUNT; do [ -z "${!name:-}" ] || params+=("$name=${!name}"); done
qemu=${QEMU:-qemu-system-x86_64} mem=${MEM:-512} timeout=${TIMEOUT:-$((900 + seconds))}
[ -z "$has_nvme" ] || qemu=$("$here/make-qemu.sh")
command -v "$qemu" > /dev/null || die "$qemu is missing: run packages.sh"
guest=$("$here/make-guest.sh")

tmp=$(mktemp -d)
log=${LOG:-$tmp/console}
pid='' hooks=''
# shellcheck disable=SC2317 # called by trap
cleanup() { [ -z "$pid" ] || kill "$pid" 2> /dev/null || true; rm -rf "$tmp"; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The kernel unpacks archives one after the other (each is padded to 512 bytes): the guest, then the job.
cp "$job" "$tmp/job.sh"; cp "$here/jobs/lib.sh" "$tmp/lib.sh"
{ cat "$guest/initrd" ${INITRD:+"$INITRD"}; (cd "$tmp" && printf '%s\n' job.sh lib.sh | cpio --quiet -o -H newc); } > "$tmp/initrd"

# "reconnect" (seconds) was replaced by "reconnect-ms" in QEMU 9.2.
release=$("$qemu" --version | sed -n '1s/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
reconnect=reconnect=1
if [ "$((${release% *} * 100 + ${release#* }))" -ge 902 ]; then reconnect="reconnect-ms=500"; fi

disks=() i=0
for s in "${sockets[@]}"; do
  case $s in
    nvme:*) disks+=(-device "$(jq -n --arg id "disk$i" --arg path "${s#*:}" '{driver: "vfio-user-pci", id: $id, socket: {type: "unix", path: $path}}')") ;;
    *) disks+=(-chardev "socket,id=sock$i,path=${s//,/,,},$reconnect"
      -device "vhost-user-blk-pci,id=disk$i,chardev=sock$i,num-queues=${QUEUES:-1}") ;;
  esac
  i=$((i + 1))
done
: > "$log"
case " $* " in
  *" -plugin "*) accel=tcg ;;
  *) accel=$("$here/accel.sh" "$qemu" -machine q35 -cpu max -m 512 -kernel "$guest/vmlinuz" -initrd "$guest/initrd" \
    -append "console=ttyS0 panic=-1 quiet DISKS=0" 2> "$log") ;;
esac
# The kernel takes an emulated TSC for unstable and would read a slow timer device at every time stamp,
# which halves the number of I/Os; mitigations and watchdogs only cost time under emulation.
emulated="tsc=reliable clocksource=tsc mitigations=off nokaslr nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
[ "$accel" = tcg ] || emulated=
# QEMU before 8.1 omits memory barriers where the machine cannot have a second CPU: an interrupt can be lost. The kernel is told that there is
# none, or it would ask each device for a second queue.
cpus=${CPUS:-2} only=
[ "$cpus" != 1 ] || { cpus="1,maxcpus=2" only="nr_cpus=1"; }
append="console=ttyS0 panic=-1 $emulated $only DISKS=$((i + ${MORE_DISKS:-0})) ${params[*]} ${APPEND:-}"
boot() {
  # Guest memory must be shared with the target: memfd, share=on.
  exec {console}< <(exec timeout -k 5 "$timeout" "$qemu" -accel "$accel" -machine q35,memory-backend=mem \
    -cpu max -smp "$cpus" -m "$mem" -object "memory-backend-memfd,id=mem,size=${mem}M,share=on" \
    -nodefaults -no-user-config -display none -serial stdio -no-reboot -kernel "$guest/vmlinuz" -initrd "$tmp/initrd" \
    -append "$append" "${disks[@]}" "$@" < "${INPUT:-/dev/null}" 2>&1)
  pid=$! # of timeout, which passes a signal on to QEMU
  echo "$pid" > "$tmp/pid"
}
boot "$@"

if [ -n "${ON_STEP:-}" ]; then
  exec {steps}> >(
    exec {console}<&- 1>&2
    while read -r step; do
      pid=$(< "$tmp/pid")
      read -r GUEST_PID _ < "/proc/$pid/task/$pid/children" || true # empty once QEMU is gone
      export GUEST_PID
      sh -c "$ON_STEP \"\$1\"" on-step "$step" < /dev/null || echo "run-guest: ON_STEP $step: status $?"
    done
  )
  hooks=$!
fi
silence=${SILENCE:-120}
while true; do
  rc=0; IFS= read -r ${silence:+-t "$silence"} line <&"$console" || rc=$?
  if [ "$rc" -gt 128 ]; then
    echo "run-guest: no first process, and nothing from the kernel for $silence s: it is booted once more; its last line: $(tail -n 1 "$log")" >&2
    kill "$pid"; wait "$pid" || true
    exec {console}<&-
    silence=
    boot "$@"
    continue
  fi
  [ "$rc" = 0 ] || [ -n "$line" ] || break
  line=${line%$'\r'}
  printf '%s\n' "$line" >> "$log"
  case $line in
    INIT) silence= ;;
    GUEST-READY*) printf '%s accel=%s\n' "$line" "$accel" ;;
    RESULT* | GUEST* | IRQ*) printf '%s\n' "$line" ;;
  esac
  [ -z "$hooks" ] || [[ $line != "GUEST-STEP "* ]] || printf '%s\n' "${line#GUEST-STEP }" >&"$steps"
done
rc=0; wait "$pid" || rc=$?
pid=''
if [ -n "$hooks" ]; then exec {steps}>&-; wait "$hooks" || true; fi

if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
  echo "run-guest: timeout after $timeout s; last console lines:" >&2
  tail -n 8 "$log" >&2
  exit 124
fi
if ! grep -aq '^GUEST-DONE rc=0 ' "$log"; then
  echo "run-guest: the guest failed (QEMU status $rc); last console lines:" >&2
  tail -n 25 "$log" >&2
  exit 1
fi
