#!/usr/bin/env python3
"""Try the built page in real browsers: are its answers the command line's, does anything leave?

python scripts/check_page.py --reports DIR...          Chromium, every report, axe, offline, keys
python scripts/check_page.py --short                   a few texts of tests/report_messages.py
python scripts/check_page.py --firefox --reports DIR   the same answers in Firefox
python scripts/check_page.py --shots DIR               pictures: light, dark, wide, narrow

A report is a .json file with the key `report`, or a .txt file. Chromium and Firefox are the
system's; `pip install playwright` drives the first (no browser of its own is needed).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("", "tests", "scripts", "web")]

from build_page import NotBuilt, build, default_cache, fetched, npm_command  # noqa: E402
from page_server import PageServer  # noqa: E402

AXE = {
    "name": "axe-core",
    "version": "4.14.1",
    "file": "axe-core-4.14.1.tgz",
    "sha256": "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
}
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
SHORT = 5
ALLOWED = ("data:", "blob:", "about:")
STARTS = 3
"""How often Firefox opens the page without a network."""
MACHINES = (
    {"gpu": "RTX 4090", "driver": "550.54.14", "os": "linux", "machine": "x86_64"},
    {"gpu": "RTX 3050", "driver": "581.29", "os": "windows", "python": "3.11", "torch": "2.5.1"},
    {"gpu": "A100 80GB", "driver": "570.172.08", "os": "linux", "packages": "vllm"},
    {
        "gpu": "GTX 1080 Ti",
        "driver": "580.95.05",
        "os": "linux",
        "packages": "xformers, flash-attn",
    },
    {"gpu": "T4", "driver": "470.57.02", "os": "linux", "python": "3.13"},
    {"os": "macos", "machine": "aarch64"},
    {"gpu": "RTX 9999", "os": "linux"},
    {"gpu": "H100", "driver": "575.51.03", "os": "linux", "python": "3.9", "packages": "no such!"},
)
"""What is described: each field is what somebody types into it."""


def texts(folders: Sequence[str], *, short: bool) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every report."""
    if not folders:
        from report_messages import MESSAGES

        rows = [(id, text.encode()) for id, text in MESSAGES]
        yield from rows[:: max(1, len(rows) // SHORT)] if short else rows
    for path in sorted(p for folder in folders for p in Path(folder).iterdir()):
        if path.suffix == ".json":
            yield path.stem, json.loads(path.read_bytes())["report"].encode("utf-8", "replace")
        elif path.suffix == ".txt":
            yield path.stem, path.read_bytes()


def command_line(*words: str) -> str:
    """What the command prints."""
    from gpusetup.cli import main

    out = io.StringIO(newline="")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.getvalue()


class Differs(Exception):
    """Something that the page must not do, or must."""


def must(is_so: bool, what: str) -> None:
    if not is_so:
        raise Differs(what)


# --- Chromium -------------------------------------------------------------------------------------


class Chromium:
    """The page in a Chromium, with every request that it makes."""

    def __init__(self, context: Any, address: str) -> None:
        self.address, self.context = address, context
        self.requests: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda problem: self.faults.append(str(problem)))

    def open(self, fragment: str = "") -> float:
        """Milliseconds until it can answer."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{fragment}")
        self.page.wait_for_selector("body[data-ready]", timeout=120_000)
        return float(self.page.get_attribute("body", "data-ready"))

    def read(self, raw: bytes) -> tuple[str, str, float]:
        """A file's answer: the JSON, the text, and milliseconds."""
        file = {"name": "report.txt", "mimeType": "text/plain", "buffer": raw}
        return self._asked("report", lambda: self.page.set_input_files("#report-file", file))

    def paste(self, text: str) -> tuple[str, str, float]:
        self.page.fill("#report-text", text)
        return self._asked("report", lambda: self.page.click("#report-form button.main"))

    def describe(self, fields: dict[str, str]) -> tuple[str, str, float]:
        self.page.click("#tab-describe")
        self.page.select_option("#d-os", fields["os"])
        for name in ("machine", "python"):
            if name in fields:
                self.page.select_option(f"#d-{name}", fields[name])
        for name in ("gpu", "driver", "packages", "torch", "glibc"):
            if self.page.is_enabled(f"#d-{name}"):
                self.page.fill(f"#d-{name}", fields.get(name, ""))
        return self._asked("describe", lambda: self.page.click("#describe-form button.main"))

    def fields(self) -> dict[str, str]:
        """What the form would send."""
        form = "Object.fromEntries(new FormData(document.querySelector('#describe-form')))"
        return dict(self.page.evaluate(form))

    def _asked(self, place: str, act: Any) -> tuple[str, str, float]:
        self.page.evaluate(f"document.querySelector('#{place}-answer').replaceChildren()")
        act()
        self.page.wait_for_selector(f"#{place}-answer h2", timeout=120_000)
        shown = [self.page.query_selector(f"#{place}-{kind}") for kind in ("json", "printed")]
        said = [one.text_content() if one else "" for one in shown]
        spent = self.page.get_attribute(f"#{place}-answer", "data-milliseconds")
        return said[0], said[1], float(spent)


@contextlib.contextmanager
def chromium(address: str, **settings: Any) -> Iterator[Chromium]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    must(program is not None, "no Chromium is on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Chromium(browser.new_context(**settings), address)
        finally:
            browser.close()


def check_reports(page: Any, rows: Sequence[tuple[str, bytes]]) -> list[float]:
    """Every report's JSON and text are the command line's; the milliseconds of each."""
    times, different = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.txt"
        for name, raw in rows:
            file.write_bytes(raw)
            document, text, spent = page.read(raw)
            same = document == command_line("doctor", "--report", str(file), "--json")
            if not same or text != command_line("doctor", "--report", str(file)):
                different.append(name)
            times.append(spent)
    must(not different, f"another answer than the command line's: {', '.join(different)}")
    return times


def check_described(page: Chromium) -> int:
    """What is described gets the answer of `resolve --offline`."""
    from page_answers import resolve_words

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "nothing.json"
        base.write_text('{"schema":"gpusetup.snapshot/1"}', encoding="utf-8")
        for fields in MACHINES:
            document, text, _ = page.describe(fields)
            words = resolve_words(page.fields(), str(base))
            expected = command_line(words[0], "--json", *words[1:])
            if '"gpusetup.error/1"' in expected:
                shown = page.page.inner_text("#describe-answer h2")
                must(
                    shown[:20] in json.loads(expected)["message"].replace("`", ""),
                    f"{fields}: {shown}",
                )
            else:
                must((document, text) == (expected, command_line(*words)), f"{fields} differs")
    return len(MACHINES)


def check_nothing_leaves(page: Chromium, server: PageServer) -> None:
    """Every request of page, worker and service worker goes to the page's own files, by GET."""
    foreign = [r for r in page.requests if not r.startswith((page.address, *ALLOWED))]
    must(not foreign, f"requests left: {foreign}")
    must(all(line.startswith("GET ") for line in server.asked), "something was sent to the server")
    must(not any("?" in line for line in server.asked), "a query was sent to the server")
    must(len(page.page.workers) > 0, "there is no worker")
    for place in (page.page, *page.page.workers):
        check_refused(place.evaluate)


def check_refused(run: Any) -> None:
    """A server that would answer is never asked. `run` takes a function of the page or a worker."""
    with PageServer(Path(__file__).parent) as other:
        asked = f"fetch('{other.address}', {{mode: 'no-cors'}})"
        said = run(f"() => {asked}.then(() => 'went', () => 'refused')")
        must(said == "refused" and not other.asked, "a request to elsewhere was not refused")


def check_offline(page: Chromium, rows: Sequence[tuple[str, bytes]]) -> None:
    """After the first visit it answers without a network."""
    page.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.context.set_offline(True)
    try:
        page.open()
        check_reports(page, rows[:1])
    finally:
        page.context.set_offline(False)


def check_link(page: Chromium, raw: bytes) -> None:
    """A link carries the machine: its answer has the same findings."""
    page.open()
    page.read(raw)
    first = json.loads(page.page.text_content("#report-json"))
    page.page.click("#copy-link")
    page.page.wait_for_selector("#copy-link:text('Copied')")
    fragment = page.page.url.partition("#")[2]
    must(fragment.startswith("snapshot=1."), f"no link: {fragment[:40]}")
    page.open(f"#{fragment}")
    page.page.wait_for_selector("#report-answer h2")
    again = json.loads(page.page.text_content("#report-json"))
    ids = [[one["id"] for one in told["findings"]] for told in (first, again)]
    must(ids[0] == ids[1] and first["cause"] == again["cause"], "the link has other findings")


def check_markdown(page: Chromium, raw: bytes) -> None:
    """What is copied as Markdown is what `--format markdown` prints."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.open()
    page.read(raw)
    page.page.click("#copy-markdown")
    page.page.wait_for_selector("#copy-markdown:text('Copied')")
    copied = page.page.evaluate("navigator.clipboard.readText()")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.txt"
        file.write_bytes(raw)
        expected = command_line("doctor", "--report", str(file), "--format", "markdown")
    must(copied == expected, "what is copied as Markdown differs")


def check_keyboard(page: Chromium) -> None:
    """Tabs by arrows, a report by keys alone, the answer's heading has the focus."""
    page.open()
    page.page.focus("#tab-report")
    page.page.keyboard.press("ArrowRight")
    must(page.page.is_visible("#describe"), "an arrow does not change the tab")
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("Tab")
    must(page.page.evaluate("document.activeElement.id") == "report-text", "Tab misses the text")
    page.page.keyboard.insert_text("Torch not compiled with CUDA enabled")
    page.page.keyboard.press("Control+Enter")
    page.page.wait_for_selector("#report-answer h2")
    tag = page.page.evaluate("document.activeElement.tagName")
    must(tag == "H2", f"the focus is on {tag}, not on the answer")


def check_axe(page: Chromium, cache: Path) -> int:
    """No serious finding of axe-core in any tab, empty and answered, light and dark."""
    import tarfile

    with tarfile.open(fetched(AXE, npm_command(AXE), cache)) as parts:
        file = parts.extractfile("package/axe.min.js")
        assert file is not None
        source = file.read().decode()
    passes = 0
    for scheme in ("light", "dark"):
        page.page.emulate_media(color_scheme=scheme)
        page.open()
        page.page.evaluate(source)
        for act in (None, "report", "describe", "finding"):
            if act:
                answer_in(page, act)
            found = page.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            grave = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
            said = [(v["id"], [n["html"][:90] for n in v["nodes"]][:3]) for v in grave]
            must(not grave, f"axe, {scheme}, {act}: {said}")
            passes += 1
        passes += sum(check_axe_on(page, source, place) for place in FINDINGS)
    return passes


FINDINGS = ("findings/index.html", "findings/nvml-mismatch.html", "findings/torch-cpu-build.html")


def check_axe_on(page: Chromium, source: str, place: str) -> bool:
    page.page.goto(f"{page.address}{place}")
    page.page.evaluate(source)
    found = page.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    grave = [v["id"] for v in found["violations"] if v["impact"] in ("serious", "critical")]
    must(not grave, f"axe, {place}: {grave}")
    return True


UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"


def answer_in(page: Chromium, tab: str) -> None:
    """One answer in a tab, everything unfolded."""
    page.page.click(f"#tab-{tab}")
    if tab == "report":
        page.page.click("#report-example")
        page.page.click("#report-form button.main")
    elif tab == "describe":
        page.page.fill("#d-gpu", "RTX 4090")
        page.page.fill("#d-driver", "550.54.14")
        page.page.click("#describe-form button.main")
    else:
        page.page.fill("#finding-filter", "kernel")
        page.page.click("#finding-list button")
    page.page.wait_for_selector(f"#{tab}-answer h2")
    page.page.evaluate(UNFOLD)


def take_shots(address: str, folder: Path) -> None:
    """Each tab answered, and two pages of findings: light and dark, narrow and wide."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for width in (420, 1200):
            size = {"width": width, "height": 900}
            with chromium(address, viewport=size, color_scheme=scheme) as page:
                page.open()
                for tab in ("report", "describe", "finding"):
                    answer_in(page, tab)
                    page.page.evaluate(UNFOLD.replace("true", str(tab == "describe").lower()))
                    shoot(page, folder / f"{tab}-{scheme}-{width}.png", width)
                for place in FINDINGS:
                    page.page.goto(f"{page.address}{place}")
                    shoot(page, folder / f"{Path(place).stem}-{scheme}-{width}.png", width)


def shoot(page: Chromium, file: Path, width: int) -> None:
    wide = page.page.evaluate("document.documentElement.scrollWidth")
    must(wide <= width, f"{file.stem} at {width} px is {wide} px wide")
    page.page.screenshot(path=file, full_page=True)


# --- Firefox --------------------------------------------------------------------------------------

READ = """async (text) => {
  const answer = document.querySelector("#report-answer");
  answer.replaceChildren();
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], "report.txt"));
  const field = document.querySelector("#report-file");
  field.files = files.files;
  field.dispatchEvent(new Event("change"));
  while (!document.querySelector("#report-json")) await new Promise((go) => setTimeout(go, 5));
  const said = (kind) => document.querySelector(`#report-${kind}`).textContent;
  return JSON.stringify([said("json"), said("printed"), Number(answer.dataset.milliseconds)]);
}"""
READY = """async () => {
  const failed = /(This page failed|Python did not start)[^\\n]*/;
  while (!document.body.dataset.ready) {
    const said = failed.exec(document.body.innerText);
    if (said) return said[0];
    await new Promise((go) => setTimeout(go, 20));
  }
  return document.body.dataset.ready;
}"""


class InFirefox:
    """The part of `Chromium` that reads reports."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> float:
        self.driver.open(address)
        said = str(self.driver.run(READY))
        must(re.fullmatch(r"[\d.]+", said) is not None, f"Firefox: {said}")
        return float(said)

    def read(self, raw: bytes) -> tuple[str, str, float]:
        import base64

        document, text, spent = json.loads(self.driver.run(READ, base64.b64encode(raw).decode()))
        return document, text, spent


