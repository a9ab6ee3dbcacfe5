// The numbers of a policy beside those of an interrupt for each completion.

const us = (ns) => short(ns / 1000);

/** A name, what is shown, and how: what coalesce-sim calls it, where that is one number. */
const METRICS = [
  ["Interrupts per I/O", "interrupts_per_io", interruptsPerIo, short],
  ["Interrupts per second", "interrupts_per_s", (outcome) => outcome.interrupts_per_s, short],
  ["I/O per second", "iops", (outcome) => outcome.iops, short],
  ["Time of a request, mean, µs", "request_time", (outcome) => outcome.request_time, us],
  ["Latency, median, µs", "latency.p50", (outcome) => outcome.latency.p50, us],
  ["Latency, 99 %, µs", "latency.p99", (outcome) => outcome.latency.p99, us],
  ["Latency, 99.9 %, µs", "latency.p999", (outcome) => outcome.latency.p999, us],
  ["CPU cycles per I/O", "cycles_per_io", (outcome) => outcome.cycles_per_io, short],
  ["CPU busy", "cpu", (outcome) => outcome.cpu, (cpu) => `${Math.round(cpu * 100)} %`],
  ["Held, mean, µs", "delay.mean", (outcome) => outcome.delay.mean, us],
  ["Held, longest, µs", "delay.max", (outcome) => outcome.delay.max, us],
  ["Held at most, as promised, µs", "bound", (outcome) => outcome.bound, (bound) => (bound === null ? "no promise" : us(bound))],
];

/** The numbers of the first entry, beside those of the one it is compared with. */
function showNumbers(table, mine, other) {
  const entries = mine === other ? [mine] : [mine, other];
  const cell = ({ outcome, isStale }, [, name, of, print]) => ({
    text: print(of(outcome)), class: `n${isStale ? " stale" : ""}`, "data-metric": name, "data-value": String(of(outcome)), "data-policy": outcome.policy,
  });
  const ratio = (metric) => {
    const [a, b] = entries.map(({ outcome }) => metric[2](outcome));
    return a !== null && b > 0 && metric[1] !== "bound" ? `${short(a / b)} ×` : "";
  };
  const lines = METRICS.map((metric) => [metric[0], ...entries.map((entry) => cell(entry, metric)), ...(entries.length > 1 ? [ratio(metric)] : [])]);
  const rules = ({ outcome: { verdict } }) => (verdict.late + verdict.wrong === 0 ? "kept" : `${verdict.late} late, ${verdict.wrong} wrong`);
  lines.push(["Rules of a policy", ...entries.map((entry) => rules(entry)), ...(entries.length > 1 ? [""] : [])]);
  fillTable(table, ["", ...entries.map(({ policy }) => policy), ...(entries.length > 1 ? ["ratio"] : [])], lines);
}

/** Why a policy interrupted, and why it held. */
function showReasons(table, { outcome }, about) {
  const lines = [["interrupt", outcome.reasons, about.reasons], ["hold", outcome.holds, about.holds]].flatMap(([kind, counts, meanings]) =>
    Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([reason, count]) => [
      `${kind}: ${reason}`, { text: short(count), class: "n" }, { text: (meanings[reason] ?? "").replaceAll("`", ""), class: "" },
    ]));
  fillTable(table, ["Decision", "Times", { text: "Because", class: "" }], lines);
}

/** The result in a line. */
const brief = ({ policy, outcome }) => `${policy}: ${short(interruptsPerIo(outcome))} interrupts/I/O, ${inWords(outcome.request_time)}, ${short(outcome.iops)} I/O/s`;

/** The result in sentences. */
function sentence(mine, other, entries) {
  const of = ({ outcome, policy }) => ({ policy, latency: outcome.request_time, interrupts: interruptsPerIo(outcome) });
  const numbers = ({ outcome, policy }) => `${policy}: ${short(interruptsPerIo(outcome))} interrupts for each I/O, ${inWords(outcome.request_time)} a request, ${short(outcome.iops)} I/O per second`;
  const me = of(mine);
  const better = entries.map(of).filter((point) => point.latency <= me.latency && point.interrupts <= me.interrupts && (point.latency < me.latency || point.interrupts < me.interrupts));
  better.sort((a, b) => a.interrupts - b.interrupts);
  const place = better.length === 0 ? "It is on the frontier" : `Here ${better[0].policy} has fewer interrupts, or as many, and no more latency`;
  return [...new Set([mine, other])].map(numbers).concat(`${place}.`).join(". ");
}
