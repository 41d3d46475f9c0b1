// Search each message of web/messages.json in the built site, as the browser does.
//
//   mkdocs build --strict && node scripts/check_search.js
//
// It prints how often the right page is first, and each message for which it is not.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const ROOT = path.join(__dirname, "..");
const SITE = path.join(ROOT, "build", "docs");

// --- the site's own search, without a browser -----------------------------------------------------

let answerTo;
let answered;
global.self = global;
global.addEventListener = (_, listener) => (answerTo = listener);
global.postMessage = (message) => answered(message);
global.document = { addEventListener() {} };

function load(file) {
  vm.runInThisContext(fs.readFileSync(file, "utf8"), { filename: file });
}

function ask(message) {
  return new Promise((resolve) => {
    answered = resolve;
    answerTo({ data: message });
  });
}

// What Material makes of the words in the box: each matches the beginning of a word.
function asQuery(words) {
  return words.trim().split(/\s+/).map((word) => `${word}*`).join(" ");
}

function pagesOf(result) {
  return result.data.items.map((sections) => sections[0].location.split("#")[0]);
}

// --- the messages -----------------------------------------------------------------------------------

// Of messages that several findings share, the one without further words decides.
function rightPages() {
  const rows = JSON.parse(fs.readFileSync(path.join(ROOT, "web", "messages.json"), "utf8"));
  const byMessage = new Map();
  for (const row of rows) {
    const message = row.message.split(/\s+/).join(" ");
    if (!byMessage.has(message) || !row.beside) byMessage.set(message, row.finding);
  }
  return byMessage;
}

// What people type who have no message, and the page that answers it.
const TOPICS = [
  ["no network", "how-to/install-without-a-network"],
  ["no internet", "how-to/install-without-a-network"],
  ["offline install", "how-to/install-without-a-network"],
  ["mac", "how-to/amd-intel-mac"],
  ["macbook", "how-to/amd-intel-mac"],
  ["amd", "how-to/amd-intel-mac"],
  ["jetson", "how-to/jetson"],
  ["wsl", "how-to/windows-and-wsl"],
  ["jupyter", "how-to/notebooks"],
  ["colab", "how-to/notebooks"],
  ["docker", "how-to/docker"],
  ["kubernetes", "how-to/kubernetes"],
  ["slurm", "how-to/slurm"],
  ["job sees no gpu", "how-to/slurm"],
  ["ray", "how-to/ray"],
  ["conda", "how-to/use-conda"],
  ["mirror", "how-to/use-a-corporate-mirror"],
  ["undo", "how-to/undo-and-recover"],
  ["guard", "how-to/install-requirements-without-moving-torch"],
  ["requirements", "how-to/install-requirements-without-moving-torch"],
  ["pin torch", "how-to/pin-torch-in-a-project"],
  ["poetry", "how-to/pin-torch-in-a-project"],
  ["vllm", "how-to/choose-torch-with-packages"],
  ["nightly", "how-to/find-a-build"],
  ["1080 Ti", "how-to/find-a-build"],
  ["batch size", "how-to/tune"],
  ["plan training", "how-to/plan"],
  ["monitor", "how-to/monitor"],
  ["low GPU utilization", "how-to/monitor"],
  ["grafana", "how-to/compare-many-nodes"],
  ["memory used but no process", "findings/gpu-memory-taken"],
  ["sick gpu", "how-to/which-gpu-is-sick"],
  ["stays on the cpu", "how-to/stays-on-the-cpu"],
  ["out of memory after steps", "how-to/out-of-memory-late"],
  ["ci image", "how-to/check-a-ci-image-without-gpu"],
  ["github actions", "how-to/github-actions"],
  ["alpine", "how-to/docker"],
  ["empty_cache", "how-to/notebooks"],
  ["training gets slower", "how-to/monitor"],
  ["cuda toolkit", "explanation/four-cuda-versions"],
  ["cuda device order", "guides/several-gpus"],
  ["shared gpu memory", "how-to/windows-and-wsl"],
];

async function main() {
  const workers = path.join(SITE, "assets", "javascripts", "workers");
  load(path.join(workers, fs.readdirSync(workers).find((name) => name.endsWith(".js"))));
  load(path.join(ROOT, "docs", "site", "search-messages.js"));
  const index = JSON.parse(fs.readFileSync(path.join(SITE, "search", "search_index.json"), "utf8"));
  await ask({ type: 0, data: { ...index, options: { suggest: false } } });
  let first = 0;
  const messages = rightPages();
  for (const [message, finding] of messages) {
    const pages = pagesOf(await ask({ type: 2, data: asQuery(tellingWords(message)) }));
    const place = pages.indexOf(`findings/${finding}.html`);
    if (place === 0) first += 1;
    else console.log(`${finding} is number ${place + 1}, ${pages[0]} is first: ${message}`);
  }
  console.log(`the right page is first for ${first} of ${messages.size} messages`);
  first = 0;
  for (const [topic, page] of TOPICS) {
    const pages = pagesOf(await ask({ type: 2, data: asQuery(topic) }));
    if (pages[0] === `${page}.html`) first += 1;
    else console.log(`${page} is number ${pages.indexOf(`${page}.html`) + 1}, ${pages[0]} is first: ${topic}`);
  }
  console.log(`the right page is first for ${first} of ${TOPICS.length} topics`);
}

main();
