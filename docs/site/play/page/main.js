// The page: settings in, pictures and numbers out.

/** Events of a time line. */
const EVENTS = 3000;
/** The longest trace, in bytes. */
const TRACE_MAX = 64 << 20;

async function main() {
  const settings = settingsOf(location.hash);
  const packed = await fetch(`data:application/gzip;base64,${$("wasm").textContent.trim()}`);
  const bytes = new Response(packed.body.pipeThrough(new DecompressionStream("gzip")));
  const module = await WebAssembly.compile(await bytes.arrayBuffer());

  let form, trace, about;
  let id = 0; // of the newest plan
  let policies = []; // its text forms
  const entries = new Map(); // by text form; those of an older plan are stale
  const timeLine = new TimeLine($("line"), $("decision"));
  const frontier = new Frontier($("frontier"), $("points"), $("latency"));
  const isQuiet = matchMedia("(prefers-reduced-motion: reduce)");

  const setBusy = (isBusy) => $("play").setAttribute("aria-busy", String(isBusy));

  const names = () => [...new Set([settings.policy, "none", ...RIVALS])];

  const problem = (text) => {
    const isOfPolicy = text.includes("policies.0");
    form.problem = isOfPolicy ? text.replace(/^.*policies\.0: /, "") : "";
    $("problem").hidden = text === "" || isOfPolicy;
    $("problem").textContent = text;
  };

  const remember = later(300, () => history.replaceState(null, "", `#${hashOf(settings)}`));

  const request = atFrame(() => {
    id += 1;
    const plan = planOf(settings, names(), trace?.name ?? "");
    $("plan").textContent = plan;
    remember();
    if (settings.load === "trace" && !trace) {
      setBusy(false);
      return problem("Choose a trace, or drop one onto this page.");
    }
    setBusy(true);
    for (const entry of entries.values()) entry.isStale = true;
    simulator.run(id, plan, [EVENTS, EVENTS]);
  });

  const shown = () => [...new Set(policies)].map((policy) => entries.get(policy)).filter(Boolean);

  const show = () => {
    const [mine, none] = [entries.get(policies[0]), entries.get("none")];
    showNumbers($("numbers"), mine, none);
    showReasons($("reasons"), mine, about);
    $("brief").textContent = brief(mine);
    timeLine.show([...new Set([mine, none])]);
  };

  const hear = (answer) => {
    if (answer.about) {
      about = answer.about;
      if (!form) begin();
      return;
    }
    if (answer.id !== id) return;
    if (answer.problem !== undefined) {
      problem(answer.problem);
      setBusy(false);
      return;
    }
    if (answer.policies) {
      problem("");
      policies = answer.policies;
      for (const policy of entries.keys()) if (!policies.includes(policy)) entries.delete(policy);
      return;
    }
    if (answer.isDone) {
      setBusy(false);
      frontier.show(shown(), true);
      $("summary").textContent = sentence(entries.get(policies[0]), entries.get("none"), shown());
      return;
    }
    const policy = policies[answer.nth];
    const lane = answer.lane ?? entries.get(policy)?.lane;
    entries.set(policy, { policy, outcome: answer.outcome, lane, isStale: false });
    // Both that are compared are of one plan.
    if (answer.nth === 1 || (answer.nth === 0 && policy === "none")) show();
    frontier.show(shown(), false);
  };

  const simulator = new Simulator(module, $("worker").textContent, hear);

  const take = async (file) => {
    if (!file) return;
    if (file.size > TRACE_MAX) return problem(`${file.name} has ${file.size} bytes; allowed: at most ${TRACE_MAX}. Its first lines will do.`);
    trace = { name: file.name };
    simulator.trace = await file.arrayBuffer();
    $("file-name").textContent = `${file.name}, ${short(file.size / 1024)} KiB`;
    form.take({ load: "trace" });
    request();
  };

  const begin = () => {
    form = new Form($("settings"), about, settings, request);
    $("file").addEventListener("change", () => take($("file").files[0]));
    request();
  };

  // Whoever follows a link within the page, or edits the address. What it became, as `remember` may have changed it since.
  addEventListener("hashchange", ({ newURL }) => {
    form.take(settingsOf(new URL(newURL).hash));
    request();
  });
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    $("play").classList.add("drop");
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("play").classList.remove("drop"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    $("play").classList.remove("drop");
    take(event.dataTransfer.files[0]);
  });

  const play = (isPlaying) => {
    timeLine.play(isPlaying);
    $("run").textContent = isPlaying ? "Pause" : "Run";
  };
  frontier.chosen = (policy) => {
    form.take({ policy });
    request();
  };
  timeLine.moved = (share, from) => {
    $("position").value = Math.round(share * 1000);
    if (!timeLine.isPlaying) $("position").setAttribute("aria-valuetext", `${short(from)} µs`);
  };
  $("run").addEventListener("click", () => play(!timeLine.isPlaying));
  $("position").addEventListener("input", () => { play(false); timeLine.position = $("position").value / 1000; });
  const zoom = () => {
    const completions = ZOOMS[$("zoom").value];
    $("zoom").setAttribute("aria-valuetext", `about ${completions}`);
    timeLine.zoom = Number($("zoom").value);
  };
  $("zoom").addEventListener("input", zoom);
  zoom();
  for (const [button, step] of [["previous", -1], ["next", 1]]) {
    $(button).addEventListener("click", () => { play(false); timeLine.choose(step); });
  }
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} copied.`;
    } catch {
      $("copied").textContent = "This browser does not let the page copy: select the text below, or the address.";
    }
  };
  $("copy").addEventListener("click", () => copy($("plan").textContent, "Plan"));
  $("link").addEventListener("click", () => {
    const url = new URL(location.href);
    url.hash = hashOf(settings);
    copy(url.href, "Link");
  });
  play(!isQuiet.matches);
  isQuiet.addEventListener("change", () => play(!isQuiet.matches));
}

/** Calls once nobody has asked for so many ms. */
function later(ms, call) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, ms);
  };
}

main().catch((error) => {
  $("problem").hidden = false;
  $("problem").textContent = `The playground does not run here: ${error.message}`;
});
