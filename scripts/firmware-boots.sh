#!/usr/bin/env bash
# Boot firmware of six architectures from our disks under emulation, and print a table in Markdown. Results: docs/robustness.md.
#
#   firmware-boots.sh [ROW...]   rows: seabios grub edk2-x64 edk2-smm edk2-ia32 edk2-aa64 edk2-riscv64 uboot-x86 uboot-x64
#                                uboot-arm64 uboot-riscv64 slof s390-ccw; all of them by default
#
#   JOBS=N          machines at a time [the number of CPUs]
#   DEVICES="..."   of transitional modern nvme        POLICIES="..."   of the disk
#   ACTIONS="..."   of stop reset kill: what happens while the firmware reads
#   PROGRAM=FILE    a coalesce-target that is built already
#   PATIENCE=N      seconds for one boot [150; for SLOF 400]
#   KEEP=DIR        keeps consoles and logs
#
# Each boot reads and checks 1 MiB or more through the firmware, writes where it can, and prints a line that was on the disk. stop:
# QEMU stops and continues the machine. reset: it resets it. kill: the target is killed and started again (virtio-blk only, as
# QEMU does not reconnect to an NVMe disk). A cell is ok, or the number of a reason below the table. Exit status 1 if a boot failed.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
all="seabios grub edk2-x64 edk2-smm edk2-ia32 edk2-aa64 edk2-riscv64 uboot-x86 uboot-x64 uboot-arm64 uboot-riscv64 slof s390-ccw"
for r; do [[ " $all " == *" $r "* ]] || { echo "firmware-boots: no row $r; there are: $all" >&2; exit 2; }; done
chosen=${*:-$all} devices=${DEVICES-transitional modern nvme} policies=${POLICIES-none nvme vic cint auto} actions=${ACTIONS-stop reset kill}
guest/packages.sh mtools xorriso binutils binutils-powerpc-linux-gnu binutils-s390x-linux-gnu > /dev/null
firmware=$(guest/make-firmware.sh)
program=${PROGRAM:-}
if [ -z "$program" ]; then
  cargo build --quiet --locked --release --package coalesce-target
  program=$PWD/target/release/coalesce-target
fi
work=$(mktemp -d)
trap '[ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP"; rm -rf "$work"' EXIT
trap 'trap - TERM; kill 0' INT TERM
line="FIRMWARE-BOOT-OK $(od -An -N8 -tx8 /dev/urandom | tr -d ' ')"
guest/firmware/make-image.sh "$work" "$line"

