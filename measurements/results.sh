#!/usr/bin/env bash
# Writes the measured parts of docs/results.md, of docs/score.md, of summaries.md and tables.md here, and the table of README.md, and draws
# docs/frontier-*.svg and docs/minute.svg, from the JSON of demonstrations and of compare.sh: no number in them is typed. Needs jq and
# cargo.
#
#   results.sh [NAME=REPORT.json...]   takes new runs of make demo as measurements/runs/NAME.json, those of compare.sh as
#                                      measurements/compare/NAME.json, without where they were written, and without their single turns,
#                                      but for what a claim is about
#
# README.md has the newest run of coalesce-demo from a commit, without changes to it, that was not busy: whose client and disk waited for a
# CPU less than 20 % of the time that they could run. A run is chosen by that alone.
#
#   results.sh --check                 fails if a page is not what measurements/runs and measurements/compare have
#
# Nothing is taken unless every REPORT is one.
# Both fail if two runs say opposite things of a claim, which is about auto, in the same regime: see contradictions.jq.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
end='<!-- End of what is generated. -->'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() { # WHY
  printf 'results.sh: %s; allowed: NAME=REPORT.json..., or --check alone, or nothing; --help explains them\n' "$1" >&2
  exit 2
}
check=
if [ "$*" = --check ]; then
  check=1
