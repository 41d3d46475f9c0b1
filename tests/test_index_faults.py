"""A table of what an index may send, or not send: each is one line, exit 3, nothing changed, no
hang. What is odd but says enough is installed all the same."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from index_server import JSON_PAGE, Fault, sha256_of
from installing import (
    TORCH,
    Said,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    state_of,
    versions_in,
)

from gpusetup.install.fetching import limits, web
from gpusetup.install.settings import environment as asking
from gpusetup.model.frozen import replace

pytestmark = needs_linux

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
PAGE, WHEEL, DATA = "/whl/cpu/torch/", "/whl/cpu/torch/*.whl", "/whl/cpu/torch/*.metadata"
REST, REST_WHEEL = "/simple/filelock/", "/simple/filelock/*.whl"
LONGEST_SECONDS = 30.0
"""For a whole run with the short limits below, on a busy machine; without any, many take hours."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        new_world(tmp_path_factory.mktemp("faults")) as world,
        pytest.MonkeyPatch.context() as set_,
    ):
        enter(world, set_)
        set_.setattr(limits, "LIMITS", (1.0, 0.6))
        set_.setattr(web, "ANSWER_SECONDS", 2.0)
        set_.setattr(web, "PAUSES", (0.01, 0.02))
        set_.setattr(web, "PAGE", replace(web.PAGE, window_seconds=0.7, total_seconds=2.0))
        set_.setattr(web, "FILE", replace(web.FILE, window_seconds=0.7, total_seconds=2.0))
        short = {"UV_HTTP_TIMEOUT": "1", "UV_HTTP_RETRIES": "0", "PIP_TIMEOUT": "1"}
        set_.setattr(asking, "LIMITS", {**asking.LIMITS, **short})
        set_.setattr(asking, "ASK_SECONDS", 8.0, raising=False)
        world.add_default("filelock", "3.20.0")
        world.add_default("typing-extensions", "4.15.0")
        world.add_torch("cpu")
        world.fill(world.venv(), world.wheel("torch", "2.0.0"), world.wheel("mine", "1.0"))
        yield world


@pytest.fixture
def venv(world: World) -> Path:
    for name in ("cache", "uv-cache"):
        shutil.rmtree(world.folder / name, ignore_errors=True)
    world.index.faults.clear()
    world.index.json = world.index.hashes = world.index.metadata = True
    return world.folder / "env"


