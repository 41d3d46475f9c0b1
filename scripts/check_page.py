#!/usr/bin/env python3
"""Try the built page in a real browser: are its answers the command line's, does anything leave?

python scripts/check_page.py [DIR]      a built page, or one that is built

Chromium is the system's; `pip install playwright` drives it (no browser is fetched).
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("", "tests", "tests/report", "scripts", "web")]

from build_page import NotBuilt, build, default_cache  # noqa: E402

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
REPORTS = 5
ALLOWED = ("data:", "blob:", "about:")


class Differs(Exception):
    """Something that the page must not do, or must."""


def must(is_so: bool, what: str) -> None:
    if not is_so:
        raise Differs(what)


class Handler(http.server.SimpleHTTPRequestHandler):
    """A plain file server: what works without a network works by the service worker alone."""

    asked: list[str] = []

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        self.asked.append(f"{self.command} {self.path}")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def texts() -> list[bytes]:
    """Some reports: messages with which the records prove their causes."""
    from gpusetup.causes.table import CAUSES

    rows = [row.example for cause in CAUSES for row in cause.rows if row.example]
    return [text.encode() for text in rows[:: len(rows) // REPORTS]]


def command_line(*words: str) -> str:
    """What the command prints."""
    from gpusetup.cli import main

    out = io.StringIO(newline="")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(words)
    return out.getvalue()


class Chromium:
    """The page in a Chromium, with every request that it makes."""

    def __init__(self, context: Any, address: str) -> None:
        self.address, self.context = address, context
        self.requests: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda problem: self.faults.append(str(problem)))

    def open(self, fragment: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{fragment}")
        self.page.wait_for_selector("body[data-ready]", timeout=120_000)

    def read(self, raw: bytes) -> tuple[str, str]:
        """A file's answer: the JSON and the text."""
        file = {"name": "report.txt", "mimeType": "text/plain", "buffer": raw}
        self.page.evaluate("document.querySelector('#report-answer').replaceChildren()")
        self.page.set_input_files("#report-file", file)
        self.page.wait_for_selector("#report-answer h2", timeout=120_000)
        shown = (self.page.query_selector(f"#report-{kind}") for kind in ("json", "printed"))
        document, text = (one.text_content() if one else "" for one in shown)
        return document, text


@contextlib.contextmanager
def chromium(address: str) -> Iterator[Chromium]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    must(program is not None, "no Chromium is on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Chromium(browser.new_context(), address)
        finally:
            browser.close()


def check_reports(page: Chromium, reports: Sequence[bytes]) -> None:
    """Every report's JSON and text are the command line's."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.txt"
        for raw in reports:
            file.write_bytes(raw)
            words = ("doctor", "--report", str(file))
            same = page.read(raw) == (command_line(*words, "--json"), command_line(*words))
            must(same, f"another answer than the command line's: {raw[:80]!r}")


def check_nothing_leaves(page: Chromium) -> None:
    """Every request goes to the page's own files, by GET; a server elsewhere is never asked."""
    foreign = [r for r in page.requests if not r.startswith((page.address, *ALLOWED))]
    must(not foreign, f"requests left: {foreign}")
    sent = [line for line in Handler.asked if not line.startswith("GET ") or "?" in line]
    must(not sent, f"something was sent to the server: {sent}")
    must(len(page.page.workers) > 0, "there is no worker")
    with served(ROOT / "web") as other:
        asked = f"fetch('{other}', {{mode: 'no-cors'}})"
        for place in (page.page, *page.page.workers):
            before = len(Handler.asked)
            said = place.evaluate(f"() => {asked}.then(() => 'went', () => 'refused')")
            must(said == "refused", "a request to elsewhere was not refused")
            must(len(Handler.asked) == before, "a request to elsewhere arrived")


def check_offline(page: Chromium, reports: Sequence[bytes]) -> None:
    """After the first visit it answers without a network."""
    page.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.context.set_offline(True)
    try:
        page.open()
        check_reports(page, reports[:1])
    finally:
        page.context.set_offline(False)


def check_link(page: Chromium, raw: bytes) -> None:
    """A link carries the machine: its answer has the same findings."""
    page.open()
    first = json.loads(page.read(raw)[0])
    page.page.click("#copy-link")
    page.page.wait_for_selector("#copy-link:text('Copied')")
    page.open(f"#{page.page.url.partition('#')[2]}")
    page.page.wait_for_selector("#report-answer h2")
    again = json.loads(page.page.text_content("#report-json"))
    ids = [[one["id"] for one in told["findings"]] for told in (first, again)]
    must(ids[0] == ids[1] and first["cause"] == again["cause"], "the link has other findings")


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


def check(page: Chromium) -> Iterator[str]:
    reports = texts()
    page.open()
    check_reports(page, reports)
    yield f"{len(reports)} reports alike (JSON and text)"
    check_nothing_leaves(page)
    yield f"{len(page.requests)} requests, none to elsewhere"
    check_offline(page, reports)
    yield "answers without a network"
    check_link(page, reports[0])
    yield "a link gives the same findings"
    check_keyboard(page)
    yield "keyboard alone"
    must(not page.faults, f"the page failed: {page.faults}")


def main() -> int:
    os.environ["GPUSETUP_CACHE"] = tempfile.mkdtemp()  # nothing was asked before
    cache = default_cache().resolve()
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(sys.argv[1]) if sys.argv[1:] else build(Path(made) / "page", cache)
            with served(folder) as address, chromium(address) as page:
                for line in check(page):
                    print(line, flush=True)
    except (Differs, NotBuilt) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
