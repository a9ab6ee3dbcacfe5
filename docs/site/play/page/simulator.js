// The page's side of the worker.

/** A simulation that a newer plan need not wait for, in ms. */
const PATIENCE = 300;

class Simulator {
  #module;
  #url; // of worker.js
  #worker;
  #trace;
  #hears;
  #since = 0; // when the worker last said something, while it runs
  #isBusy = false;

  /** `hears` gets what worker.js posts. */
  constructor(module, source, hears) {
    this.#module = module;
    this.#url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.#hears = hears;
    this.#start();
  }

  #start() {
    this.#worker = new Worker(this.#url);
    this.#worker.onmessage = ({ data }) => {
      this.#since = performance.now();
      if (data.isDone || data.problem) this.#isBusy = false;
      this.#hears(data);
    };
    this.#worker.postMessage({ module: this.#module });
    if (this.#trace) this.#worker.postMessage({ trace: this.#trace });
  }

  /** The bytes that threads of kind `trace` replay. */
  set trace(bytes) {
    this.#trace = bytes;
    this.#worker.postMessage({ trace: bytes });
  }

  /** Runs a plan, instead of what runs now. `events`: of the time line of each policy. */
  run(id, plan, events) {
    const isStuck = this.#isBusy && performance.now() - this.#since > PATIENCE;
    if (isStuck) {
      this.#worker.terminate();
      this.#start();
    }
    if (isStuck || !this.#isBusy) this.#since = performance.now();
    this.#isBusy = true;
    this.#worker.postMessage({ run: { id, plan, events } });
  }
}
