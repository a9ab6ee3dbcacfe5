// What can be set: one table for the form, the address and the plan.

/** `marks` times each power of ten, from `low` to `high`. */
function decades(low, high, marks) {
  const values = [];
  for (let power = 1; power <= high; power *= 10) {
    for (const mark of marks) {
      const value = Math.round(mark * power);
      if (value >= low && value <= high) values.push(value);
    }
  }
  return values;
}

const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];

/** A time in ns, as plans and policies write it. */
function time(ns) {
  const [unit, size] = UNITS.find(([, size]) => ns >= size && ns % size === 0) ?? ["ns", 1];
  return `${ns / size}${unit}`;
}

/** A time in ns, for people: three digits. */
function inWords(ns) {
  const [unit, size] = UNITS.find(([, size]) => ns >= size) ?? ["ns", 1];
  return `${short(ns / size)} ${unit.replace("us", "µs")}`;
}

/** Three digits. */
function short(value) {
  if (!Number.isFinite(value)) return "–";
  const magnitude = Math.abs(value);
  if (magnitude >= 100) return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  if (magnitude < 0.0005) return "0";
  return Number(value.toPrecision(3)).toString();
}

const count = (value) => String(value);
const percent = (value) => `${value} %`;
const rate = (value) => `${short(value)}/s`;
const cycles = (value) => `${short(value)} cycles`;
const times = (value) => `${value} ×`;

const DOUBLINGS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SHORT_TIMES = [0, ...decades(100, 100e3, [1, 2, 5])];
const PERCENTS = [0, 1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100];
const RATES = decades(1000, 1e6, [1, 1.5, 2, 3, 5, 7]);

const choice = (id, label, options, initial, when) => ({ id, kind: "choice", label, options, initial, when });
const slider = (id, label, values, print, initial, when, about) => ({ id, kind: "slider", label, values, print, initial, when, about });
const check = (id, label, about) => ({ id, kind: "check", label, initial: false, about });

const isLoad = (...loads) => (settings) => loads.includes(settings.load);
const isCustom = (settings) => settings.device === "custom";

const GROUPS = [
  {
    legend: "Device",
    fields: [
      choice("device", "Model", [
        ["optane_p4800x", "Optane P4800X: a read in 10 µs"],
        ["p3700", "Flash, Intel P3700: a read in 80 µs"],
        ["san_lun", "Disk array: a read in 250 µs"],
        ["custom", "Another one"],
      ], "optane_p4800x"),
      slider("channels", "Commands served at once", DOUBLINGS, count, 8, isCustom),
      slider("service", "A command takes", decades(1e3, 1e7, [1, 2, 3, 5, 7]), inWords, 20e3, isCustom),
      slider("deviation", "Standard deviation", [0, 10, 20, 30, 50, 70, 100, 150, 200], percent, 30, isCustom, "of that time"),
    ],
  },
  {
    legend: "Load",
    fields: [
      choice("load", "Kind", [
        ["closed", "Closed: so many outstanding"],
        ["open", "Open: they arrive by themselves"],
        ["onoff", "On and off: open, with pauses"],
        ["mix", "Mix: a key-value store, YCSB-like"],
        ["reader", "A reader beside a flood"],
        ["trace", "A trace of yours"],
      ], "closed"),
      slider("depth", "Outstanding", DOUBLINGS, count, 32, isLoad("closed", "reader"), "at most"),
      slider("batch", "Submitted together", DOUBLINGS, count, 1, isLoad("closed", "reader")),
      slider("think", "Work after each", SHORT_TIMES, inWords, 0, isLoad("closed")),
      slider("rate", "Arrivals", RATES, rate, 100e3, isLoad("open", "onoff")),
      slider("on", "On for", decades(10e3, 50e6, [1, 2, 5]), inWords, 500e3, isLoad("onoff")),
      slider("off", "Off for", decades(10e3, 50e6, [1, 2, 5]), inWords, 1e6, isLoad("onoff")),
      slider("clients", "Clients", DOUBLINGS.slice(0, 6), count, 4, isLoad("mix")),
      slider("updates", "Updates", PERCENTS, percent, 30, isLoad("mix"), "2 writes and a flush; the rest are reads"),
      slider("scans", "Scans", PERCENTS, percent, 5, isLoad("mix"), "16 reads at once"),
      slider("background", "Compaction", [0, ...RATES.filter((rate) => rate <= 200e3)], rate, 50e3, isLoad("mix"), "64 outstanding, nobody waits"),
      slider("speed", "Speed", [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100], times, 1, isLoad("trace")),
    ],
  },
  {
    legend: "Policy",
    fields: [{ id: "policy", kind: "policy", initial: "auto" }],
  },
  {
    legend: "Machine and run",
    fields: [
      slider("interrupt", "An interrupt costs", [0, ...decades(200, 50e3, [1, 1.5, 2, 3, 5, 7])], cycles, 1500, undefined, "of a CPU with 2 GHz"),
      slider("idle", "An idle CPU wakes in", SHORT_TIMES, inWords, 0),
      check("event_idx", "EVENT_IDX", "a virtio driver suppresses interrupts by itself"),
      slider("measured", "Simulated time", decades(5e6, 1e9, [1, 2, 5]), inWords, 50e6, undefined, "after as much again to settle; of a trace, its beginning"),
      slider("seed", "Seed", Array.from({ length: 100 }, (_, i) => i + 1), count, 1, undefined, "everything random follows from it"),
    ],
  },
];

