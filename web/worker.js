// The browser's Python, in a worker of its own: takes questions, gives the command line's answers.
// It is started from a blob of the page, so that the page's content security policy holds here too.
import { loadPyodide } from "./python/pyodide.mjs";

const HERE = new URL(".", import.meta.url).href;
const CODE = "gpusetup.zip";

const say = (step) => postMessage({ step });

async function bytesOf(name) {
  const answer = await fetch(new URL(name, HERE));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.arrayBuffer();
}

async function started() {
  say("Loading Python");
  const [python, code] = await Promise.all([
    loadPyodide({ indexURL: new URL("python/", HERE).href }),
    bytesOf(CODE),
  ]);
  say("Unpacking gpusetup");
  const place = python.runPython("import site; site.getsitepackages()[0]");
  python.unpackArchive(new Uint8Array(code), "zip", { extractDir: place });
  say("Starting gpusetup");
  const module = python.pyimport("page_answers");
  return (question, raw) => module.answer(JSON.stringify(question), python.toPy(raw ?? new Uint8Array()));
}

const answers = started();
answers.then(
  () => say("Ready"),
  (problem) => postMessage({ failed: String(problem) }),
);

let turn = answers.catch(() => undefined);
onmessage = ({ data }) => {
  turn = turn.then(async () => {
    const began = performance.now();
    try {
      const answer = await answers;
      const said = answer(data.question, data.raw);
      postMessage({ id: data.id, answer: JSON.parse(said), milliseconds: performance.now() - began });
    } catch (problem) {
      postMessage({ id: data.id, problem: String(problem) });
    }
  });
};
