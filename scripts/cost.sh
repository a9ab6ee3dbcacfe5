#!/usr/bin/env bash
# Instructions of a decision on x86-64, from the function's first to its return, counted by callgrind over 3200 calls: of
# libcoalesce, of the cores inlined into a Rust function, and of the baselines. Beside them the paper's Algorithm 2 as one
# would write it in C, -O2 (benches/algorithm2.c).
#
# Then instructions and system calls of a request on the thread of its queue: 4 KiB from a memory disk, in batches; the
# difference between 3520 requests and 320. The queue does not poll, and the kernel's instructions are not counted.
#
#   cost.sh
#
# Exit status 1 if a budget is exceeded: the last measured number plus a margin (measurements/diary.md).
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
cargo build --quiet --locked --release --package coalesce-benches
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A function, a case (a policy is its own), and what is allowed.
while read -r function case allowed; do
  held=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$function" \
    "${CARGO_TARGET_DIR:-target}/release/cost" "$function" "$case" 2> "$work/log") || { cat "$work/log" >&2; exit 1; }
  echo "$function $case $(sed -n 's/.*Collected : //p' "$work/log") $held $allowed"
done > "$work/counts" << END
algorithm2_on_completion low
algorithm2_on_completion ratio
coalesce_vic_on_completion low 25
coalesce_vic_on_completion ratio 25
vic_inlined low 16
vic_inlined ratio 19
coalesce_cint_on_completion plain 39
coalesce_cint_on_completion urgent 122
coalesce_cint_on_completion barrier 127
cint_inlined plain 36
cint_inlined urgent 105
cint_inlined barrier 109
coalesce_budget_on_completion low 129
coalesce_budget_on_completion plain 144
coalesce_budget_on_completion urgent 239
coalesce_budget_on_submits plain 28
coalesce_budget_deadline plain 28
coalesce_auto_on_completion low 177
coalesce_auto_on_completion plain 199
coalesce_auto_on_completion urgent 270
budget_inlined low 120
budget_inlined plain 138
budget_inlined urgent 218
budget_deadline plain 21
any_policy none
any_policy nvme
any_policy dim
any_policy auto
any_policy_together auto 195
END

awk '
  BEGIN { print "| function | case | instructions | to C | allowed | held |\n| -- | -- | --: | --: | --: | --: |" }
  { cost = $3 / 3200 }
  $1 ~ /^algorithm2/ { c[$2] = cost }
  {
    ratio = $1 ~ /^coalesce_vic|^vic/ ? sprintf("%.2f", cost / c[$2]) : ""
    printf "| `%s` | %s | %.1f | %s | %s | %d %% |\n", $1, $2, cost, ratio, $5, $4 / 32
  }
  !cost || $5 && cost > $5 { over = over " " $1 "/" $2 }
  END { if (over) { print "cost: too much, or nothing counted:" over > "/dev/stderr"; exit 1 } }' "$work/counts"

# A device, a policy, the requests of a batch, and what is allowed: instructions, calls of io_uring_enter and of write.
while read -r device policy batch allowed enters interrupts; do
  for requests in 320 3520; do
    mkdir "$work/$requests"
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='coalesce_target::queue::group::Group<S>::run' \
      "${CARGO_TARGET_DIR:-target}/release/request" "$work/$requests" "$device" "$policy" "$batch" "$requests" \
      > "$work/counted" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
    rm -r "${work:?}/$requests"
    echo "$(sed -n 's/.*Collected : //p' "$work/log") $(cat "$work/counted")"
  done | paste -s -d ' ' | sed "s/^/$device $policy $batch $allowed $enters $interrupts /"
done > "$work/requests" << END
virtio-blk none 1 5680 1.01 1
virtio-blk none 32 3150 .04 .05
virtio-blk auto 1 5915 1.01 1
virtio-blk auto 32 3465 .05 .05
nvme none 1 5585 1.01 1
nvme none 32 3110 .04 1
nvme auto 1 5825 1.01 1
nvme auto 32 3280 .05 1
END

awk '
  BEGIN {
    print "\n| device | policy | batch | instructions | allowed | io_uring_enter | allowed | interrupts | allowed |"
    print "| -- | -- | --: | --: | --: | --: | --: | --: | --: |"
  }
  {
    cost = ($12 - $7) / 3200; enters = ($14 - $9) / 3200; interrupts = ($16 - $11) / 3200
    printf "| %s | %s | %s | %.0f | %s | %.3f | %s | %.3f | %s |\n", $1, $2, $3, cost, $4, enters, $5, interrupts, $6
  }
  !cost || cost > $4 || enters > $5 || interrupts > $6 { over = over " " $1 "/" $2 "/" $3 }
  END { if (NR < 8 || over) { print "cost: too much, or nothing counted:" over > "/dev/stderr"; exit 1 } }' "$work/requests"