share=$firmware/root/usr/share uboot=$firmware/root/usr/lib/u-boot
flash() { echo "-drive if=pflash,format=raw,unit=0,readonly=on,file=$share/$1 -drive if=pflash,format=raw,unit=1,snapshot=on,file=$share/$2"; }
# Sets what a row is: name, package of its version, emulator, its arguments, image, and what the image's programs print first and
# then, before they have read everything; seconds of patience; whether the firmware has a driver for NVMe.
row() { # NAME
  image=disk first='STEP 0' then='STEP 1' patience=${PATIENCE:-150} has_nvme=1
  case $1 in
    seabios) name=SeaBIOS package=seabios machine="x86_64 -M pc,memory-backend=m" image=bios first='>' then='\.\.' ;;
    grub) name="GRUB on SeaBIOS" package=grub-common machine="x86_64 -M q35,memory-backend=m" ;;
    edk2-x64) name="EDK2 x64" package=ovmf machine="x86_64 -M q35,memory-backend=m $(flash OVMF/OVMF_CODE_4M.fd OVMF/OVMF_VARS_4M.fd)" ;;
    edk2-smm)
      name="EDK2 x64 with SMM" package=ovmf
      machine="x86_64 -M q35,smm=on,memory-backend=m -global driver=cfi.pflash01,property=secure,value=on"
      machine+=" $(flash OVMF/OVMF_CODE_4M.secboot.fd OVMF/OVMF_VARS_4M.fd)" ;;
    edk2-ia32) name="EDK2 ia32" package=ovmf-ia32 machine="i386 -M q35,memory-backend=m $(flash OVMF/OVMF32_CODE_4M.fd OVMF/OVMF32_VARS_4M.fd)" ;;
    edk2-aa64) name="EDK2 aa64" package=qemu-efi-aarch64 machine="aarch64 -cpu cortex-a57 -M virt,memory-backend=m -bios $share/qemu-efi-aarch64/QEMU_EFI.fd" ;;
    edk2-riscv64) name="EDK2 riscv64" package=qemu-efi-riscv64 machine="riscv64 -M virt,acpi=off,memory-backend=m $(flash qemu-efi-riscv64/RISCV_VIRT_CODE.fd qemu-efi-riscv64/RISCV_VIRT_VARS.fd)" ;;
    uboot-x86) name="U-Boot x86" package=u-boot-qemu machine="i386 -M pc,memory-backend=m -bios $uboot/qemu-x86/u-boot.rom" ;;
    uboot-x64) name="U-Boot x86-64" package=u-boot-qemu machine="x86_64 -M pc,memory-backend=m -bios $uboot/qemu-x86_64/u-boot.rom" ;;
    uboot-arm64) name="U-Boot arm64" package=u-boot-qemu machine="aarch64 -cpu cortex-a57 -M virt,memory-backend=m -bios $uboot/qemu_arm64/u-boot.bin" ;;
    uboot-riscv64) name="U-Boot riscv64" package=u-boot-qemu machine="riscv64 -M virt,memory-backend=m -kernel $uboot/qemu-riscv64_smode/u-boot.bin" ;;
    slof)
      name=SLOF package=qemu-system-data first='' then='' patience=${PATIENCE:-400} has_nvme=''
      machine="ppc64 -M pseries,memory-backend=m,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off" ;;
    s390-ccw) name=s390-ccw package=qemu-system-data image=ipl first='' then='' has_nvme='' machine="s390x -M s390-ccw-virtio,memory-backend=m" ;;
    *) echo "no such row: $1; rows: $all" >&2; return 2 ;;
  esac
}

serve() { # DIRECTORY KIND POLICY: sets target
  local _
  "$program" serve --device "$2" --socket "$1/socket" --file "$1/disk" --policy "$3" 2>> "$1/log" &
  target=$!
  for _ in $(seq 400); do if [ -S "$1/socket" ]; then return; fi; sleep 0.05; done
}

