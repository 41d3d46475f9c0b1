// The page: three tabs, their forms, and the answers that the worker gives.
import { ask, start } from "./ask.js";
import { asPrinted, copied, doctor, finding, h, problem, prose, resolution } from "./show.js";

const TABS = ["report", "describe", "finding"];
const EXAMPLE = `RuntimeError: CUDA error: no kernel image is available for execution on the device

PyTorch version: 2.6.0+cu124
CUDA used to build PyTorch: 12.4
OS: Ubuntu 24.04.2 LTS (x86_64)
Python version: 3.12.3
Nvidia driver version: 570.133.07
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti
`;
const $ = (id) => document.getElementById(id);
const state = (text) => { $("state").textContent = text; };
let known = { findings: [] };
let messages = [];
const messagesOf = (id) => messages.filter((row) => row.finding === id).map((row) => row.message);

// --- tabs --------------------------------------------------------------------------------------

function choose(name, focus) {
  for (const one of TABS) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    $(one).hidden = one !== name;
  }
  if (focus) $(`tab-${name}`).focus();
}

const STEPS = { ArrowRight: 1, ArrowLeft: -1, Home: -TABS.length, End: TABS.length };

function moved(event) {
  const place = TABS.indexOf(event.currentTarget.id.slice("tab-".length));
  if (!(event.key in STEPS)) return;
  event.preventDefault();
  const step = STEPS[event.key];
  const next = Math.abs(step) === 1 ? (place + step + TABS.length) % TABS.length : step < 0 ? 0 : TABS.length - 1;
  choose(TABS[next], true);
  history.replaceState(null, "", `#${TABS[next]}`);
}

for (const name of TABS) {
  $(`tab-${name}`).addEventListener("click", () => { choose(name); history.replaceState(null, "", `#${name}`); });
  $(`tab-${name}`).addEventListener("keydown", moved);
}

// --- answers -----------------------------------------------------------------------------------

async function answered(place, question, raw, shown) {
  state("Reading…");
  document.body.setAttribute("aria-busy", "true");
  try {
    const answer = await ask(question, raw);
    const told = JSON.parse(answer.json);
    const parts = told.schema.startsWith("gpusetup.error/") ? problem(told) : [...shown(told, answer), ...asPrinted(answer, place)];
    $(`${place}-answer`).replaceChildren(...parts.filter(Boolean));
    $(`${place}-answer`).dataset.milliseconds = answer.milliseconds;
    const heading = $(`${place}-answer`).querySelector("h2");
    heading?.focus();
    // On a narrow screen, the form fills the view, and the answer would be below it.
    if (window.innerWidth < 700) heading?.scrollIntoView({ block: "start" });
    state(`Answered in ${Math.max(1, Math.round(answer.milliseconds))} ms, in this browser`);
    return told;
  } catch (wrong) {
    state(`This page failed: ${wrong.message}`);
    throw wrong;
  } finally {
    document.body.removeAttribute("aria-busy");
  }
}

function sharing() {
  const link = h("button", { type: "button", id: "copy-link" }, "Copy link");
  link.addEventListener("click", async () => {
    const address = new URL(location.href);
    address.hash = `snapshot=${(await ask(["link"])).out}`;
    history.replaceState(null, "", address);
    await copied(address.href, link);
  });
  const what = "The link has no names, home folders or serial numbers. It has the machine after its #, which browsers send to no server.";
  return [h("div", { class: "row" }, link), h("p", { class: "hint" }, what)];
}

// The text, as a code block of a thread.
function textAsMarkdown({ text }) {
  const button = h("button", { type: "button" }, "Copy answer");
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  button.addEventListener("click", () => copied(`${fence}text\n${text}${fence}\n`, button));
  return h("div", { class: "row" }, button);
}

const onMachine = (told, answer) => [...doctor(told), textAsMarkdown(answer), ...sharing()];
const readReport = (raw) => answered("report", ["report"], raw, onMachine);
const readLink = (fragment) => answered("report", ["linked", fragment], undefined, onMachine);

