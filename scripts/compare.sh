#!/usr/bin/env bash
# Our target and the servers of others under one client, in randomised blocks of short turns: tables with intervals.
#
#   compare.sh [KIND...] [-- OPTIONS]      kinds: memory file direct spdk spdk80; memory, file and direct by default
#
#   memory   both copy 4 KiB of memory for each request: QEMU's daemon with a file in /dev/shm, ours with that and with --memory;
#            beside them QEMU's null-co, which moves no data
#   file     a file in the page cache;   direct   the same without the cache
#   spdk     SPDK's vhost target with a malloc bdev, as it is, with its own coalescing, and with ours, on a CPU that it polls on:
#            SPDK_TGT=coalesce_spdk_tgt;   spdk80   a null bdev that takes 80 us, and more policies: the frontier
#
# OPTIONS are those of coalesce-compare (--help): --depth, --queues, --rate, --event-idx, --seconds, --json, --plots. Each kind takes
# --seconds [20] for each of four depths and 1 and 4 queues. {} in them is the kind: --json compare-{}.json.
# IMAGES=DIR for disk images [a temporary one]. Needs qemu-storage-daemon and jq.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'compare: %s\n' "$*" >&2; exit 1; }
command="scripts/compare.sh $*" kinds=() options=()
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; options=("$@"); break ;;
    memory | file | direct | spdk | spdk80) kinds+=("$1") ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(memory file direct)
for tool in qemu-storage-daemon jq; do command -v "$tool" > /dev/null || die "no $tool: guest/packages.sh"; done
cargo build --quiet --locked --release --package coalesce-target --package coalesce-load --package coalesce-demo
bin=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
images=${IMAGES:-$work}
shm=$(mktemp -d -p /dev/shm)
pids=()
end() { [ ${#pids[@]} -eq 0 ] || { kill "${pids[@]}" 2> /dev/null; wait; } || true; pids=(); }
trap 'end; rm -rf "$work" "$shm"; rm -f "$images"/compare.img' EXIT
wait_for() { for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.05; done; cat "$work"/log* >&2; die "no $1"; }

servers=()
qemu() { # NAME BLOCKDEV: QEMU's daemon with 4 queues
  local socket=$work/${#servers[@]}
  qemu-storage-daemon --blockdev "node-name=disk,$2" \
    --export "type=vhost-user-blk,id=e,node-name=disk,addr.type=unix,addr.path=$socket,writable=on,num-queues=4" \
    --pidfile "$socket.pid" > "$work/log" 2>&1 &
  pids+=("$!")
  wait_for "$socket.pid" # it is written when the socket listens
  servers+=("$1=$socket,$!")
}
ours() { # NAME POLICY OPTION...: the disk's process is a child of the one that is started
  local socket=$work/${#servers[@]} name=$1 policy=$2 control pid
  control=$socket.control
  shift 2
  "$bin/coalesce-target" serve --socket "$socket" --control "$control" --policy "$policy" --queues 4 "$@" > "$work/log" 2>&1 &
  pids+=("$!")
  wait_for "$control"; wait_for "$socket"
  pid=$("$bin/coalesce-target" call --control "$control" list | jq '.[0].pid')
  servers+=("$name=$socket,$pid")
}
image() { head -c 64M /dev/urandom > "$1"; }

for kind in "${kinds[@]}"; do
  servers=() versions=$(qemu-storage-daemon --version | head -n 1)
  case $kind in
    memory)
      image "$shm/a"; cp "$shm/a" "$shm/b"
      qemu "QEMU, /dev/shm" "driver=file,filename=$shm/a,aio=io_uring"
      ours "ours, none" none --memory 64M
      ours "ours, auto" auto --memory 64M
      ours "ours, auto, /dev/shm" auto --file "$shm/b"
      qemu "QEMU, null-co" "driver=null-co,size=67108864"
      ;;
    file | direct)
      image "$images/compare.img"
      cache=off how=()
      [ "$kind" = file ] || { cache=on how=(--direct); }
      qemu "QEMU, io_uring" "driver=file,filename=$images/compare.img,cache.direct=$cache,aio=io_uring,locking=off"
      qemu "QEMU, threads" "driver=file,filename=$images/compare.img,cache.direct=$cache,aio=threads,locking=off"
      ours "ours, none" none --file "$images/compare.img" --read-only "${how[@]}"
      ours "ours, auto" auto --file "$images/compare.img" --read-only "${how[@]}"
      ;;
    spdk | spdk80)
      [ -x "${SPDK_TGT:-}" ] || die "$kind needs SPDK_TGT=coalesce_spdk_tgt"
      "$SPDK_TGT" --no-huge -s 1536 --iova-mode va -u -m 0x1 --disable-cpumask-locks -S "$work" -r "$work/rpc" > "$work/log" 2>&1 &
      pids+=("$!")
      call() { "$bin/coalesce-target" call --control "$work/rpc" "$@" > "$work/rpc.log" 2>&1; } # SPDK's calls have the form of ours
      rpc() { call "$@" || { tail -n 3 "$work/rpc.log" >&2; die "SPDK refuses $1"; }; }
      for _ in $(seq 200); do if call spdk_get_version; then break; fi; sleep 0.1; done
      versions=$(jq -r '.version' "$work/rpc.log")
      disk() { # NAME: a controller of a disk of its own
        if [ "$kind" = spdk ]; then
          rpc bdev_malloc_create "{\"name\": \"$1\", \"num_blocks\": 131072, \"block_size\": 512}"
        else
          rpc bdev_null_create "{\"name\": \"$1.null\", \"num_blocks\": 131072, \"block_size\": 512}"
          rpc bdev_delay_create "{\"name\": \"$1\", \"base_bdev_name\": \"$1.null\", \"avg_read_latency\": 80, \"p99_read_latency\": 240,
            \"avg_write_latency\": 80, \"p99_write_latency\": 240}"
        fi
        rpc vhost_create_blk_controller "{\"ctrlr\": \"$1.c\", \"dev_name\": \"$1\"}"
      }
      disk plain
      disk own
      rpc vhost_controller_set_coalescing '{"ctrlr": "own.c", "delay_base_us": 50, "iops_threshold": 60000}'
      servers=("SPDK=$work/plain.c,$!" "SPDK, 50 µs=$work/own.c,$!")
      policies=(auto)
      [ "$kind" = spdk ] || policies=(nvme vic cint auto:budget={1,2,5,10,20,50}%)
      for policy in "${policies[@]}"; do
        disk "$policy"
        rpc coalesce_set_policy "{\"ctrlr\": \"$policy.c\", \"policy\": \"$policy\"}"
        servers+=("SPDK, our ${policy/:budget=/ }=$work/$policy.c,$!")
      done
      ;;
  esac
  printf '\n== %s\n' "$kind"
  "$bin/coalesce-compare" --client "$bin/coalesce-bench" "${options[@]//\{\}/$kind}" \
    --note "kind=$kind" --note "command=$command" --note "versions=$versions" "${servers[@]}"
  end
done