# One boot, in a shell of its own. Writes "ok", or why not, to DIRECTORY/result.
boot() { # DIRECTORY DEVICE POLICY ACTION
  local dir=$1 kind=virtio-blk disk acted='' why='' machine_words until monitor emulator target
  mkdir "$dir"
  cp --sparse=always "$work/$image" "$dir/disk"
  disk="-chardev socket,id=c,path=$dir/socket,reconnect-ms=200 -device vhost-user-blk-pci,chardev=c,num-queues=1,bootindex=0"
  case $2 in
    modern) disk+=,disable-legacy=on ;;
    nvme) kind=nvme disk="-device {\"driver\":\"vfio-user-pci\",\"bootindex\":0,\"socket\":{\"type\":\"unix\",\"path\":\"$dir/socket\"}}" ;;
  esac
  serve "$dir" "$kind" "$3"
  mkfifo "$dir/monitor"; exec {monitor}<> "$dir/monitor"
  read -ra machine_words <<< "$machine $disk"
  "$firmware/bin/qemu-system-${machine_words[0]}" -accel tcg -m 512 -object memory-backend-memfd,id=m,size=512M,share=on -nodefaults \
    -display none -serial "file:$dir/serial" -monitor stdio -no-shutdown -L "$share/qemu" -L "$share/seabios" "${machine_words[@]:1}" \
    < "$dir/monitor" > "$dir/qemu" 2>&1 &
  emulator=$!
  until=$((SECONDS + patience))
  until grep -aqs "$line" "$dir/serial"; do
    if grep -aqs FIRMWARE-BOOT-BAD "$dir/serial"; then why="what was read is not what was written"; break; fi
    if ! kill -0 $emulator 2> /dev/null; then why="QEMU has ended: $(tail -n 1 "$dir/qemu")"; break; fi
    if [ $SECONDS -ge $until ]; then why="nothing within $patience s: $(tr -d '\r' < "$dir/serial" | tail -n 1 | tail -c 100)"; break; fi
    if [ -z "$acted" ] && [ -n "$4" ] && grep -aqs "$then" "$dir/serial"; then
      acted=1
      case $4 in
        stop) echo stop >&$monitor; sleep 1; echo cont >&$monitor ;;
        reset) echo system_reset >&$monitor ;;
        kill) kill -KILL "$target"; wait "$target" 2> /dev/null || true; serve "$dir" "$kind" "$3" ;;
      esac
    fi
    sleep 0.1
  done
  echo quit >&$monitor
  wait $emulator 2> /dev/null || true
  kill "$target"; wait "$target" 2> /dev/null || true
  if [ -z "$why" ]; then
    if [ -n "$4" ] && [ -z "$acted" ]; then why="it was over before the $4"; fi
    if [ "$4" = reset ] && [ "$(grep -ao "$first" "$dir/serial" | wc -l)" -lt 2 ]; then why="it did not begin again"; fi
    if [ "$4" = kill ] && [ "$(grep -c ': connected' "$dir/log")" -lt 2 ]; then why="QEMU did not connect again"; fi
    if grep -q 'warning\|error\|panicked' "$dir/log"; then why="the target said: $(grep -m 1 'warning\|error\|panicked' "$dir/log")"; fi
    if [ -n "$first" ] && [ "$image" = disk ] && ! grep -aq '^mark=written' "$dir/disk"; then why="what it wrote is not on the disk"; fi
  fi
  echo "${why:-ok}" > "$dir/result"
  rm "$dir/disk"
}

running=0
start() { # ARGUMENTS of boot
  if [ $running -ge "${JOBS:-$(nproc)}" ]; then wait -n || true; running=$((running - 1)); fi
  boot "$@" &
  running=$((running + 1))
}
is_possible() { # DEVICE ACTION
  [ "$1" != nvme ] || [ -n "$has_nvme" ] || return 1
  [ -z "$2" ] || { [ -n "$then" ] && [ "$1 $2" != "nvme kill" ]; }
}
for r in $chosen; do
  row "$r"
  for device in $devices; do
    for policy in $policies; do if is_possible "$device" ''; then start "$work/$r-$device-$policy" "$device" "$policy" ''; fi; done
    for action in $actions; do if is_possible "$device" "$action"; then start "$work/$r-$device-$action" "$device" auto "$action"; fi; done
  done
done
wait

echo "$("$firmware/bin/qemu-system-x86_64" --version | sed -n '1s/ (.*//p'), $("$program" --version), $(date -u +%F)"
echo
head='| firmware | version | disk |' rule='|---|---|---|'
for column in $policies $actions; do head+=" $column |" rule+='---|'; done
printf '%s\n' "$head" "$rule"
failed=0
reasons=()
for r in $chosen; do
  row "$r"
  version=$(sed -n "s/^$package //p" "$firmware/versions")
  for device in $devices; do
    is_possible "$device" '' || continue
    printf '| %s | %s | %s |' "$name" "$version" "$device"
    for column in $policies $actions; do
      action=''
      if [[ " $actions " == *" $column "* ]]; then action=$column; fi
      result=-
      if is_possible "$device" "$action"; then result=$(cat "$work/$r-$device-$column/result" || echo "the boot has no result"); fi
      if [ "$result" != ok ] && [ "$result" != - ]; then reasons+=("$result"); failed=$((failed + 1)) result="failed ($failed)"; fi
      printf ' %s |' "$result"
    done
    echo
  done
done
echo
for i in "${!reasons[@]}"; do echo "$((i + 1)). ${reasons[i]}"; done
[ $failed = 0 ]