$("report-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("report-text").value;
  if (text.trim()) readReport(new TextEncoder().encode(text));
  else { state("Paste an error message, a log or the output of nvidia-smi first"); $("report-text").focus(); }
});
$("report-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("report-form").requestSubmit();
});
$("report-example").addEventListener("click", () => { $("report-text").value = EXAMPLE; $("report-text").focus(); });

const WHOLE = 64 * 1024 * 1024;
async function readFile(file) {
  if (!file) return;
  if (file.size > WHOLE) { state("The file is larger than 64 MiB: read it with gpusetup doctor --report FILE"); return; }
  await readReport(new Uint8Array(await file.arrayBuffer()));
}
$("report-file").addEventListener("change", (event) => readFile(event.target.files[0]));
$("report-form").addEventListener("dragover", (event) => event.preventDefault());
$("report-form").addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  readFile(event.dataTransfer.files[0]);
});

$("describe-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(event.target));
  if (fields.os !== "linux") delete fields.glibc;
  answered("describe", ["resolve", fields], undefined, (told, answer) => [...resolution(told, answer.ways), textAsMarkdown(answer)]);
});
$("d-os").addEventListener("change", () => {
  const mac = $("d-os").value === "macos";
  for (const id of ["d-gpu", "d-driver"]) { $(id).disabled = mac; }
  $("d-glibc").disabled = $("d-os").value !== "linux";
  if (mac) $("d-machine").value = "aarch64";
});

// --- findings ----------------------------------------------------------------------------------

function listed() {
  const words = $("finding-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const said = (row) => [row.id, row.title, row.means, row.prints, ...messagesOf(row.id)].join(" ").toLowerCase();
  const rows = known.findings.filter((row) => words.every((word) => said(row).includes(word)));
  $("finding-count").textContent = `${rows.length} of ${known.findings.length} findings`;
  const item = (row) => h("li", {}, h("button", { type: "button", onclick: () => open(row.id) }, h("span", { class: "id" }, row.id), ...prose(row.title)));
  $("finding-list").replaceChildren(...rows.map(item));
}

function open(id) {
  history.replaceState(null, "", `#finding=${id}`);
  return answered("finding", ["finding", id], undefined, (told) => finding(told.finding, open, messagesOf(told.finding.id)));
}
$("finding-filter").addEventListener("input", listed);

// --- the start ---------------------------------------------------------------------------------

function fill(answer) {
  known = answer;
  const option = (value) => h("option", { value }, value);
  $("gpus").replaceChildren(...answer.gpus.map((value) => h("option", { value })));
  $("packages").replaceChildren(...answer.packages.map((value) => h("option", { value })));
  $("d-python").replaceChildren(...answer.pythons.map(option));
  $("d-python").value = answer.pythons.includes("3.12") ? "3.12" : answer.pythons[0];
  listed();
  $("about").textContent = `gpusetup ${answer.version}, catalog of ${answer.catalog_as_of}. No upload, no cookies, no counting; the page works without a network once it has loaded.`;
}

function wordOf(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function follow() {
  const [name, value] = location.hash.slice(1).split("=");
  if (name === "snapshot" && value) { choose("report"); readLink(value); }
  else if (name === "snapshot") { choose("report"); readLink("1."); }
  else if (name === "finding" && value) { choose("finding"); open(wordOf(value)); }
  else if (TABS.includes(name)) choose(name);
}

const began = performance.now();
start((step, place) => { $("loading").value = place; if (step !== "Ready") state(`${step}…`); });
const read = fetch("messages.json").then((answer) => answer.json());
Promise.all([ask(["start"]), read]).then(([answer, rows]) => {
  messages = rows;
  fill(answer);
  document.body.dataset.ready = performance.now() - began;
  $("loading").hidden = true;
  state(`Ready after ${((performance.now() - began) / 1000).toFixed(1)} s`);
  follow();
  ask(["warm"]);
}, (why) => state(`Python did not start in this browser: ${why.message}`));
window.addEventListener("hashchange", follow);

if ("serviceWorker" in navigator && location.protocol !== "file:") {
  navigator.serviceWorker.register("offline.js").catch(() => { /* the page works without */ });
}