const FIELDS = GROUPS.flatMap((group) => group.fields);

/** Text forms of policies that everybody's are compared with; of one name in order. */
const RIVALS = [
  "none",
  ...[1, 3, 7, 15, 31].map((thr) => `nvme:thr=${thr}`),
  "vic",
  "vic:cif_threshold=2",
  "cint",
  "cint:in_flight=off",
  "batch",
  "dim",
  "spdk_vhost",
  ...["0.5%", "1%", "2%", "5%", "10%", "20%", "50%"].map((budget) => `auto:budget=${budget}`),
].map((text) => (text === "auto:budget=5%" ? "auto" : text === "nvme:thr=7" ? "nvme" : text));

/** The parameters of policies that have sliders: values in the policy's text form. */
const PARAMETERS = {
  auto: {
    budget: ["0.1%", "0.2%", "0.5%", "1%", "2%", "3%", "5%", "7%", "10%", "15%", "20%", "30%", "50%"],
    max_hold: ["50us", "100us", "200us", "500us", "1ms", "2ms", "5ms", "10ms"],
    thr: DOUBLINGS.slice(1).map(count),
  },
  cint: {
    delta: ["0us", "1us", "2us", "4us", "6us", "10us", "15us", "20us", "30us", "50us", "100us"],
    thr: DOUBLINGS.slice(1).map(count),
    in_flight: ["off", ...DOUBLINGS.map(count)],
    max_hold: ["20us", "50us", "100us", "200us", "500us", "1ms", "2ms", "off"],
    ooo: ["off", "on"],
  },
  vic: {
    cif_threshold: ["1", "2", "3", "4", "6", "8", "12", "16", "32"],
    epoch: ["1ms", "2ms", "5ms", "10ms", "20ms", "50ms", "100ms", "200ms"],
    iops_threshold: ["0", "500", "1000", "2000", "5000", "10000", "20000", "50000"],
    max_hold: ["100us", "200us", "500us", "1ms", "2ms", "5ms", "off"],
  },
  nvme: {
    thr: ["0", "1", "2", "3", "5", "7", "11", "15", "23", "31", "63", "127", "255"],
    time: ["100us", "200us", "300us", "500us", "1ms", "2ms", "5ms"],
  },
  spdk_vhost: {
    delay_base_us: ["0", "10", "20", "50", "100", "200", "500"],
    iops_threshold: ["1000", "5000", "10000", "20000", "60000", "100000", "200000"],
  },
};
PARAMETERS.budget = PARAMETERS.auto;

/** A number for comparing values of a text form; `off` is beyond all. */
function magnitude(value) {
  if (value === "off") return Infinity;
  if (value === "on") return 1;
  const unit = UNITS.find(([unit]) => value.endsWith(unit));
  return parseFloat(value) * (unit ? unit[1] : 1);
}

/** A text form as its name and its keys. */
function splitPolicy(text) {
  const [name, rest] = text.split(/:(.*)/s);
  const keys = new Map((rest ? rest.split(",") : []).map((item) => item.split(/=(.*)/s).slice(0, 2)));
  return { name, keys };
}

function joinPolicy({ name, keys }) {
  const items = [...keys].map(([key, value]) => `${key}=${value}`);
  return items.length > 0 ? `${name}:${items.join(",")}` : name;
}

