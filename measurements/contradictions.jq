# From runs of make demo (jq --slurp --raw-output): the verdicts on the same number of the same policy under the same job (by name and text) of which one says
# more and another one less than the baseline. A line for each two runs, which begins with SAME if they were in one regime and neither may be
# wrong: in older runs all numbers share one error, in later ones the claims do, which are numbers of auto. Every other number of those has an
# error of its own, and only the columns of claims are compared.
def percent: (. - 1) * 100 | round | if . > 0 then "+\(.)" else "\(.)" end;
[ .[] as $run
  | ("native", "guest", "counted", "nvme", "bare") as $place | $run[$place].jobs[]? as $job | $job.metrics[] as $metric | $run.policies[] as $policy
  | $metric.policies[$policy.label] // empty | select(.verdict == "differs" and ($run.statistics == null or $metric.claim))
  | {key: [$place, $job.jobname, $metric.name, $policy.policy, $run.baseline, $job.about], regime: ($job.regime.name // "regime unknown"),
     claimed: ($run.statistics == null or $policy.label == "auto"), date: $run.machine.date, ratio: .ratio.median, more: (.ratio.median > 1)} ]
| group_by(.key)[]
| . as $told | range(length) as $a | range($a + 1; length) as $b | select($told[$a].more != $told[$b].more)
| (if $told[$a].regime == $told[$b].regime and $told[$a].regime != "regime unknown" and $told[$a].claimed and $told[$b].claimed then "SAME" else "ACROSS" end) as $kind
| "\($kind) \($told[$a].key[:3] | join(", ")) of \($told[$a].key[3]): \($told[$a] | "\(.ratio | percent) % (\(.regime), \(.date))"), \($told[$b] | "\(.ratio | percent) % (\(.regime), \(.date))")"