else
  where_it_wrote='gsub(" --(out|json|plots) [^ ]+"; "")'
  rounded='walk(if type == "number" then . * 1e4 | round / 1e4 else . end)'
  mkdir -p "$work/taken/compare" "$work/taken/runs"
  for run; do
    [[ $run =~ ^[A-Za-z0-9][A-Za-z0-9._-]*=. ]] || wrong "$run is not NAME=REPORT.json with a NAME of letters, digits and ._-"
    name=${run%%=*} report=${run#*=}
    [ -f "$report" ] || wrong "$run: there is no file $report"
    kind=$(jq -r 'if has("servers") and has("rows") then "compare" elif has("policies") and has("command") then "runs" else empty end' \
      "$report" 2> "$work/why") || wrong "$run: $report is not JSON: $(cat "$work/why")"
    case $kind in
      compare) taken='del(.rows[].turns) | .notes.command |= '"$where_it_wrote | $rounded" ;;
      runs) taken='.command |= ('"$where_it_wrote"' | sub("^[^ ]*/"; "")) | del(.[]? | .jobs? | .[]?.turns) | '"$rounded" ;;
      *) wrong "$run: $report is neither of make demo nor of compare.sh" ;;
    esac
    jq -S "$taken" "$report" > "$work/taken/$kind/$name.json"
  done
  for report in "$work"/taken/*/*.json; do
    [ ! -e "$report" ] || mv "$report" "measurements/${report#"$work/taken/"}"
  done
fi
# shellcheck disable=SC2016 # jq's
defs='
  def machine: "\(.machine.cpu), \(.machine.cores) CPUs, \(.machine.kernel), load \(.machine.load) at the start";
  def intervals: if .statistics then "Intervals: \(.statistics.intervals), \(.statistics.claims) claims share an error of 5 %, each other number has its own." else "Intervals: sign test, all numbers share an error of 5 %." end;
  def name: input_filename | sub(".*/"; "") | rtrimstr(".json");
  def run_of: "`\(.command)`. \(machine)";
  def digits(n): . * pow(10; n) | round | tostring | if n == 0 then . else ("0" * (n + 1 - length) // "") + . | .[:-n] + "." + .[-n:] end;
  def short: if . >= 100 then digits(0) elif . >= 10 then digits(1) elif . >= 1 then digits(2) else digits(3) end;
  def ratio: if . == null then "∞" elif . >= 10 then digits(0) elif . >= 2 then digits(1) else digits(2) end;
  def interval: "\(.median | ratio) (\(.low | ratio) to \(.high | ratio))";
  def again: if .exact then "\(.control.median | ratio) exact" elif .control == null then "–" else .control | interval end;
  def number($place; $job; $name): .[$place].jobs[] | select(.jobname == $job) | .metrics[] | select(.name == $name);
  def told: if .ratio == null then .verdict elif .exact then "\(.ratio.median | ratio) exact" elif .verdict == "differs" then "**\(.ratio | interval)**" else .ratio | interval end;
'
mapfile -t runs < <(printf '%s\n' measurements/runs/*.json | sort --version-sort)
# From this share on the CPUs are contended, as in demo/src/regime.rs.
contended=0.2
is_busy() { jq --exit-status ".noise.waited >= $contended" "$1" > /dev/null; }
newest=$(jq --raw-output --slurp --argjson contended $contended '
  map(select(.statistics and (.command | test("^coalesce-demo( --seed [0-9]+)?$")) and (.machine.commit | test(" ") | not)
             and .noise.waited < $contended)) | max_by(.machine.date).machine.date' "${runs[@]}")
readme=$(jq --raw-output --arg date "$newest" 'select(.machine.date == $date) | input_filename' "${runs[@]}")
# What a policy is worth: 32 reads in flight, and one at a time. In a guest those interrupts count that it takes.
jq -r "$defs"'
  . as $run
  | def cells(f; g):
      [(("native", "guest", "nvme") as $place | (if $place == "native" then "interrupts/IO" else "taken/IO" end, "CPU µs/IO", "reads/s") as $name
          | $run | number($place; "depth32"; $name) | f),
       (("native", "nvme") as $place | $run | number($place; "depth1"; "reads/s") | g)] | join(" | ");
  "\(run_of), \(.machine.date), commit \(.machine.commit). 32 reads in flight, and in the last columns one at a time:", "",
  "| policy | native client: interrupts/IO | CPU µs/IO | reads/s | guest, virtio-blk: taken/IO | CPU µs/IO | reads/s | guest, NVMe: taken/IO | CPU µs/IO | reads/s | one, native: reads/s | one, guest, NVMe: reads/s |",
  "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
  "| \(.baseline) | \(cells(.baseline | short; .baseline | short)) |",
  "| \(.baseline), again | \(cells(again; again)) |",
  (.policies[] | select(.label != $run.baseline) | .label as $policy
    | "| \(.policy) | \(cells(.policies[$policy] | told; .policies[$policy] // null | if . then told else "" end)) |"),
  ""' measurements/runs/15-frontier.json > "$work/policies.md"
for run in "${runs[@]}"; do
  is_busy "$run" && continue
  jq -r "$defs"'
    "**\(name), \(.machine.date), commit \(.machine.commit // "unknown")**: \(run_of). \(intervals)", "", (.headline[] | "- \(.)"), ""' "$run"
done > "$work/results.md"
{
  printf 'Runs in which client and disk waited for a CPU a fifth of the time or more ([their tables](tables.md)):\n\n'
  jq -r --argjson contended $contended "$defs"'
    select(.noise.waited >= $contended) | [.native, .guest, .counted, .nvme | values | .jobs[]? | .metrics[] | .policies[] | .verdict] as $verdicts
    | "- \(name), \(.machine.date), `\(.command)`, load \(.machine.load): half of the time, two turns of the same thing differ by more than \(.noise.rate * 100 | short) % in speed. Of \($verdicts | length) comparisons \([$verdicts[] | select(. == "differs")] | length) tell a difference. \(.noise.controls_with_1) of \(.noise.controls) controls have 1 in their interval."' "${runs[@]}"
  echo
} >> "$work/results.md"
for run in "${runs[@]}"; do
  jq -r "$defs"'
    . as $run
    | "### \(name), \(.machine.date), commit \(.machine.commit // "unknown")", "",
      "\(run_of);",
      "images on \(.machine.file_system). \(.noise.controls_with_1) of \(.noise.controls) controls have 1 in their interval. \(intervals)", "",
      (.headline[] | "- \(.)"),
      (["native", "guest", "counted", "nvme", "bare"][] as $place | $run[$place] // empty | select(.jobs != []) | .about as $about
        | .jobs[] | .metrics |= map(select(.name | IN("system calls/IO", "context switches/IO", "client", "target") | not)) | . as $job
        | "", "**\({native: "Native client", guest: "Linux guest, virtio-blk", counted: "Linux guest, virtio-blk, its instructions counted", nvme: "Linux guest, NVMe", bare: "Bare-metal guest, NVMe"}[$place]), \(.jobname)**: \(.about);",
          "\(if .regime then "\(.regime.name); " else "" end)\(.blocks) blocks\(if $about == "" then "" else "; \($about)" end).", "",
          "| policy | \([.metrics[] | "\(.name)\(if .claim then " \\*" else "" end)"] | join(" | ")) |",
          "|---|\(.metrics | map("--:") | join("|"))|",
          "| \($run.baseline) | \([.metrics[].baseline | short] | join(" | ")) |",
          "| \($run.baseline), again | \([.metrics[] | again] | join(" | ")) |",
          ($run.policies[].label | select(. != $run.baseline) | select($job.metrics[0].policies[.]) | . as $policy
            | "| \($policy) | \([$job.metrics[].policies[$policy] | told] | join(" | ")) |")),
      ""' "$run"
done > "$work/results-tables.md"
jq --slurp --raw-output --from-file measurements/contradictions.jq "${runs[@]}" > "$work/opposite"
{
  if [ -s "$work/opposite" ]; then
    printf 'Between these runs, some verdicts are opposite. The check fails where they are claims of auto in one regime (the share of time without a CPU, whether the client sleeps). These are of different regimes, or no claims:\n\n'
    sed -n 's/^ACROSS /- /p' "$work/opposite"
  else
    printf 'No two runs have opposite verdicts.\n'
  fi
  echo
} >> "$work/results.md"
# The ten numbers that were decided beforehand, in each run that has them: so nobody need believe one run.
# shellcheck disable=SC2016 # jq's
claimed='
  def claims: [("native", "guest", "nvme") as $place | (if $place == "native" then "interrupts/IO" else "taken/IO" end, "CPU µs/IO", "reads/s")
      | [$place, "depth32", .]] + [["nvme", "depth1", "reads/s"]];
  def claim($of): [.[$of[0]].jobs[]? | select(.jobname == $of[1]) | .metrics[] | select(.name == $of[2])][0].policies.auto // null;
'
jq -r --slurp --arg readme "$newest" --argjson contended $contended "$defs$claimed"'
  map(select(.statistics)) | sort_by(.machine.date) | . as $runs
  | "| run | waited | native: interrupts | CPU | reads/s | virtio-blk: taken | CPU | reads/s | NVMe: taken | CPU | reads/s | one at a time |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    (.[] | . as $run | "| \(.machine.date)\(if .machine.date == $readme then ", README" else "" end) | \(.noise.waited * 100 | round) % | \(
      [claims[] as $of | $run | claim($of) | if . then told else "" end] | join(" | ")) |"), "",
    ([claims[] as $of
        | [$runs[] | . as $run | claim($of) | values | select(.ratio) | {date: $run.machine.date, ratio, verdict}] as $told
        | {of: "\({native: "natively", guest: "virtio-blk", nvme: "NVMe"}[$of[0]]), \($of[1]): \($of[2])",
           apart: [range($told | length) as $a | range($a + 1; $told | length) as $b
                    | select($told[$a].ratio.low > $told[$b].ratio.high or $told[$a].ratio.high < $told[$b].ratio.low)] | length,
           pairs: ($told | length | . * (. - 1) / 2),
           opposite: ([$told[] | select(.verdict == "differs") | .ratio.median > 1] | unique | length > 1)}] as $seen
      | "Opposite verdicts: \([$seen[] | select(.opposite) | .of] | if . == [] then "none" else join(", ") end). Intervals that do not overlap, of all pairs of runs: \(
          [$seen[] | select(.apart > 0) | "\(.of), \(.apart) of \(.pairs)"] | if . == [] then "none" else join("; ") end)."), ""' \
  "${runs[@]}" > "$work/claims.md"
# What a newcomer reads: the nine numbers of a minute.
jq -r "$defs"'
  . as $run
  | def row($load; $place; $job): $run | number($place; $job; "reads/s")
      | "| \($load) | \(.baseline | short) | \(.policies.nvme | told) | \(.policies.auto | told) |";
  "`\(.command)`, \(.machine.date), \(.machine.cores) CPUs of an \(.machine.cpu)\(.nvme.about | if $run.headline[0] | contains("guest Linux") then "" else ", \(.)" end):", "",
  "| reads per second | `none` | fixed timer | `auto` |", "|---|--:|--:|--:|",
  row("one at a time, in a Linux guest, NVMe"; "nvme"; "depth1"),
  row("32 in flight, on the host"; "native"; "depth32"),
  row("32 in flight, in a Linux guest, NVMe"; "nvme"; "depth32"), "",
  .headline[0],
  (.headline[] | capture("sends (?<sent>[0-9.]+) interrupts under none and (?<of_auto>[0-9.]+) under auto; the guest takes (?<taken>[0-9.]+) and (?<by_auto>[0-9.]+),")
    | "Interrupts sent and taken for each read: \(.sent) and \(.taken) under `none`, \(.of_auto) and \(.by_auto) under `auto`; pending ones merge."), ""' "$readme" > "$work/table"
jq -r --slurp "$defs$claimed"'
  map(select(.statistics)) | . as $runs
  | def of($name): [$runs[] | claim(["nvme", "depth32", $name]) | values];
    def range: "\([.[].ratio.median] | min | ratio) to \([.[].ratio.median] | max | ratio)";
    def told(is_so): [.[] | select(.verdict == "differs" and (.ratio.median | is_so))] | length;
  "In [\($runs | length) runs](docs/results.md#the-ten-numbers-in-each-run) since \(map(.machine.date[:10]) | min), on busy machines too, it takes \(
    of("taken/IO") | range) of the interrupts and reads \(of("reads/s") | range) times as much; \(of("reads/s") | told(. > 1)) tell that it reads more, \(
    of("reads/s") | told(. < 1) | if . == 0 then "none" else . end) less.", ""' "${runs[@]}" >> "$work/table"
# Others' servers: what a buyer reads, and all of it.
# shellcheck disable=SC2016 # jq's
compared='
  def about: {
    memory: "Memory: both copy 4 KiB for each request; null-co moves no data", file: "A file in the page cache",
    direct: "A file, O_DIRECT", spdk: "SPDK with a malloc bdev, on a CPU that it polls on",
    spdk80: "SPDK with a bdev that takes 80 µs, on a CPU that it polls on" }[.notes.kind];
  def head: "**\(about)\(if .rate then ", \(.rate) arrivals per second and queue" else "" end)**: \(.notes.versions), \(.machine.date), commit \(.machine.commit // "unknown"), `\(.notes.command)`;", "\(machine).";
  def place: "\(.depth), \(.queues)";
'
for run in measurements/compare/*.json; do
  jq -r "$defs$compared"'
    . as $run | (if .rate then ["p50 µs", "server CPU µs/IO"] else ["IOPS", "server CPU µs/IO"] end) as $shown
    # One row of many servers: a line for each of them.
    | if .rows | length == 1 then .rows[0] as $row | [$row.metrics[] | select(.name | IN("interrupts/IO", "client CPU µs/IO", $shown[]))] as $metrics
      | head, "", "| \($row | place) | \([$metrics[].name] | join(" | ")) |", "|---|\($metrics | map("--:") | join("|"))|",
        "| \(.servers[0]) | \([$metrics[].baseline | short] | join(" | ")) |",
        (.servers[1:][] as $server | "| \($server) | \([$metrics[].servers[$server] | told] | join(" | ")) |")
      else head, "",
        "| depth, queues | \([$shown[] | "\($run.servers[0]): \(.)"] | join(" | ")) | \([$run.servers[1:][] as $server | $shown[] | "\($server): \(split(" ") | .[:-1] + (.[-1:] | map(select(test("µs") | not))) | join(" "))"] | join(" | ")) |",
        "|---|\([$shown[], ($run.servers[1:][] | $shown[])] | map("--:") | join("|"))|",
        (.rows[] | select(.depth < 64) | .metrics as $metrics | def of($name): $metrics[] | select(.name == $name);
          "| \(place) | \([$shown[] | of(.).baseline | short] | join(" | ")) | \([$run.servers[1:][] as $server | $shown[] | of(.).servers[$server] | told] | join(" | ")) |")
      end, ""' "$run"
done > "$work/compare.md"
for run in measurements/compare/*.json; do
  jq -r "$defs$compared"'
    . as $run
    | head, "",
      "| depth, queues | server | \([.rows[0].metrics[].name] | join(" | ")) |", "|---|---|\([.rows[0].metrics[] | "--:"] | join("|"))|",
      (.rows[] | . as $row
        | "| \(place) | \($run.servers[0]) | \([.metrics[].baseline | short] | join(" | ")) |",
          "| | the same, again | \([.metrics[] | again] | join(" | ")) |",
          ($run.servers[1:][] as $server | "| | \($server) | \([$row.metrics[].servers[$server] | told] | join(" | ")) |")),
      ""' "$run"
done > "$work/compare-tables.md"
# What each server has over the first one of its run: the least and the most of all depths and queues. Of six budgets the default.
{
  printf '| both serve | over | | IOPS | p50 | server CPU | client CPU | interrupts |\n|---|---|---|--:|--:|--:|--:|--:|\n'
  for run in measurements/compare/*.json; do
    jq -r "$defs$compared"'
      . as $run
      | def extent($server; $name): [.rows[].metrics[] | select(.name == $name) | .servers[$server].ratio.median]
          | [min, max | ratio] | if .[0] == .[1] then .[0] else join(" to ") end;
        .servers[1:][] | select(test("ours, auto|our auto( 5%)?$|SPDK, 50 µs")) as $server
      | "| \($run | about | sub("(:|, on a CPU).*"; ""))\(if $run.rate then ", \($run.rate) arrivals a second and queue" else "" end) | \($run.servers[0]) | \($server) | \(
          ["IOPS", "p50 µs", "server CPU µs/IO", "client CPU µs/IO", "interrupts/IO" | . as $name | $run | extent($server; $name)] | join(" | ")) |"' "$run"
  done
  echo
} > "$work/beside.md"
# Budgets, and what they cost: a demonstration, and SPDK with a device of 80 µs.
# shellcheck disable=SC2016 # jq's
jq -r --slurpfile spdk measurements/compare/5-spdk80.json "$defs"'
  . as $run | $spdk[0] as $spdk | ["1%", "2%", "5%", "10%", "20%", "50%"] as $budgets
  | def of($budget; $place; $name): $run | number($place; "depth32"; $name).policies[if $budget == "5%" then "auto" else "auto \($budget)" end];
  def spdk($budget; $name): $spdk.rows[0].metrics[] | select(.name == $name) | .servers["SPDK, our auto \($budget)"];
  def percent: "\(1 - . | . * 100 | round) %";
  def medians($name): [$budgets[] | spdk(.; $name).ratio.median];
  # Budgets whose interval leaves out that of the one before.
  def steps($place; is_so): [range(1; $budgets | length) | [of($budgets[. - 1, .]; $place; "reads/s").ratio] as [$less, $more]
    | select([$less, $more] | is_so) | $budgets[.]] | join(", ");
  def told_steps($place): "\({native: "natively", guest: "in the guest with virtio-blk", nvme: "in the guest with NVMe"}[$place]) faster with \(
    steps($place; .[1].low > .[0].high) | if . == "" then "none" else . end)\(
    steps($place; .[1].high < .[0].low) | if . == "" then "" else " and slower with \(.)" end)";
  "`\($run.command)`. \($run | machine), \($run.machine.date), commit \($run.machine.commit). SPDK: `\($spdk.notes.command)`, \(
    $spdk.machine.date), commit \($spdk.machine.commit). Over `none`, and over SPDK without coalescing:", "",
  "| budget | native: interrupts | reads/s | guest, virtio-blk: taken | reads/s | guest, NVMe: taken | reads/s | SPDK: interrupts | p50 | client CPU |",
  "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
  ($budgets[] | . as $budget | "| \($budget) | \([
    (["native", "interrupts/IO"], ["native", "reads/s"], ["guest", "taken/IO"], ["guest", "reads/s"], ["nvme", "taken/IO"], ["nvme", "reads/s"]
      | . as [$place, $name] | of($budget; $place; $name) | told),
    ("interrupts/IO", "p50 µs", "client CPU µs/IO" | . as $name | spdk($budget; $name) | told)] | join(" | ")) |"), "",
  "Beside the next smaller budget, a read is \(told_steps("native")), \(told_steps("guest")), \(told_steps("nvme")); elsewhere the",
  "intervals overlap. SPDK sends \(medians("interrupts/IO") | "\(.[0] | percent) (1%) to \(.[-1] | percent) (50%)") fewer interrupts, for a p50 of \(
    medians("p50 µs") | "\(min | ratio) to \(max | ratio)") x; its client needs \(
    medians("client CPU µs/IO") | "\(max | percent) to \(min | percent)") less CPU time.", ""' \
  measurements/runs/15-frontier.json > "$work/frontier.md"
scripts/built.sh coalesce-figures
draw() { # JSON DIR
  "${CARGO_TARGET_DIR:-target}/debug/coalesce-figures" "$1" "$2"
}
draw measurements/runs/15-frontier.json "$work/figures"
draw measurements/compare/5-spdk80.json "$work/figures"
draw "$readme" "$work/first"
write() { # PAGE PART FROM: what is to be between the marks
  local begin="<!-- Generated by measurements/results.sh from $3: do not edit. -->"
  grep -qF "$begin" "$1" || { echo "results.sh: $1 has no line \"$begin\"" >&2; exit 1; }
  awk -v begin="$begin" -v end="$end" -v part="$2" '
    $0 == end { inside = 0 }
    !inside
    $0 == begin { inside = 1; print ""; while ((getline line < part) > 0) print line }' "$1" > "$work/page"
  if [ "$check" ]; then
    diff -u "$1" "$work/page" || { echo "results.sh: $1 is not what measurements/runs has: run measurements/results.sh" >&2; exit 1; }
  else
    cp "$work/page" "$1"
  fi
}
write docs/results.md "$work/policies.md" "measurements/runs, policies"
write docs/results.md "$work/claims.md" "measurements/runs, claims"
write docs/results.md "$work/beside.md" "measurements/compare"
write measurements/summaries.md "$work/results.md" measurements/runs
write measurements/summaries.md "$work/compare.md" measurements/compare
write measurements/tables.md "$work/results-tables.md" measurements/runs
write measurements/tables.md "$work/compare-tables.md" measurements/compare
write README.md "$work/table" measurements/runs
write docs/score.md "$work/frontier.md" "measurements/runs and measurements/compare, frontier"
for figure in minute=first/first frontier-native=figures/native-depth32-interrupts frontier-guest=figures/guest-depth32-interrupts \
  frontier-nvme=figures/nvme-depth32-interrupts frontier-spdk=figures/depth32-queues1-interrupts; do
  page=docs/${figure%%=*}.svg drawn=$work/${figure#*=}.svg
  if [ -z "$check" ]; then
    cp "$drawn" "$page"
  elif ! cmp "$page" "$drawn"; then
    echo "results.sh: $page is not what measurements has: run measurements/results.sh" >&2
    exit 1
  fi
done
loads=$(awk '/rules broken$/ { inside = 1; next } !NF { inside = 0 } inside { loads += $(NF - 6) } END { print loads }' measurements/contract.txt)
grep -qF "contract under $loads loads" measurements/README.md || { echo "results.sh: contract.txt has $loads loads, README.md others" >&2; exit 1; }
if grep '^SAME ' "$work/opposite" >&2; then echo "results.sh: runs of the same regime contradict each other" >&2; exit 1; fi