def check_firefox(server: PageServer, rows: Sequence[tuple[str, bytes]], starts: int) -> str:
    from page_firefox import firefox

    program = shutil.which("firefox") or shutil.which("firefox-esr")
    must(program is not None, "no Firefox is on PATH")
    assert program is not None
    with firefox(program) as driver:
        page = InFirefox(driver)
        began = page.open(server.address)
        times = check_reports(page, rows)
        foreign = [r for r in driver.requests if not r.startswith((server.address, *ALLOWED))]
        must(not foreign, f"Firefox's page asked elsewhere: {foreign}")
        check_refused(driver.run)
        driver.run("async () => { await navigator.serviceWorker.ready; }")
        server.stop()
        took = [start_offline(page, server.address, rows[:1]) for _ in range(starts)]
    return (
        f"Firefox: {len(rows)} reports alike, {said_times(began, times)}\n"
        f"{starts} of {starts} starts without a network answer, "
        f"in {min(took) / 1000:.1f} to {max(took) / 1000:.1f} s"
    )


def start_offline(page: InFirefox, address: str, rows: Sequence[tuple[str, bytes]]) -> float:
    """Milliseconds of a start with the server gone; it answers as the command line does."""
    began = page.open(address)
    check_reports(page, rows)
    return began


# --- the whole ------------------------------------------------------------------------------------


