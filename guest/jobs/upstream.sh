# shellcheck shell=dash
# Test suites of others, below /tools (make-tools.sh): nvme-cli's (SUITE=nvme-cli) or blktests (SUITE=blktests, TESTS=a,b:
# names of tests), on the first NVMe disk, which they overwrite. Their output becomes lines "GUEST-INFO".
# shellcheck source=/dev/null
. /lib.sh
# shellcheck disable=SC2086 # the last of the words
for DISK in $DISK_LIST; do case $DISK in nvme*) break ;; esac; done
mount -t proc proc /tools/proc
mount -t sysfs sys /tools/sys
mount -t devtmpfs dev /tools/dev
mount -t tmpfs tmp /tools/tmp
ln -s /proc/self/fd /tools/dev/fd 2> /dev/null
mkdir -p /tools/dev/shm /tools/root /tools/etc /tools/run
ln -s gawk /tools/usr/bin/awk
[ -e /tools/usr/bin/sh ] || ln -s bash /tools/usr/bin/sh
cp /etc/passwd /etc/group /tools/etc/
cp -r /boot /tools/ 2> /dev/null # the kernel's configuration
# The version of a kernel of Debian's backports has a "+", which blktests cannot read.
release=$(uname -r | tr + -)
if [ "$release" != "$(uname -r)" ]; then
  printf '#!/bin/bash\ncase $* in -r) echo %s ;; *) exec /usr/bin/uname "$@" ;; esac\n' "$release" > /tools/usr/sbin/uname
  chmod +x /tools/usr/sbin/uname
  for of in /tools/boot/config- /tools/lib/modules/; do
    [ ! -e "$of$(uname -r)" ] || ln -s "$(uname -r | sed "s|^|${of##*/}|")" "$of$release"
  done
fi
[ -e /tools/usr/bin/sudo ] || { printf '#!/bin/bash\nexec "$@"\n' > /tools/usr/bin/sudo && chmod +x /tools/usr/bin/sudo; } # root already
# su asks PAM, which nothing has configured here.
# shellcheck disable=SC2016 # for bash
printf '#!/bin/bash\nexec setpriv --reuid="$1" --regid=65534 --clear-groups bash -c "$3"\n' > /tools/usr/bin/su
echo "nobody:x:65534:65534::/tmp:/bin/bash" >> /tools/etc/passwd
inside() { env -i PATH=/usr/sbin:/usr/bin HOME=/root SYSTEMD_IGNORE_CHROOT=1 chroot /tools /bin/bash -c "$1" 2>&1 | sed 's/^/GUEST-INFO /'; }
case ${SUITE:?} in
  nvme-cli)
    printf '{"controller": "/dev/%s", "ns1": "/dev/%s", "log_dir": "/tmp/log"}' "${DISK%n*}" "$DISK" > /tools/src/nvme-cli/tests/config.json
    # shellcheck disable=SC2016 # for bash
    inside 'cd /src/nvme-cli && for t in tests/nvme_*_test.py; do python3 tests/tap_runner.py --start-dir tests "$(basename "${t%.py}")"; done'
    ;;
  blktests)
    printf 'TEST_DEVS=(/dev/%s)\nTIMEOUT=%s\nDEVICE_ONLY=1\nNORMAL_USER=nobody\n' "$DISK" "${EACH:-20}" > /tools/src/blktests/config
    inside "cd /src/blktests && ./check $(echo "${TESTS:?}" | tr , ' ')"
    ;;
  *) fail "no such suite: $SUITE" ;;
esac
finish
