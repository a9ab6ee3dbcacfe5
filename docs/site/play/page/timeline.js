// The time line: completions, holds and interrupts of two policies, in slow motion.

/** A view passes in so many seconds. */
const VIEW_SECONDS = 9;
/** Completions in view. */
const ZOOMS = [10, 20, 40, 80, 160, 320];
const LANE_HEIGHT = 92;
const MARGIN = { left: 10, top: 8, bottom: 30 };

/** Why an interrupt came: what its text ends with, unless it is for an urgent completion alone. */
const reasonOf = (text) => /: (.*)$/.exec(text)?.[1] ?? "urgent";

/** The first index of ascending `items` whose time is not before `at`. */
function firstFrom(items, at) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].at < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

class TimeLine {
  #canvas;
  #note;
  #lanes = [];
  #from = 0; // µs
  #span = 1; // µs that are known
  #view = 100; // µs that are seen
  #zoom = 2;
  #chosen; // a decision of the first lane
  #isPlaying = false;
  #last;
  #colours;
  #draws = atFrame(() => this.#draw());
  /** Called when another place is seen: its share of what is known, and where it begins, in µs. */
  moved = () => {};

  constructor(canvas, note) {
    this.#canvas = canvas;
    this.#note = note;
    new ResizeObserver(() => this.#draws()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#colours = undefined;
      this.#draws();
    });
    canvas.addEventListener("pointermove", (event) => this.#point(event));
  }