def said_times(began: float, times: Sequence[float]) -> str:
    """Start, first and median answer in words; an answer is the JSON and the text."""
    return (
        f"start {began / 1000:.1f} s, first answer {times[0]:.0f} ms, "
        f"median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms"
    )


def check_chromium(
    server: PageServer, rows: Sequence[tuple[str, bytes]], cache: Path
) -> Iterator[str]:
    with chromium(server.address) as page:
        began = page.open()
        times = check_reports(page, rows)
        yield f"Chromium: {len(rows)} reports alike (JSON and text), {said_times(began, times)}"
        document, _, _ = page.paste(rows[0][1].decode("utf-8", "replace"))
        must(document == page.read(rows[0][1])[0], "pasted is another answer than the file")
        yield f"{check_described(page)} described machines alike"
        check_nothing_leaves(page, server)
        yield f"{len(page.requests)} requests, none to elsewhere"
        check_offline(page, rows)
        yield "answers without a network"
        check_link(page, rows[0][1])
        yield "a link gives the same findings"
        check_markdown(page, rows[0][1])
        yield "the same Markdown"
        check_keyboard(page)
        yield "keyboard alone"
        yield f"axe-core: nothing serious in {check_axe(page, cache)} states"
        must(not page.faults, f"the page failed: {page.faults}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, metavar="DIR", help="a built page; else one is built")
    parser.add_argument("--reports", nargs="+", default=[], metavar="DIR")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--firefox", action="store_true")
    parser.add_argument(
        "--starts", type=int, default=STARTS, help="without a network, in Firefox (%(default)s)"
    )
    parser.add_argument("--shots", type=Path, metavar="DIR")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")
    options = parser.parse_args()
    os.environ["GPUSETUP_CACHE"] = tempfile.mkdtemp()  # nothing was asked before
    rows = list(texts(options.reports, short=options.short))
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = options.page or build(Path(made) / "page", options.cache.resolve())
            with PageServer(folder) as server:
                if options.shots:
                    take_shots(server.address, options.shots)
                elif options.firefox:
                    print(check_firefox(server, rows, options.starts))
                else:
                    for line in check_chromium(server, rows, options.cache.resolve()):
                        print(line, flush=True)
    except (Differs, NotBuilt) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
