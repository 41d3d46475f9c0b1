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
}

main();
