#!/usr/bin/env bash
# Replays of arrivals with pauses, as a table: what a latency budget saves where nobody can get faster, and what it adds.
#
#   replay-pauses.sh [SEED]     1 by default: the table of docs/budget.md; a minute
#
# Four traces of 200 000 requests each: Poisson arrivals, after 5 ms on average a pause of 1 to 10 ms, and log-normal service with a
# deviation of half its mean. cint is calibrated for each of them. The same seed gives the same table.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit; }
cd "$(dirname "$0")/.."
seed=${1:-1}
cargo build --quiet --locked --release --package coalesce-sim
simulator=${CARGO_TARGET_DIR:-target}/release/coalesce-sim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A trace of our own lines: us between two arrivals, and of service, on average.
arrivals() { # GAP SERVICE
  python3 - "$1" "$2" "$seed" << 'EOF'
import heapq, math, random, sys

gap, service, seed = (int(text) for text in sys.argv[1:])
dice = random.Random(seed)
sigma = math.sqrt(math.log(1.25))  # the deviation is half of the mean
mu = math.log(service) - sigma**2 / 2
now, until_pause = 1.0, dice.expovariate(1 / 5000)
pending = []  # (completion, number)


def say(time, event, number):
    print('{"time_ns":%d,"event":"%s","id":%d}' % (time * 1000, event, number))


for number in range(200_000):
    step = dice.expovariate(1 / gap)
    now, until_pause = now + step, until_pause - step
    if until_pause < 0:
        now, until_pause = now + dice.uniform(1000, 10_000), dice.expovariate(1 / 5000)
    while pending and pending[0][0] <= now:
        say(pending[0][0], "complete", heapq.heappop(pending)[1])
    say(now, "submit", number)
    heapq.heappush(pending, (now + dice.lognormvariate(mu, sigma), number))
while pending:
    say(pending[0][0], "complete", heapq.heappop(pending)[1])
EOF
}

cat << 'EOF'
| arrivals, service | `cint`, calibrated | 1 % | 2 % | 5 % | 10 % | 5 %, no trials (`budget`) |
|---|---|---|---|---|---|---|
EOF
for load in "20 40" "8 15" "50 120" "4 80"; do
  read -r gap service <<< "$load"
  arrivals "$gap" "$service" > "$work/trace"
  "$simulator" replay --json "$work/trace" > "$work/default"
  "$simulator" replay --json --policy auto:budget=1% --policy budget "$work/trace" > "$work/others"
  jq --raw-output --slurp --arg load "every $gap µs, $service µs" '
    def rounded: . + 0.5 | floor;
    def interrupts: .interrupts_per_io * 100 | rounded | if . > 99 then "1.00" else ".\(. + 100)" | sub("1"; "") end;
    def cell: "\(interrupts); \(.held_share * 1000 | rounded / 10) %";
    (map(.policies[]) | INDEX(.policy)) as $by
    | ($by | map(select(.policy | startswith("cint"))) | .[0]) as $cint
    | [$cint, $by["auto:budget=1%", "auto:budget=2%", "auto", "auto:budget=10%", "budget"] | cell]
    | "| \($load) | " + join(" | ") + " |"' \
    "$work/default" "$work/others"
done
