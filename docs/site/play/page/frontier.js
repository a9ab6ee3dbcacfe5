// Interrupts against latency, a point for each policy, and which of them nothing beats.

const LATENCIES = [
  ["request_time", "mean time of a request", (outcome) => outcome.request_time],
  ["p50", "median", (outcome) => outcome.latency.p50],
  ["p99", "99th percentile", (outcome) => outcome.latency.p99],
  ["p999", "99.9th percentile", (outcome) => outcome.latency.p999],
];

const interruptsPerIo = (outcome) => (outcome.iops > 0 ? outcome.interrupts_per_s / outcome.iops : 0);

/** The outline of a style's marker, as in the project's other pictures. */
function marker(style, x, y, r) {
  const polygon = (points) => `M${points.map(([dx, dy]) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`).join("L")}Z`;
  switch (style % 6) {
    case 0: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1: return polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case 2: return polygon([[0, -1.15], [1.1, 0.85], [-1.1, 0.85]]);
    case 3: return polygon([[0, 1.15], [1.1, -0.85], [-1.1, -0.85]]);
    case 4: return polygon([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    default: return polygon([[-1.2, -0.6], [0, -1.2], [1.2, -0.6], [1.2, 0.6], [0, 1.2], [-1.2, 0.6]]);
  }
}

/** Those that no other beats: no less latency with no more interrupts. From the fastest on. */
function best(points) {
  const sorted = [...points].sort((a, b) => a.latency - b.latency || a.interrupts - b.interrupts);
  let fewest = Infinity;
  return sorted.filter(({ interrupts }) => interrupts < fewest && ((fewest = interrupts), true));
}

/** Ascending places moved apart until neighbours are a line apart, as far as there is room. */
function apart(places, top, bottom) {
  const LINE = 14;
  let least = top;
  const down = places.map((place) => { const at = Math.max(place, least); least = at + LINE; return at; });
  let most = bottom;
  return down.reverse().map((place) => { const at = Math.min(place, most); most = at - LINE; return at; }).reverse();
}

/** Round values of a logarithmic axis. */
function logTicks(low, high) {
  const ticks = (marks) => {
    const all = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) all.push(...marks.map((mark) => mark * power));
    return all.filter((tick) => tick >= low && tick <= high);
  };
  return [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9]].map(ticks).find((ticks) => ticks.length >= 3)
    ?? ticks(Array.from({ length: 90 }, (_, i) => 1 + i / 10)).filter((_, i, all) => i % Math.ceil(all.length / 5) === 0);
}

class Frontier {
  #into;
  #table;
  #points = [];
  #latency = LATENCIES[0];
  #isWhole = false;
  #draws = atFrame(() => this.#draw());
  /** Called with the text form of a policy that is chosen. */
  chosen = () => {};

  constructor(into, table, select) {
    this.#into = into;
    this.#table = table;
    select.append(...LATENCIES.map(([id, label]) => element("option", { value: id }, label)));
    select.addEventListener("change", () => {
      this.#latency = LATENCIES.find(([id]) => id === select.value);
      this.#draws();
    });
    new ResizeObserver(() => this.#draws()).observe(into);
  }

  /** Shows outcomes; the first is the one that was asked for. `isWhole`: no other will follow. */
  show(entries, isWhole) {
    this.#points = entries;
    this.#isWhole = isWhole;
    this.#draws();
  }

  #draw() {
    const [, label, latencyOf] = this.#latency;
    const points = this.#points.map(({ policy, outcome, isStale }, nth) => ({
      policy, isStale, isMine: nth === 0, style: styleOf(policy), name: splitPolicy(policy).name,
      latency: latencyOf(outcome) / 1000, interrupts: interruptsPerIo(outcome),
    })).filter(({ latency }) => latency > 0);
    if (points.length === 0 || this.#into.clientWidth === 0) return;
    const frontier = best(points);
    this.#into.replaceChildren(this.#picture(points, frontier, label));
    if (this.#isWhole) this.#list(points, frontier, label);
  }

  #picture(points, frontier, label) {
    const [width, height] = [Math.max(300, this.#into.clientWidth - 14), 360];
    const [left, right, top, bottom] = [46, width - 88, 14, height - 44];
    const latencies = points.map(({ latency }) => latency);
    const [low, high] = [Math.min(...latencies) / 1.04, Math.max(...latencies) * 1.04];
    const most = Math.max(...points.map(({ interrupts }) => interrupts)) * 1.05 || 1;
    const x = (latency) => left + (Math.log(latency / low) / Math.log(high / low)) * (right - left);
    const y = (interrupts) => bottom - (interrupts / most) * (bottom - top);
    const path = (points) => points.map((point, nth) => `${nth ? "L" : "M"}${x(point.latency).toFixed(1)} ${y(point.interrupts).toFixed(1)}`).join("");
    const text = (x, y, anchor, ...content) => drawing("text", { x, y, class: `tick ${anchor}` }, ...content);
    const summary = `${points.length} policies; on the frontier, from the fastest on: ${frontier.map(({ policy }) => policy).join(", ")}`;
    const svg = drawing("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Interrupts for each I/O against the ${label}. ${summary}.` });

    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2].find((step) => most / step <= 6) ?? most / 4;
    for (let tick = 0; tick <= most; tick += step) {
      svg.append(drawing("path", { class: "grid", d: `M${left} ${y(tick)}H${right}` }), text(left - 6, y(tick) + 4, "end", Number(tick.toFixed(2)).toString()));
    }
    for (const tick of logTicks(low, high)) {
      svg.append(drawing("path", { class: "grid", d: `M${x(tick)} ${top}V${bottom}` }), text(x(tick), bottom + 16, "middle", inWords(tick * 1000).replace(" ", "\u00a0")));
    }
    svg.append(
      text((left + right) / 2, height - 8, "middle", `${label}, logarithmic`),
      drawing("text", { class: "tick middle", x: 12, y: (top + bottom) / 2, transform: `rotate(-90 12 ${(top + bottom) / 2})` }, "interrupts for each I/O"),
      // Steps: between two points of it nothing is known to be better than the slower one's interrupts.
      drawing("path", { class: "best", d: frontier.map((point, nth) => (nth ? `H${x(point.latency).toFixed(1)}V${y(point.interrupts).toFixed(1)}` : path([point]))).join("") }),
    );

    const families = byName(points);
    const ends = [];
    for (const [name, members] of families) {
      const rivals = members.filter(({ isMine }) => !isMine);
      if (rivals.length > 1) svg.append(drawing("path", { class: `curve c${members[0].style}`, d: path(rivals) }));
      const end = members.reduce((end, point) => (point.latency >= end.latency ? point : end));
      ends.push({ name, style: end.style, x: x(end.latency), y: y(end.interrupts) });
    }
    ends.sort((a, b) => a.y - b.y);
    apart(ends.map((end) => end.y), top + 4, bottom).forEach((place, nth) => {
      const { name, style, x, y } = ends[nth];
      svg.append(drawing("g", { class: `c${style}` },
        drawing("path", { class: "leader", d: `M${x + 5} ${y}L${right + 6} ${place}` }),
        drawing("text", { x: right + 9, y: place + 4 }, name)));
    });
    for (const point of points) {
      const [at, level] = [x(point.latency), y(point.interrupts)];
      const mark = drawing("g", { class: `mark c${point.style}${point.isStale ? " stale" : ""}` },
        drawing("title", {}, `${point.policy}: ${short(point.interrupts)} interrupts for each I/O, ${inWords(point.latency * 1000)}`),
        drawing("circle", { class: "hit", cx: at, cy: level, r: 12 }),
        drawing("path", { class: "fill", d: marker(point.style, at, level, 5) }));
      if (point.isMine) mark.append(drawing("circle", { class: "ring", cx: at, cy: level, r: 10 }));
      mark.addEventListener("click", () => this.chosen(point.policy));
      svg.append(mark);
    }
    return svg;
  }

  #list(points, frontier, label) {
    if (this.#table.contains(document.activeElement)) return; // somebody is in it
    const lines = [...points].sort((a, b) => a.latency - b.latency).map((point) => {
      const button = element("button", { type: "button", class: "row" }, point.policy);
      button.addEventListener("click", () => this.chosen(point.policy));
      return [button, short(point.interrupts), inWords(point.latency * 1000), frontier.includes(point) ? "yes" : ""];
    });
    fillTable(this.#table, ["Policy", "Interrupts/I/O", label, "On the frontier"], lines);
  }
}

/** Points of one policy, by its name. */
function byName(points) {
  const groups = new Map();
  for (const point of points) groups.set(point.name, [...(groups.get(point.name) ?? []), point]);
  return groups;
}
