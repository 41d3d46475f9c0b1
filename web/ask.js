// Questions to the worker: one promise each.
const waiting = new Map();
let last = 0;
let listens;
let refuses;
const listening = new Promise((resolve, reject) => { [listens, refuses] = [resolve, reject]; });

export function start(onStep) {
  // From a blob, so that this page's content security policy holds in the worker too: a plain file
  // server sends no policy of its own with worker.js. By import(), not by an import statement: Firefox
  // fetches what a blob's statements import past the service worker, so not at all without a network.
  const place = JSON.stringify(new URL("worker.js", import.meta.url).href);
  const code = `import(${place}).catch((problem) => postMessage({ failed: String(problem) }));`;
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const worker = new Worker(address, { type: "module" });
  worker.onerror = (event) => failed(event.message || "the worker did not start");
  let steps = 0;
  worker.onmessage = ({ data }) => {
    if (data.failed) failed(data.failed);
    else if (data.step) { listens(worker); steps += 1; onStep(data.step, steps); }
    else settle(data);
  };
}

function failed(why) {
  refuses(new Error(why));
  for (const { reject } of waiting.values()) reject(new Error(why));
  waiting.clear();
}

function settle({ id, answer, problem, milliseconds }) {
  const { resolve, reject } = waiting.get(id) ?? {};
  if (!waiting.delete(id)) return;
  if (problem) reject(new Error(problem));
  else resolve({ ...answer, milliseconds });
}

// A question waits for the worker's first word: a message that comes before worker.js runs is lost.
export async function ask(question, raw) {
  const worker = await listening;
  last += 1;
  const id = last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, question, raw });
  });
}
