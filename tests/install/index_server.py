"""A package index of our own on loopback: a folder tree served as PEP 503, with faults on order.

    whl/cpu/torch/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
    simple/filelock/filelock-3.20.0-py3-none-any.whl

`/whl/<backend>/` stands for the torch index, `/simple/` for the user's default index. What was
asked is kept in `asked`; `faults` makes chosen paths answer wrongly.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import html
import json
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

JSON_PAGE = "application/vnd.pypi.simple.v1+json"


@dataclass(kw_only=True)
class Fault:
    """What a path answers instead of the truth."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stall_seconds: float = 0.0
    """How long it says nothing."""
    cut_at: int | None = None
    """The connection ends after so many bytes of the body."""
    drip_seconds: float = 0.0
    """How long it rests after every 64 KiB of the body."""


class IndexServer:
    """The index; `url` is its root, `index_root` stands for https://download.pytorch.org/whl."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults: dict[str, Fault] = {}
        """Path pattern (`/whl/cu124/torch/`, `*.whl`) -> what goes wrong there."""
        self.asked: list[str] = []
        """`GET /path` in the order in which it was asked."""
        self.port = 0
        self.uploaded: dict[str, str] = {}
        """File name -> when it was uploaded (PEP 700): `2026-11-02T10:13:18Z`."""
        self.login: tuple[str, str] | None = None
        """Who may ask; None: everybody."""
        self.locked = "*"
        """The paths for which that counts."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def index_root(self) -> str:
        return f"{self.url}/whl"

    @property
    def simple(self) -> str:
        return f"{self.url}/simple"

    def add(self, shelf: str, wheel: Path) -> None:
        """Put a wheel on a shelf (`whl/cpu`, `simple`), by a link."""
        folder = self.root / shelf / _project(wheel.name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / wheel.name).symlink_to(wheel)

    def asked_for(self, pattern: str) -> int:
        return sum(fnmatch.fnmatch(line, pattern) for line in self.asked)


@contextmanager
def index_server(root: Path) -> Iterator[IndexServer]:
    """Serve a folder tree until the block ends."""
    index = IndexServer(root)
    server = _Quiet(("127.0.0.1", 0), _handler(index))
    server.daemon_threads = True
    server.block_on_close = False
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(ThreadingHTTPServer):
    """A server that says nothing of clients that hang up."""

    def handle_error(self, *_: object) -> None:
        kind = sys.exc_info()[0]
        if kind is None or not issubclass(kind, ConnectionError):
            raise


def _handler(index: IndexServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            index.asked.append(f"{self.command} {path}")
            faults = (one for at, one in index.faults.items() if fnmatch.fnmatch(path, at))
            fault = next(faults, Fault())
            if _shut(index, path, self.headers.get("Authorization", "")):
                fault = Fault(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            try:
                self._answer(path, fault)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _answer(self, path: str, fault: Fault) -> None:
            time.sleep(fault.stall_seconds)
            status, kind, body = _found(index, path, self.headers.get("Accept", ""))
            headers = dict(fault.headers)
            if fault.status is not None:
                status, body = fault.status, fault.body or f"{fault.status}".encode()
            elif fault.body is not None:
                kind, body = "text/html", fault.body
            headers.setdefault("ETag", f'"{hashlib.sha256(path.encode()).hexdigest()[:16]}"')
            if path.endswith(".whl"):
                headers.setdefault("Cache-Control", "max-age=365000000, immutable")
            self._send(status, kind, body, headers, fault)

        def _send(
            self, status: int, kind: str, body: bytes, headers: Mapping[str, str], fault: Fault
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            piece = 1 << 16 if fault.drip_seconds else len(body) or 1
            for start in range(0, len(body), piece):
                self.wfile.write(body[start : start + piece][: fault.cut_at])
                self.wfile.flush()
                time.sleep(fault.drip_seconds)
            self.close_connection = fault.cut_at is not None

    return Handler


def _shut(index: IndexServer, path: str, authorization: str) -> bool:
    if index.login is None or not fnmatch.fnmatch(path, index.locked):
        return False
    asked = base64.b64encode(":".join(index.login).encode()).decode()
    return authorization != f"Basic {asked}"


def _found(index: IndexServer, path: str, accept: str) -> tuple[int, str, bytes]:
    here = index.root / path.strip("/")
    if path.endswith(".whl.metadata") and here.with_suffix("").is_file():
        return 200, "text/plain", wheel_metadata(here.with_suffix(""))
    if here.is_file():
        return 200, "application/octet-stream", here.read_bytes()
    if not here.is_dir():
        return 404, "text/plain", b"not here"
    wheels = sorted(p for p in here.iterdir() if p.name.endswith((".whl", ".tar.gz", ".json")))
    if not wheels and any(here.iterdir()):
        links = "".join(f'<a href="{p.name}/">{p.name}</a>\n' for p in sorted(here.iterdir()))
        return 200, "text/html", links.encode()
    # PyTorch's index has no JSON pages, so it states no sizes.
    if JSON_PAGE in accept and not path.startswith("/whl/"):
        return 200, JSON_PAGE, json.dumps(_json_page(index, here.name, wheels)).encode()
    return 200, "text/html", _html_page(wheels).encode()


def _html_page(wheels: Sequence[Path]) -> str:
    links = (
        f'<a href="{quote(wheel.name)}#sha256={sha256_of(wheel)}" data-dist-info-metadata="true">'
        f"{html.escape(wheel.name)}</a><br/>\n"
        for wheel in wheels
    )
    return f"<!DOCTYPE html><html><body>\n{''.join(links)}</body></html>\n"


def _json_page(index: IndexServer, name: str, wheels: Sequence[Path]) -> dict[str, object]:
    files = [
        {
            "filename": wheel.name,
            "url": quote(wheel.name),
            "hashes": {"sha256": sha256_of(wheel)},
            "size": wheel.stat().st_size,
            "core-metadata": True,
            **({"upload-time": at} if (at := index.uploaded.get(wheel.name)) else {}),
        }
        for wheel in wheels
    ]
    versions = sorted({wheel.name.split("-")[1] for wheel in wheels})
    return {"meta": {"api-version": "1.1"}, "name": name, "files": files, "versions": versions}


def _project(filename: str) -> str:
    return filename.split("-")[0].replace("_", "-").lower()


def sha256_of(path: Path) -> str:
    return _hash_of(path, path.stat().st_mtime_ns)


@cache
def _hash_of(path: Path, modified: int) -> str:
    """A page names its wheels' hashes each time it is asked for, as an index's page does."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel_metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name)


def build_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """Write a small, correct wheel; `scripts` are console entry points (name -> `module:call`)."""
    flat = name.replace("-", "_")
    info = f"{flat}-{version}.dist-info"
    content: dict[str, bytes] = {
        path: text.encode() if isinstance(text, str) else text
        for path, text in (files or {f"{flat}/__init__.py": f'__version__ = "{version}"\n'}).items()
    }
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in requires]
    content[f"{info}/METADATA"] = ("\n".join(lines) + "\n").encode()
    parts = (part.split(".") for part in tag.split("-"))
    pure = "true" if tag.endswith("-any") else "false"
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\n"
        + "".join(f"Tag: {'-'.join(one)}\n" for one in product(*parts))
    ).encode()
    if scripts:
        points = "".join(f"{call} = {where}\n" for call, where in scripts.items())
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{points}".encode()
    rows = [f"{path},sha256={_record_hash(raw)},{len(raw)}" for path, raw in content.items()]
    content[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{flat}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, raw in content.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), raw)
    return wheel


def _record_hash(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