  /** Shows lanes: a policy's text form each, and what the simulator says of it. */
  show(lanes) {
    this.#lanes = lanes.map(({ policy, lane }) => ({
      policy,
      completions: lane.completions.map(([at, isMarked, text]) => ({ at, isMarked, text })),
      holds: lane.holds.map(([at, to]) => ({ at, to })),
      interrupts: lane.interrupts.map(([at, text]) => ({ at, text, reason: reasonOf(text) })),
    }));
    this.#span = Math.min(...lanes.map(({ lane }) => lane.span));
    this.#select(undefined);
    this.zoom = this.#zoom;
    const [{ policy, completions, interrupts }] = this.#lanes;
    const shown = `${completions.length} completions and ${interrupts.length} interrupts in ${inWords(this.#span * 1000)}`;
    this.#canvas.setAttribute("aria-label", `Time line of ${policy}: ${shown}. The buttons below step through its decisions.`);
  }

  /** An index of ZOOMS. */
  set zoom(index) {
    this.#zoom = index;
    const known = Math.max(1, this.#lanes[0]?.completions.length ?? 1);
    this.#view = Math.min(this.#span, (this.#span * ZOOMS[index]) / known);
    this.#move(this.#from);
  }

  /** The share of what is known at which the view begins. */
  set position(share) {
    this.#move(share * (this.#span - this.#view));
  }

  get isPlaying() {
    return this.#isPlaying;
  }

  play(isPlaying) {
    const begins = isPlaying && !this.#isPlaying;
    this.#isPlaying = isPlaying;
    this.#last = undefined;
    if (begins) requestAnimationFrame((now) => this.#step(now));
  }

  #step(now) {
    if (!this.#isPlaying) return;
    const passed = Math.min(100, now - (this.#last ?? now)); // a hidden page has no frames
    this.#last = now;
    const from = this.#from + (this.#view * passed) / 1000 / VIEW_SECONDS;
    this.#from = from >= this.#span - this.#view ? 0 : from;
    this.#tell();
    this.#draw();
    requestAnimationFrame((later) => this.#step(later));
  }

  #move(from) {
    this.#from = Math.max(0, Math.min(from, this.#span - this.#view));
    this.#tell();
    this.#draws();
  }

  #tell() {
    this.moved(this.#from / Math.max(1e-9, this.#span - this.#view), this.#from);
  }

  /** To the next decision of the first lane, or with -1 to the one before. Says what it was. */
  choose(step) {
    const [lane] = this.#lanes;
    if (!lane) return;
    const all = [...lane.completions, ...lane.interrupts].sort((a, b) => a.at - b.at);
    const at = all.indexOf(this.#chosen);
    const begin = firstFrom(all, this.#from);
    const index = at >= 0 ? at + step : step > 0 ? begin : begin - 1;
    const chosen = all[Math.max(0, Math.min(index, all.length - 1))];
    if (!chosen) return;
    if (chosen.at < this.#from || chosen.at > this.#from + this.#view) this.#move(chosen.at - this.#view / 2);
    this.#select(chosen);
  }

  #select(chosen) {
    this.#chosen = chosen;
    this.#note.textContent = chosen ? chosen.text : "";
    this.#draws();
  }

  #point({ offsetX, offsetY }) {
    const lane = this.#lanes[Math.floor((offsetY - MARGIN.top) / LANE_HEIGHT)];
    if (!lane) return;
    const at = this.#from + ((offsetX - MARGIN.left) / this.#width) * this.#view;
    const near = (10 / this.#width) * this.#view;
    const closest = [lane.interrupts, lane.completions].flatMap((items) => {
      const index = firstFrom(items, at);
      return items.slice(Math.max(0, index - 1), index + 1);
    });
    closest.sort((a, b) => Math.abs(a.at - at) - Math.abs(b.at - at));
    if (closest[0] && Math.abs(closest[0].at - at) < near) this.#select(closest[0]);
  }

  get #width() {
    return this.#canvas.clientWidth - 2 * MARGIN.left;
  }

  #styles() {
    if (!this.#colours) {
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(`--${name}`).trim();
      this.#colours = {
        fg: colour("fg"), muted: colour("muted"), grid: colour("grid"), card: colour("card"), chosen: colour("accent"),
        policies: STYLED.map((_, style) => colour(`p${style}`)),
      };
    }
    return this.#colours;
  }

  #draw() {
    const canvas = this.#canvas;
    const scale = devicePixelRatio || 1;
    const height = MARGIN.top + LANE_HEIGHT * Math.max(1, this.#lanes.length) + MARGIN.bottom;
    if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    const [pixels, rows] = [Math.round(canvas.clientWidth * scale), Math.round(height * scale)];
    if (canvas.width !== pixels || canvas.height !== rows) [canvas.width, canvas.height] = [pixels, rows];
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, canvas.clientWidth, height);
    if (this.#lanes.length === 0) return;
    pen.font = "12px system-ui, sans-serif";
    const x = (at) => MARGIN.left + ((at - this.#from) / this.#view) * this.#width;
    this.#drawAxis(pen, x, height);
    this.#lanes.forEach((lane, nth) => this.#drawLane(pen, x, lane, MARGIN.top + LANE_HEIGHT * nth));
  }

  #drawAxis(pen, x, height) {
    const { grid, muted } = this.#styles();
    const room = Math.max(2, this.#width / 90);
    const power = 10 ** Math.floor(Math.log10(this.#view / room));
    const step = [1, 2, 5, 10].map((mark) => mark * power).find((step) => this.#view / step <= room);
    pen.strokeStyle = grid;
    pen.fillStyle = muted;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    for (let at = Math.ceil(this.#from / step) * step; at <= this.#from + this.#view; at += step) {
      const place = Math.round(x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(place, MARGIN.top);
      pen.lineTo(place, height - MARGIN.bottom + 4);
      pen.stroke();
      pen.fillText(`${Number(at.toPrecision(9))} µs`, Math.max(26, Math.min(place, this.#width - 10)), height - 10);
    }
  }

  #drawLane(pen, x, lane, top) {
    const { fg, muted, card, policies, chosen } = this.#styles();
    const colour = policies[styleOf(lane.policy)];
    const [base, to] = [top + LANE_HEIGHT - 10, this.#from + this.#view];
    pen.textAlign = "left";
    pen.fillStyle = fg;
    pen.fillText(lane.policy, MARGIN.left, top + 14);
    pen.fillStyle = colour;
    for (let i = Math.max(0, firstFrom(lane.holds, this.#from) - 1); i < lane.holds.length && lane.holds[i].at <= to; i++) {
      const [from, until] = [x(Math.max(lane.holds[i].at, this.#from)), x(Math.min(lane.holds[i].to, to))];
      if (until <= from) continue;
      pen.globalAlpha = 0.24;
      pen.fillRect(from, base - 26, Math.max(0.5, until - from), 26);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = muted;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(MARGIN.left, base + 0.5);
    pen.lineTo(MARGIN.left + this.#width, base + 0.5);
    pen.stroke();
    this.#drawInterrupts(pen, x, lane, base, colour);
    pen.strokeStyle = fg;
    pen.fillStyle = fg;
    pen.lineWidth = 1.2;
    pen.beginPath();
    const heads = [];
    for (let i = firstFrom(lane.completions, this.#from); i < lane.completions.length && lane.completions[i].at <= to; i++) {
      const place = x(lane.completions[i].at);
      pen.moveTo(place, base);
      pen.lineTo(place, base - 20);
      if (lane.completions[i].isMarked) heads.push(place);
    }
    pen.stroke();
    for (const place of heads) {
      pen.beginPath();
      pen.arc(place, base - 20, 3, 0, 7);
      pen.fill();
    }
    if (this.#chosen && (lane.completions.includes(this.#chosen) || lane.interrupts.includes(this.#chosen))) {
      const place = x(this.#chosen.at);
      pen.fillStyle = chosen;
      pen.strokeStyle = card;
      pen.beginPath();
      pen.moveTo(place, base);
      pen.lineTo(place - 6, base + 9);
      pen.lineTo(place + 6, base + 9);
      pen.fill();
    }
  }

  #drawInterrupts(pen, x, lane, base, colour) {
    const to = this.#from + this.#view;
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = 2.6;
    pen.beginPath();
    let free = -Infinity; // where a word has room
    for (let i = firstFrom(lane.interrupts, this.#from); i < lane.interrupts.length && lane.interrupts[i].at <= to; i++) {
      const { at, reason } = lane.interrupts[i];
      const place = x(at);
      pen.moveTo(place, base);
      pen.lineTo(place, base - 40);
      if (place < free) continue;
      const width = pen.measureText(reason).width;
      const left = Math.max(MARGIN.left, Math.min(place - width / 2, MARGIN.left + this.#width - width));
      if (left < free) continue;
      pen.fillText(reason, left, base - 45);
      free = left + width + 8;
    }
    pen.stroke();
  }
}
