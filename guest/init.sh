#!/bin/busybox sh
# shellcheck shell=dash
# The guest's first process: mounts, loads modules, waits for the disks, runs /job.sh, powers off.
# The kernel passes NAME=VALUE words of its command line on as variables; DISKS is the number of disks.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin LD_LIBRARY_PATH=/lib
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2> /dev/null
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
cd /dev/shm || exit
dmesg -n 1 # kernel messages would garble the job's lines; they are shown below if it fails
echo # whatever the kernel or the firmware left on the line
echo INIT # run-guest.sh waits for it: from here on drivers are loaded
# Parameters of modules on the command line: modprobe reads them, insmod does not.
params() { tr ' ' '\n' < /proc/cmdline | sed -n "s/^$(basename "$1" .ko | tr - _)[.]//p"; }
# shellcheck disable=SC2046 # a list of words
while read -r m; do insmod "/mods/$m" $(params "$m") || echo "GUEST-ERROR insmod $m failed"; done < /mods/order
up() { cut -d' ' -f1 /proc/uptime; }
disks() { for d in /sys/block/vd* /sys/block/nvme*n*; do [ ! -e "$d" ] || printf '%s ' "${d##*/}"; done; }
i=0
while [ "$(disks | wc -w)" -lt "$DISKS" ] && [ $((i += 1)) -le 50 ]; do sleep 0.2; done
DISK_LIST=$(disks)
export DISK_LIST
# With one queue Linux would put mq-deadline before the disk, which starves everything else while there are
# real-time requests: what is to be seen is what the disk does. SCHEDULER=mq-deadline gives it back.
for d in $DISK_LIST; do echo "${SCHEDULER:-none}" > "/sys/block/$d/queue/scheduler"; done
echo "GUEST-READY kernel=$(uname -r) disks=$(disks | sed 's/ $//; s/ /,/g') uptime=$(up)"
if [ "$(disks | wc -w)" = "$DISKS" ]; then sh /job.sh; rc=$?; else echo "GUEST-ERROR $DISKS disks expected"; rc=1; fi
[ $rc = 0 ] || dmesg | tail -n 20
echo "GUEST-DONE rc=$rc uptime=$(up)"
poweroff -f
