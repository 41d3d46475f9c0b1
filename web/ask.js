// Questions to the worker: one promise each.
const waiting = new Map();
let worker;
let last = 0;

export function start(onStep, onFailed) {
  // From a blob, so that this page's content security policy holds in the worker too: a plain file
  // server sends no policy of its own with worker.js.
  const code = `import ${JSON.stringify(new URL("worker.js", import.meta.url).href)};`;
  const blob = new Blob([code], { type: "text/javascript" });
  worker = new Worker(URL.createObjectURL(blob), { type: "module" });
  worker.onerror = (event) => onFailed(event.message || "the worker did not start");
  worker.onmessage = ({ data }) => {
    if (data.step) onStep(data.step);
    else if (data.failed) onFailed(data.failed);
    else settle(data);
  };
}

function settle({ id, answer, problem, milliseconds }) {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (problem) reject(new Error(problem));
  else resolve({ ...answer, milliseconds });
}

export function ask(question, raw) {
  last += 1;
  const id = last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, question, raw });
  });
}
