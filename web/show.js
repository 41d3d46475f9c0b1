// Answers as elements. Every text is set as text, never as markup: it was written by strangers.
export function h(tag, settings = {}, ...inner) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inner.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

// What stands between backticks is code.
export function prose(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

export async function copied(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", { "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  document.querySelector("#state").textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

export function block(text, label) {
  const button = h("button", { type: "button", "aria-label": `Copy: ${label}` }, "Copy");
  button.addEventListener("click", () => copied(text, button));
  return h("div", { class: "block" }, h("pre", { tabindex: "0", role: "region", "aria-label": label }, text), button);
}

const folded = (title, ...inner) => h("details", {}, h("summary", {}, title), ...inner);

// The answer as the command line gives it.
export function asPrinted(answer, id) {
  const text = h("pre", { class: "whole", tabindex: "0", role: "region", "aria-label": "The text", id: `${id}-printed` }, answer.text);
  const json = h("pre", { class: "whole wrapped", tabindex: "0", role: "region", "aria-label": "The JSON", id: `${id}-json` }, answer.json);
  return [folded("As the terminal shows it", text), folded("As JSON", json)];
}

export function problem(document) {
  const hint = document.hint ? h("p", {}, ...prose(document.hint)) : null;
  return [h("h2", { tabindex: "-1", class: "problem" }, ...prose(document.message)), hint];
}

// --- doctor ------------------------------------------------------------------------------------

const MARKS = { error: "✗", warning: "!", note: "·", ok: "✓", unknown: "?" };

export function doctor(document) {
  const told = document.cause === "unknown" ? document.symptom : document.cause;
  const root = document.findings.find((one) => one.root) ?? document.findings.find((one) => one.id === told);
  const others = document.findings.filter((one) => one !== root);
  return [
    ...verdict(document, root),
    ...(root ? [...inFull(root), page(root.id)] : []),
    ...(others.length ? [h("h3", {}, "Also found"), h("ul", { class: "plain" }, others.map(inShort))] : []),
    h("h3", {}, "What was read"),
    machine(document),
  ];
}

function verdict(document, root) {
  const kind = document.cause === "unknown" || document.cause === "ok" ? document.cause : root ? root.severity : "unknown";
  const said = document.cause === "unknown" ? unknownOf(document, root) : root ? titled(document, root) : document.proof ?? unknownOf(document);
  const title = h("h2", { tabindex: "-1" },
    h("span", { class: `severity ${kind}` }, `${MARKS[kind]} `, h("span", { class: "id" }, document.cause)),
    ": ", ...prose(said));
  if (!document.next_reading) return [title];
  const other = document.other_causes.join(", ");
  const also = document.cause === "unknown" ? "" : "also ";
  return [title, h("p", {}, `${other ? `It may ${also}be ${other}. ` : ""}This command decides:`), block(document.next_reading, "what decides")];
}

function titled(document, root) {
  return [document.cause, document.symptom].includes(root.id) ? root.title : `${root.title} (${root.id})`;
}

export function page(id) {
  const address = `#finding=${encodeURIComponent(id)}`;
  return h("p", { class: "hint" }, h("a", { href: address, target: "_blank", rel: "noopener" }, `All about ${id}`));
}

function unknownOf(document, seen) {
  if (document.findings.some((one) => one.id === "report-empty")) return "the text is empty";
  if (seen) return `${seen.title}; the text does not show why`;
  return document.snapshot.origin === "report" ? "not enough information to tell what is wrong" : "no fault found, but no proof that everything works either";
}

function inFull(finding) {
  return [
    finding.detail ? h("p", {}, ...prose(finding.detail)) : null,
    finding.evidence.length ? h("h3", {}, "What shows it") : null,
    h("ul", { class: "plain" }, finding.evidence.slice(0, 6).map((one) =>
      h("li", {}, h("span", { class: "mono" }, one.text), " ", h("span", { class: "source" }, `(${one.source})`)))),
    ...(finding.fix ? [h("h3", {}, "What to do"), ...wayOut(finding.fix)] : []),
  ];
}

function needs(fix) {
  const words = [fix.needs_root && "administrator rights", fix.needs_reboot && "a reboot"].filter(Boolean);
  return words.length ? `. This fix needs ${words.join(" and ")}` : "";
}

function wayOut(fix) {
  const lines = (commands) => commands.join("\n");
  const beside = (one, first) => [
    h("p", {}, ...prose(sentence(first || one.title.startsWith("to ") ? one.title : `or ${one.title}`))),
    one.commands.length ? block(lines(one.commands), one.title) : null,
  ];
  return [
    h("p", {}, ...prose(fix.text), needs(fix)),
    fix.commands.length ? block(lines(fix.commands), "what to type") : null,
    ...fix.alternatives.flatMap((one, place) => beside(one, place === 0 && !fix.commands.length)),
    ...fix.looks.flatMap((one) => beside(one, true)),
  ];
}

function inShort(finding) {
  const follows = finding.explained_by ? h("span", { class: "source" }, ` (follows from ${finding.explained_by})`) : null;
  const head = [h("span", { class: `severity ${finding.severity}` }, `${finding.severity} `), h("span", { class: "id" }, finding.id), ": ", ...prose(finding.title), follows];
  if (!finding.fix && !finding.detail) return h("li", {}, head);
  return h("li", {}, head, folded("more", ...inFull(finding)));
}

function machine({ snapshot, resolution, catalog_as_of: asOf }) {
  const joined = (...parts) => parts.filter(Boolean).join(", ") || "unknown";
  const founded = snapshot.origin !== "report" || snapshot.gpus?.length || snapshot.driver.version;
  const rows = [
    ["System", joined(snapshot.os.name ?? snapshot.os.family, snapshot.os.machine, snapshot.os.libc)],
    ["Driver", joined(snapshot.driver.version, snapshot.driver.cuda && `CUDA ${snapshot.driver.cuda}`)],
    ["GPU", joined(...(snapshot.gpus ?? []).map((gpu) => gpu.name))],
    ["torch", joined(snapshot.torch.version)],
    ["Python", joined(snapshot.python.version, snapshot.python.manager)],
    ...(resolution?.torch && founded ? [["Recommended", built(resolution)]] : []),
    ["Catalog", asOf],
  ];
  return h("dl", {}, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// --- resolve -----------------------------------------------------------------------------------

/** A build in words, with the least driver that serves it. */
function built({ torch, backend, driver_floor: floor }) {
  return `torch ${torch} from ${backend}${floor ? ` (needs driver ${floor} or newer)` : ""}`;
}

export function resolution(document, ways) {
  const fits = document.torch !== null;
  const title = fits ? built(document) : "No build fits";
  return [
    h("h2", { tabindex: "-1", class: fits ? undefined : "problem" }, title),
    ...(fits ? inside(document) : []),
    ...(document.advice ? [h("p", {}, adviceOf(document.advice))] : []),
    ...document.notes.map((note) => h("p", { class: "hint" }, ...prose(note))),
    ...waysOf(ways),
    ...reasons(document),
  ];
}

function inside(document) {
  const rows = [
    ["Index", document.index_url],
    ...(document.packages.length ? [] : [["torchvision", document.torchvision], ["torchaudio", document.torchaudio]]),
    ...document.packages.filter((one) => one.asked).map((one) => [one.name, one.version ?? "any that fits (by the table of companions)"]),
    ["Needs driver", document.driver_floor && `${document.driver_floor} or newer`],
    ["Runs on", document.served.map((one) => `${one.gpu} (${one.compute_capability}) by ${one.by}`).join(", ")],
    ["Falls back to", document.fallbacks.map((one) => one.backend).join(", then ")],
  ];
  return [h("dl", {}, rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))];
}

function adviceOf({ change, to, gives }) {
  return `With another ${change}, more is possible: ${to} gives ${gives}.`;
}

function waysOf(ways) {
  const [first, ...rest] = ways;
  if (!first) return [];
  return [
    h("h3", {}, `With ${first.title}`), block(first.text.trimEnd(), `with ${first.title}`),
    ...rest.map((one) => folded(one.title, block(one.text.trimEnd(), one.title))),
  ];
}

function reasons(document) {
  const groups = new Map();
  for (const { torch, backend, reason } of document.rejections) {
    if (!groups.has(reason)) groups.set(reason, []);
    groups.get(reason).push(`${torch} ${backend}`);
  }
  if (!groups.size) return [];
  const shown = (builds) => builds.slice(0, 6).join(", ") + (builds.length > 6 ? ` and ${builds.length - 6} older` : "");
  const rows = [...groups].map(([reason, builds]) => h("tr", {}, h("td", {}, ...prose(reason)), h("td", {}, shown(builds))));
  const head = h("tr", {}, h("th", { scope: "col" }, "Reason"), h("th", { scope: "col" }, "Builds"));
  return [folded("Why not the others", h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Why not the others" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))))];
}

// --- findings ----------------------------------------------------------------------------------

export function finding(row, open, messages) {
  const parts = [["What it means", row.means], ["Check it with", row.check], ["It prints", row.prints], ["What to do", row.way_out]];
  const explains = row.explains.map((id) => h("button", { type: "button", onclick: () => open(id) }, id));
  return [
    h("h2", { tabindex: "-1" }, h("span", { class: "id" }, row.id), ": ", ...prose(row.title)),
    ...parts.filter(([, text]) => text).flatMap(([title, text]) => [h("h3", {}, title), h("p", {}, ...prose(text))]),
    ...(messages.length ? [h("h3", {}, "Messages that show it"), ...messages.map((text) => h("pre", { class: "wrapped" }, text))] : []),
    ...(explains.length ? [h("h3", {}, "What follows from it"), h("div", { class: "row" }, explains)] : []),
  ];
}
