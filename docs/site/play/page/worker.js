// The simulator, beside the page: it never blocks what somebody types. The newest plan is run, policy by policy; between two of
// them it looks for a newer one.

let module, wasm, wanted, isRunning = false;
const told = new TextDecoder();

function start() {
  wasm = new WebAssembly.Instance(module).exports;
}

/** Writes bytes where the next call finds them. */
function give(bytes) {
  const at = wasm.play_room(bytes.length);
  new Uint8Array(wasm.memory.buffer, at, bytes.length).set(bytes);
}

/** The JSON of an answer. */
function read(length) {
  const answer = JSON.parse(told.decode(new Uint8Array(wasm.memory.buffer, wasm.play_answer(), length)));
  if (answer.error !== undefined) throw new Error(answer.error);
  return answer;
}

/** Lets messages in. */
const breathe = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); resolve(); };
  port2.postMessage(null);
});

async function run() {
  isRunning = true;
  while (wanted) {
    const { id, plan, events } = wanted;
    wanted = undefined;
    try {
      give(new TextEncoder().encode(plan));
      const policies = read(wasm.play_load());
      postMessage({ id, policies });
      for (let nth = 0; nth < policies.length && !wanted; nth++) {
        const began = performance.now();
        const { outcome, lane } = read(wasm.play_simulate(nth, events[nth] ?? 0));
        postMessage({ id, nth, outcome, lane, ms: performance.now() - began });
        await breathe();
      }
      if (!wanted) postMessage({ id, isDone: true });
    } catch (error) {
      if (error instanceof WebAssembly.RuntimeError) start();
      const problem = error instanceof WebAssembly.RuntimeError ? "the simulator stopped: the memory of this page is full" : error.message;
      postMessage({ id, problem });
    }
  }
  isRunning = false;
}

onmessage = async ({ data }) => {
  if (data.module) {
    module = data.module;
    start();
    postMessage({ about: read(wasm.play_policies()) });
  }
  if (data.trace) {
    give(new Uint8Array(data.trace));
    wasm.play_trace();
  }
  if (data.run) {
    wanted = data.run;
    if (!isRunning) run();
  }
};
