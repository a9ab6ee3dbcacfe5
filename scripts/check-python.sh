#!/usr/bin/env bash
# The Python examples: the notebook on a trace and a plan, and the property test, which must pass for policies of ours and find a
# device that forgets its deadlines. And an independent reader of each format.
#
#   check-python.sh            python3 must have pandas, matplotlib and hypothesis
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
root=$PWD
die() { printf 'check-python: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
examples=$root/examples/python

# Debian's packages are for Debian's Python, which may not be the first.
for python in python3 /usr/bin/python3; do
  if "$python" -c 'import pandas, matplotlib, hypothesis' 2> "$work/why"; then break; fi
done
[ ! -s "$work/why" ] || die "$(tail -n 1 "$work/why")"

scripts/built.sh coalesce-sim
cargo build --quiet --locked --profile test --package libcoalesce
export PATH=$target/debug:$PATH MPLCONFIGDIR=$work COALESCE_LIBRARY=$target/debug/libcoalesce.so
cd "$work"

trace=$root/crates/coalesce-sim/tests/traces/nvme.jsonl
sed -e 's/500ms/5ms/; s/250ms/5ms/' "$root/crates/coalesce-sim/plans/depth.toml" > plan.toml
"$python" "$examples/notebook.py" "$trace" replay.png plan.toml > table || die "the notebook fails"
grep -q '^Too short a trace to tell: auto' table || { cat table >&2; die "the notebook has no answer"; }
[ "$(grep -cE '^(none|nvme|vic|cint|auto)' table)" = 7 ] || { cat table >&2; die "not seven policies"; }
"$python" -c 'import matplotlib.image; h, w, _ = matplotlib.image.imread("replay.png").shape; assert h > 300 and w > 900' || die "no picture"
[ "$(wc -l < "$examples/notebook.py")" -le 60 ] || die "the notebook is longer than 60 lines"

# Each format, as its tools wrote it, beside a reader of a few lines. What fio's slat logs say is no trace.
traces=()
for file in "${trace%/*}"/*; do [[ $file == *slat* ]] || traces+=("$file"); done
"$python" "$root/scripts/read-traces.py" "${traces[@]}" > readings || { tail -n 3 readings >&2; die "two readers do not agree"; }

export EXAMPLES=100
for policy in auto cint vic nvme batch none cint:ooo=on,hints=all; do
  POLICY=$policy "$python" "$examples/test_policy.py" > output 2>&1 || { tail -n 30 output >&2; die "$policy breaks a rule"; }
done
if POLICY=cint:thr=0 "$python" "$examples/test_policy.py" > output 2>&1; then die "thr=0 is a policy"; fi
if [ "$(wc -l < output)" != 1 ] || ! grep -q 'thr=0' output; then tail -n 30 output >&2; die "a policy that cannot be is not one line"; fi
# A device that forgets its deadlines loses interrupts: the test finds it.
sed -e 's/lib\.coalesce_policy_deadline(self\.policy)) <= end/NEVER) <= end/' "$examples/test_policy.py" > broken.py
! cmp -s "$examples/test_policy.py" broken.py || die "nothing is broken"
if POLICY=cint:in_flight=off "$python" broken.py > output 2>&1; then die "the property test does not notice lost deadlines"; fi
grep -q 'lost: nothing is in flight' output || { tail -n 30 output >&2; die "the property test says something else"; }
echo "check-python: the notebook, ${#traces[@]} traces read twice, 7 policies under hypothesis"
