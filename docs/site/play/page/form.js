// The form of the settings.

class Form {
  #form;
  #about;
  #settings;
  #changed;
  #inputs = new Map();

  /** `about`: policies and their keys, as the simulator explains them. `changed` is called after each change. */
  constructor(form, about, settings, changed) {
    this.#form = form;
    this.#about = about;
    this.#settings = settings;
    this.#changed = changed;
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const { legend, fields } of GROUPS) {
      form.append(element("fieldset", {}, element("legend", {}, legend), ...fields.map((field) => this.#field(field))));
    }
    this.show();
  }

  #field(field) {
    const make = { choice: this.#choice, slider: this.#slider, check: this.#check, policy: this.#policy }[field.kind];
    return make.call(this, field);
  }

  #set(id, value) {
    this.#settings[id] = value;
    this.show();
    this.#changed();
  }

  #choice(field) {
    const options = field.options.map(([value, label]) => element("option", { value }, label));
    const select = element("select", { id: field.id }, ...options);
    select.addEventListener("change", () => this.#set(field.id, select.value));
    const row = element("div", { class: "field" }, element("label", { for: field.id }, field.label), select);
    if (field.id === "load") row.append(this.#file());
    this.#inputs.set(field.id, { row, show: (value) => { select.value = value; } });
    return row;
  }

  #file() {
    const input = element("input", { type: "file", id: "file" });
    const row = element("div", { class: "field", id: "file-row" },
      element("label", { for: "file" }, "The trace"), input,
      element("span", { class: "about", id: "file-name" }, "blkparse, biosnoop, fio, perf, CSV; or drop it anywhere on this page. It stays on your machine."));
    input.setAttribute("aria-describedby", "file-name");
    return row;
  }

  #slider({ id, label, values, print, about }) {
    const set = (index) => this.#set(id, values[index]);
    const [row, show] = this.#range(id, label, values.length, set, about);
    this.#inputs.set(id, { row, show: (value) => show(values.indexOf(value), print(value)) });
    return row;
  }

  /** A slider over an index, and what shows a place on it in words. */
  #range(id, label, length, set, about) {
    const output = element("output", { for: id });
    const described = about ? { "aria-describedby": `${id}-about` } : {};
    const input = element("input", { type: "range", id, min: 0, max: length - 1, step: 1, ...described });
    input.addEventListener("input", () => set(Number(input.value)));
    const row = element("div", { class: "field" }, element("label", { for: id }, label, output), input);
    if (about) row.append(element("span", { class: "about", id: `${id}-about` }, about));
    const show = (index, words) => {
      input.value = index;
      output.textContent = words;
      input.setAttribute("aria-valuetext", words);
    };
    return [row, show];
  }

  #check({ id, label, about }) {
    const input = element("input", { type: "checkbox", id, "aria-describedby": `${id}-about` });
    input.addEventListener("change", () => this.#set(id, input.checked));
    const row = element("div", { class: "field check" },
      element("label", { for: id }, input, label), element("span", { class: "about", id: `${id}-about` }, about));
    this.#inputs.set(id, { row, show: (value) => { input.checked = value; } });
    return row;
  }

  #policy({ id }) {
    const names = this.#about.policies.map((policy) => element("option", { value: policy.name }, policy.name));
    const select = element("select", { id: "name", "aria-describedby": "policy-about" }, ...names);
    select.addEventListener("change", () => this.#set(id, select.value));
    const about = element("span", { class: "about", id: "policy-about" });
    const parameters = element("div");
    const text = element("input", { type: "text", id, spellcheck: "false", autocomplete: "off", maxlength: POLICY_LENGTH_MAX, "aria-describedby": "policy-problem" });
    text.addEventListener("input", () => this.#set(id, text.value.trim()));
    const problem = element("span", { class: "about error", id: "policy-problem" });
    let shown; // the policy whose parameters are there
    let shows = [];
    const show = (value) => {
      const { name, keys } = splitPolicy(value);
      if (document.activeElement !== text) text.value = value;
      const policy = this.#about.policies.find((policy) => policy.name === name);
      select.value = policy ? name : "";
      about.textContent = policy?.about ?? "";
      if (shown !== name) {
        shown = name;
        shows = policy ? this.#parameters(id, policy, parameters) : (parameters.replaceChildren(), []);
      }
      for (const show of shows) show(keys);
    };
    const row = element("div", {},
      element("div", { class: "field" }, element("label", { for: "name" }, "Name"), select, about), parameters,
      element("div", { class: "field" }, element("label", { for: id }, "As text"), text, problem));
    this.#inputs.set(id, { row, show });
    return row;
  }

  /** Sliders for a policy's parameters. */
  #parameters(id, policy, into) {
    const sliders = Object.entries(PARAMETERS[policy.name] ?? {}).map(([key, values]) => {
      const { about, default: usual } = policy.keys.find((known) => known.name === key);
      const set = (index) => {
        const { name, keys } = splitPolicy(this.#settings[id]);
        if (magnitude(values[index]) === magnitude(usual)) keys.delete(key);
        else keys.set(key, values[index]);
        this.#set(id, joinPolicy({ name, keys }));
      };
      const [row, show] = this.#range(`policy-${key}`, key, values.length, set, about);
      const showKey = (keys) => {
        const value = keys.get(key) ?? usual;
        const distances = values.map((known) => Math.abs(Math.min(magnitude(known), 1e12) - Math.min(magnitude(value), 1e12)));
        show(distances.indexOf(Math.min(...distances)), value);
      };
      return [row, showKey];
    });
    into.replaceChildren(...sliders.map(([row]) => row));
    return sliders.map(([, show]) => show);
  }

  /** What is set, and only what means something. */
  show() {
    for (const field of FIELDS) {
      const { row, show } = this.#inputs.get(field.id);
      row.hidden = Boolean(field.when) && !field.when(this.#settings);
      show(this.#settings[field.id]);
    }
    $("file-row").hidden = this.#settings.load !== "trace";
  }

  /** Takes other settings. */
  take(settings) {
    Object.assign(this.#settings, settings);
    this.show();
  }

  /** What is wrong with the policy; empty: nothing. */
  set problem(text) {
    $("policy-problem").textContent = text;
    $("policy").setAttribute("aria-invalid", String(text !== ""));
  }
}