const POLICY_LENGTH_MAX = 300;

/** Settings of an address; what it does not say, or says wrongly, is as usual. */
function settingsOf(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const settings = {};
  for (const field of FIELDS) {
    const text = said.get(field.id);
    settings[field.id] = (text !== null ? valueOf(field, text) : undefined) ?? field.initial;
  }
  // A trace is not in an address.
  return settings;
}

function valueOf(field, text) {
  switch (field.kind) {
    case "choice": return field.options.find(([value]) => value === text)?.[0];
    case "slider": return field.values.find((value) => value === Number(text));
    case "check": return text === "1";
    default: return text.length <= POLICY_LENGTH_MAX ? text : undefined;
  }
}

/** The address of settings: what is not as usual. */
function hashOf(settings) {
  const said = new URLSearchParams();
  for (const field of FIELDS) {
    const value = settings[field.id];
    if (value !== field.initial && (!field.when || field.when(settings))) {
      said.set(field.id, field.kind === "check" ? "1" : value);
    }
  }
  return said.toString();
}

/** A string of TOML. */
const quoted = (text) => JSON.stringify(text).replace(/[\u007f-\u009f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** The plan of settings, as coalesce-sim reads it. */
function planOf(settings, policies, traceName) {
  const thread = (name, kind, ...lines) => ["", "[[threads]]", `name = ${quoted(name)}`, `kind = ${quoted(kind)}`, ...lines];
  const flood = () => {
    const { depth, batch } = settings;
    return [`depth = ${depth}`, ...(batch > 1 ? [`batch = ${Math.min(batch, depth)}`] : [])];
  };
  const operation = (weight, commands, hint, think, flush) => [
    "", "[[threads.operations]]", `weight = ${weight}`, `commands = ${commands}`, `hint = ${quoted(hint)}`, ...(flush ? ["flush = true"] : []), `think = ${quoted(think)}`,
  ];
  const loads = {
    closed: () => thread("closed", "async", ...flood(), ...(settings.think > 0 ? [`think = ${quoted(time(settings.think))}`] : [])),
    open: () => thread("open", "open", `rate = "${settings.rate}/s"`, "depth = 256"),
    onoff: () => thread("on and off", "open", `rate = "${settings.rate}/s"`, "depth = 256", `on = ${quoted(time(settings.on))}`, `off = ${quoted(time(settings.off))}`),
    mix: () => {
      const updates = settings.updates;
      const scans = Math.min(settings.scans, 100 - updates);
      return [
        ...thread("clients", "mix", `count = ${settings.clients}`),
        ...operation(100 - updates - scans, 1, "urgent", "3us"),
        ...operation(updates, 2, "barrier", "4us", true),
        ...operation(scans, 16, "barrier", "20us"),
        ...(settings.background > 0 ? thread("compaction", "async", "depth = 64", "batch = 16", `rate = "${settings.background}/s"`) : []),
      ];
    },
    reader: () => [...thread("reader", "sync", 'hint = "urgent"'), ...thread("flood", "async", ...flood())],
    trace: () => thread("trace", "trace", `trace = ${quoted(traceName)}`, `speed_up = "${settings.speed}x"`, "depth = 256"),
  };
  const machine = [
    ...(settings.interrupt !== 1500 ? [`interrupt = "${settings.interrupt}cycles"`] : []),
    ...(settings.idle > 0 ? [`idle_exit = ${quoted(time(settings.idle))}`] : []),
    ...(settings.event_idx ? ["event_idx = true"] : []),
  ];
  const deviation = Math.round((settings.service * settings.deviation) / 100);
  const device = isCustom(settings)
    ? [`channels = ${settings.channels}`, `service = { lognormal = { mean = ${quoted(time(settings.service))}, stddev = ${quoted(time(deviation))} } }`]
    : [`preset = ${quoted(settings.device)}`];
  return [
    'name = "play"',
    `duration = ${quoted(time(settings.measured))}`,
    ...(settings.load === "trace" ? [] : [`warmup = ${quoted(time(settings.measured))}`]),
    `seed = ${settings.seed}`,
    "policies = [",
    ...policies.map((policy) => `    ${quoted(policy)},`),
    "]",
    ...(machine.length > 0 ? ["", "[machine]", ...machine] : []),
    "",
    "[device]",
    ...device,
    ...loads[settings.load](),
    "",
  ].join("\n");
}