def ran(world: World, capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    began = time.monotonic()
    said = installer(world, capsys)(*words, *WANTED)
    assert time.monotonic() - began < LONGEST_SECONDS
    return said


def survived(said: Said, venv: Path, before: dict[str, str], cause: str) -> None:
    assert said.exit == 3, said.err
    assert state_of(venv) == before
    told = said.err.partition("error: ")[2].partition("\n\n")[0]
    assert re.search(cause, told), said.err
    title = "No index has such a wheel:\n"
    assert "\n" not in told.removeprefix(title) and len(told) < 900, told
    assert "hint: " in said.err and "Traceback" not in said.err


# --- what a page is ------------------------------------------------------------------------------


def as_json(body: bytes | str) -> Fault:
    return Fault(body=body.encode() if isinstance(body, str) else body, kind=JSON_PAGE)


NO_PAGE = "no index page"
JSON_BODIES: dict[str, bytes | str] = {
    "a list": "[]",
    "null": "null",
    "nothing in it": "{}",
    "files is a text": '{"files": "torch.whl"}',
    "files are numbers": '{"files": [1, 2]}',
    "files are empty": '{"files": [{}]}',
    "a url that is a number": '{"files": [{"url": 5}]}',
    "nested too deeply": "[" * 200_000,
    "tables too deep": '{"files":' * 100_000,
    "UTF-16": '{"files": []}'.encode("utf-16"),
    "no text at all": bytes(range(256)),
    "HTML that claims to be JSON": "<!doctype html><a href='x-1-py3-none-any.whl'>x</a>",
}
SMALL = "is empty|no index page|has no wheel"
MEGABYTE = 1_500_000
HTML_BODIES: dict[str, bytes] = {
    "starts of links": b"<a " * (MEGABYTE // 3),
    "links that never end": b'<a href="' * (MEGABYTE // 9),
    "comments that never end": b"<!--" * (MEGABYTE // 4),
    "quotes": b"<a " + b"'\"" * (MEGABYTE // 2),
    "attributes": b"<a " + b"x= " * (MEGABYTE // 3) + b">",
    "tags that are none": b"<" * MEGABYTE,
    "entities": b"<a href='" + b"&#9" * (MEGABYTE // 3) + b"'>",
    "one entity": b"<a href='&#" + b"9" * 8000 + b";'>x</a>",
    "log-in page": b"<html><form action=/login>" + b"<p>Log in</p>" * 400,
    "other links": b'<a href="/imprint">Imprint</a><a href="/help">Help</a>',
    "bytes": bytes(range(1, 256)) * 20,
    "a link to nowhere": b'<a href="http://[torch-1.whl">x</a>' + b" " * 3000,
    "a link to a file of this machine": (
        b'<a href="file:///etc/torch-%s+cpu-py3-none-any.whl">x</a>' % TORCH.encode() + b" " * 3000
    ),
}


def packed(name: str, body: bytes = b"<html></html>") -> Fault:
    return Fault(body=body, headers={"Content-Encoding": name})


PACKED = {
    "brotli that is none": (packed("br"), "packed as 'br'"),
    "a hundred times": (packed(", ".join(["gzip"] * 100)), "packed as"),
    "gzip that is none": (packed("gzip"), "not packed as it says"),
    "gzip that breaks off": (packed("gzip", gzip.compress(b"<html>" * 999)[:60]), ".*"),
    "a bomb": (packed("gzip", gzip.compress(b" " * (80 << 20), 9)), "longer than|too slowly|end"),
    "a control code": (packed("\x1b[31mred"), "packed as"),
}
STATUSES = (204, 226, 300, 304, 400, 405, 418, 451, 500, 507, 530, 999)
WAITS = {
    "seconds": ("120", "try again after 120 s"),
    "a far date": ("Fri, 31 Dec 9999 23:59:59 GMT", "after more than a day"),
    "an absurd number": ("9" * 400, "after more than a day"),
    "a digit that is none": ("\xb2", "answers 429"),
    "a control code": ("\x1b[31m5", "answers 429"),
}
PLACES = {
    "a file": "file:///etc/passwd",
    "no address": "http://[",
    "itself": PAGE,
    "a port that is none": "http://127.0.0.1:99999/x",
}


# --- what goes over the wire ---------------------------------------------------------------------


def drip(before: bytes, piece: bytes = b"x", rest: float = 0.2) -> Callable[[], Iterator[bytes]]:
    """`before`, then a piece every little while, longer than any time-out between two."""

    def pieces() -> Iterator[bytes]:
        yield before
        for _ in range(400):
            time.sleep(rest)
            yield piece

    return pieces


def once(*whole: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(whole)


OK = b"HTTP/1.1 200 OK\r\n"
HTML = OK + b"Content-Type: text/html\r\n"
RAW: dict[str, tuple[Callable[[], Iterator[bytes]], str]] = {
    "nothing": (once(b""), "hangs up without an answer"),
    "garbage": (once(b"\x00\x01\x02garbage\r\n\r\n"), "does not speak HTTP|connection failed"),
    "a status line without end": (drip(b"HTTP/1.1 200 O"), "gives no answer within"),
    "a header without end": (drip(HTML + b"X-Slow: "), "gives no answer within"),
    "a long header": (once(HTML, b"X: " + b"x" * 70_000 + b"\r\n\r\n"), "without end|failed"),
    "headers that break off": (once(HTML), "page is empty|breaks|hangs up"),
    "a body that drips": (drip(HTML + b"\r\n<html>"), "too slowly|not end within"),
    "a body that drips with a length": (
        drip(HTML + b"Content-Length: 9000\r\n\r\n"),
        "too slowly|not end within",
    ),
    "chunks that drip": (
        drip(HTML + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        "too slowly|not end within",
    ),
    "a chunk that is none": (
        once(HTML + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx"),
        "breaks again and again",
    ),
    "a chunk larger than all memory": (
        once(HTML + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\nx"),
        "breaks|connection failed",
    ),
    "a body that breaks off": (
        once(HTML + b"Content-Length: 999999\r\n\r\n<html>"),
        "breaks again and again",
    ),
    "two lengths": (
        once(HTML + b"Content-Length: 3\r\nContent-Length: 9\r\n\r\nabc"),
        "breaks|failed|HTML",
    ),
}


def flood() -> Iterator[bytes]:
    """A redirect with a body of any length, to a page that is there no more."""
    yield b"HTTP/1.1 302 Found\r\nLocation: /nothing/here/\r\n\r\n"
    for _ in range(4000):
        yield b"x" * 65536


RAW["a redirect with a flood"] = (flood, "there is no such page")

PAGE_FAULTS: dict[str, tuple[Fault, str]] = {
    **{f"JSON: {name}": (as_json(body), NO_PAGE) for name, body in JSON_BODIES.items()},
    "JSON: no files": (as_json('{"files": []}'), "page is empty"),
    **{f"HTML: {name}": (Fault(body=body), SMALL) for name, body in HTML_BODIES.items()},
    **{f"packed: {name}": row for name, row in PACKED.items()},
    **{
        f"status {status}": (
            Fault(status=status, body=b" "),
            rf"answers {status}\b|is empty|failed",
        )
        for status in STATUSES
    },
    **{
        f"Retry-After: {name}": (Fault(status=429, headers={"Retry-After": text}), cause)
        for name, (text, cause) in WAITS.items()
    },
    **{
        f"leads to {name}": (Fault(status=302, headers={"Location": place}, body=b"there"), ".*")
        for name, place in PLACES.items()
    },
    **{f"wire: {name}": (Fault(raw=raw), cause) for name, (raw, cause) in RAW.items()},
}
WHEEL_RAW = (
    *("nothing", "garbage", "a header without end", "a body that drips"),
    *("a body that drips with a length", "chunks that drip"),
    *("a chunk that is none", "a chunk larger than all memory", "a body that breaks off"),
)
WHEEL_FAULTS: dict[str, tuple[Fault, str]] = {
    **{f"wire: {name}": (Fault(raw=RAW[name][0]), RAW[name][1]) for name in WHEEL_RAW},
    "status 204": (Fault(status=204, body=b" "), "answers 204|connection"),
    "status 304": (Fault(status=304, body=b" "), "answers 304|connection"),
    "status 416": (Fault(status=416), "answers 416"),
    "a part that nobody asked for": (
        Fault(status=206, headers={"Content-Range": "bytes 5-9/10"}),
        "breaks again|connection failed",
    ),
    "a part that is none": (
        Fault(status=206, headers={"Content-Range": "many"}),
        "breaks again|connection failed|wrong hash",
    ),
    "brotli": (packed("br", b"xx"), "packed as 'br'"),
    "gzip that is none": (packed("gzip", b"xx"), "not packed as it says"),
    "gzip of something else": (packed("gzip", gzip.compress(b"xx")), "wrong hash"),
    "another file": (Fault(body=b"PK\x05\x06" + b"\0" * 18), "wrong hash"),
    "an empty file": (Fault(raw=once(OK + b"Content-Length: 0\r\n\r\n")), "wrong hash"),
    "a file of any length": (Fault(body=b"x" * (3 << 20)), "wrong hash"),
    "a log-in page": (Fault(body=b"<!doctype html>log in"), "wrong hash"),
}
REST_FAULTS: dict[str, tuple[str, Fault, str]] = {
    "status 500": (REST, Fault(status=500), "500"),
    "status 503": (REST, Fault(status=503, headers={"Retry-After": "soon"}), "503"),
    "silence": (REST, Fault(stall_seconds=3), "timed out|timeout|[Tt]ime"),
    "wheel: another hash": (REST_WHEEL, Fault(flip=True), "wrong hash|hash|Hash"),
    "wheel: nothing": (REST_WHEEL, Fault(raw=RAW["nothing"][0]), "hangs up|connection|send"),
    "wheel: drips": (REST_WHEEL, Fault(raw=RAW["a body that drips"][0]), "too slowly|[Tt]ime"),
    "HTML: a log-in page": (REST, Fault(body=HTML_BODIES["log-in page"]), ".*"),
}


# --- odd, but it says enough ---------------------------------------------------------------------


def page_of(world: World, **changes: Any) -> Fault:
    """torch's page with other values in its row; a value of None leaves the key out."""
    wheel = next((world.index.root / "whl/cpu/torch").glob("*.whl"))
    row: dict[str, Any] = {
        "filename": wheel.name,
        "url": wheel.name.replace("+", "%2B"),
        "hashes": {"sha256": sha256_of(wheel)},
        "size": wheel.stat().st_size,
    }
    row = {key: value for key, value in {**row, **changes}.items() if value is not None}
    return as_json(json.dumps({"files": [*ODD_ROWS, row]}))


ODD_ROWS: tuple[Any, ...] = (
    *(None, 5, "x", [], {}, {"url": None}, {"url": 5}, {"url": "http://["}, {"url": "x" * 99_999}),
    {"url": "y", "filename": "../../torch-1-py3-none-any.whl"},
    {"url": "javascript:torch-1-py3-none-any.whl", "filename": ["x"]},
    {"url": "torch-1..2-py3-none-any.whl", "hashes": []},
)
FINE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no size": {"size": None},
    "a negative size": {"size": -1},
    "a size of any length": {"size": 10**30},
    "no hashes": {"hashes": None},
    "hashes that are a list": {"hashes": []},
    "hashes of another kind": {"hashes": {"md5": "0" * 32}},
    "no file name": {"filename": None},
    "metadata is a table": {"core-metadata": {"sha256": 5}},
    "a key that nobody knows": {"x": {"y": [1, None]}},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a hash that is a number": ({"hashes": {"sha256": 5}}, "no proper sha256"),
    "a hash that is a path": ({"hashes": {"sha256": "../../x"}}, "no proper sha256"),
    "a hash that is another's": ({"hashes": {"sha256": "0" * 64}}, "wrong hash"),
    "a file name that is a path": (
        {"filename": "../evil-1-py3-none-any.whl"},
        "has no wheel|empty",
    ),
    "yanked": ({"yanked": "broken"}, "has no wheel|page is empty"),
    "a file of this machine": ({"url": "file:///etc/passwd"}, "has no wheel|page is empty"),
    "a server that is none": ({"url": "http://127.0.0.1:9/x.whl"}, "refused"),
}


@pytest.mark.parametrize("changes", FINE.values(), ids=FINE.keys())
@pytest.mark.one_in(16)
def test_what_is_odd_but_says_enough_is_installed(
    world: World, venv: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    world.index.faults[PAGE] = page_of(world, **changes)
    fresh = world.folder / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    said = ran(world, capsys, "--venv", str(fresh))
    assert said.exit == 0, said.err
    assert versions_in(fresh)["torch"] == f"{TORCH}+cpu"


ANSWERS: dict[str, tuple[str, Fault | dict[str, Any], str]] = {
    **{f"page: {name}": (PAGE, *row) for name, row in PAGE_FAULTS.items()},
    **{f"row: {name}": (PAGE, *row) for name, row in REFUSED.items()},
    **{f"wheel: {name}": (WHEEL, *row) for name, row in WHEEL_FAULTS.items()},
    **{f"the user's own index: {name}": row for name, row in REST_FAULTS.items()},
}


@pytest.mark.parametrize(("pattern", "sent", "cause"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.one_in(16)
def test_what_cannot_be_taken(
    world: World,
    venv: Path,
    capsys: pytest.CaptureFixture[str],
    pattern: str,
    sent: Fault | dict[str, Any],
    cause: str,
) -> None:
    before = state_of(venv)
    world.index.faults[pattern] = page_of(world, **sent) if isinstance(sent, dict) else sent
    survived(ran(world, capsys, "--python", str(venv)), venv, before, cause)


METADATA: dict[str, bytes] = {
    "a web page": b"<!doctype html><p>Log in</p>",
    "bytes": bytes(range(256)) * 9,
    "another name": b"Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
    "a requirement that is none": (
        b"Metadata-Version: 2.1\nName: torch\nVersion: %s+cpu\nRequires-Dist: ???\n"
        % TORCH.encode()
    ),
    "a version of metadata that nobody knows": (
        b"Metadata-Version: 99.9\nName: torch\nVersion: %s+cpu\n" % TORCH.encode()
    ),
    "no end": b"Metadata-Version: 2.1\nName: torch\n" + b"Requires-Dist: filelock\n" * 300_000,
}


@pytest.mark.parametrize("body", METADATA.values(), ids=METADATA.keys())
@pytest.mark.one_in(16)
def test_metadata_that_is_broken(
    world: World, venv: Path, capsys: pytest.CaptureFixture[str], body: bytes
) -> None:
    """It may be had from the wheel itself; else it is one line, exit 3."""
    world.index.faults[DATA] = Fault(body=body)
    before = state_of(venv)
    said = ran(world, capsys, "--python", str(venv), "--dry-run")
    if said.exit != 0:
        survived(said, venv, before, ".*")
    assert state_of(venv) == before
