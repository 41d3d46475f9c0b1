"""Asks a live index for one page, with a cache that the index itself keeps fresh (ETag).

`ask_index` tells apart what an index says (such a page, no such page, an empty one) from what
keeps it from saying anything: a time-out, 429, 5xx, TLS, something that is no index page. The
latter is `Blocked`, with URL and cause, within 15 seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.catalog import index_url
from gpusetup.install.fetch import LIMITS, MISSING, cause_of
from gpusetup.install.house import blocked
from gpusetup.install.page import ACCEPT, parse_page
from gpusetup.install.wheels import Wheel, without_credentials
from gpusetup.value import Value

if TYPE_CHECKING:
    import requests

BODY_SECONDS = 8.0
"""How long a page may take after its headers, a slow trickle included."""
LIMIT_BYTES = 64 << 20
NOT_MODIFIED = 304


class IndexPage(Value):
    """What an index says about one project."""

    url: str
    files: tuple[Wheel, ...] = ()
    missing: str | None = None
    """Why there are no files: `answers 404`, `lists no wheels`; None where there are some."""


class _Kept(Value):
    """A page as it came, and as the cache holds it; `etag` "" is never kept."""

    etag: str
    media_type: str
    text: str


def ask_index(root: str, backend: str, project: str, *, cache: Path | None = None) -> IndexPage:
    """The wheels that an index lists for a project. `cache` None: the user's cache folder.

    Raises Blocked where the index could not be asked or answered no index page.
    """
    return ask_page(f"{index_url(backend, root)}/{project}/", cache=cache)


def ask_page(url: str, *, cache: Path | None = None) -> IndexPage:
    """The wheels of one page, as `ask_index`."""
    folder = cache or cache_folder()
    page = _answer(url, _read(folder, url))
    if isinstance(page, int):
        return IndexPage(url=url, missing=f"{without_credentials(url)} answers {page}")
    try:
        files = parse_page(url, page.media_type, page.text)
    except ValueError as problem:
        raise blocked(url, f"what came is no index page: {problem}") from problem
    _keep(folder, url, page)
    if not files:
        return IndexPage(url=url, missing=f"{without_credentials(url)} lists no wheels")
    return IndexPage(url=url, files=files)


def cache_folder() -> Path:
    """Where pages are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpusetup", appauthor=False)) / "index"


def _answer(url: str, kept: _Kept | None) -> _Kept | int:
    """The page, or the status where the index says that there is none."""
    import requests

    headers = {"Accept": ACCEPT, "User-Agent": "gpusetup"}
    if kept:
        headers["If-None-Match"] = kept.etag
    try:
        with requests.get(url, headers=headers, timeout=LIMITS, stream=True) as answer:
            if answer.status_code == NOT_MODIFIED and kept:
                return kept
            if answer.status_code in MISSING:
                return answer.status_code
            if not answer.ok or answer.status_code == NOT_MODIFIED:
                raise blocked(url, _status(answer))
            return _Kept(
                etag=answer.headers.get("ETag", ""),
                media_type=answer.headers.get("Content-Type", ""),
                text=_body(url, answer),
            )
    except requests.RequestException as problem:
        raise blocked(url, cause_of(problem)) from problem


def _body(url: str, answer: requests.Response) -> str:
    """The text, within the limits of time and size."""
    until = time.monotonic() + BODY_SECONDS
    found = bytearray()
    for chunk in answer.iter_content(1 << 16):
        found += chunk
        if time.monotonic() > until:
            raise blocked(url, f"does not end within {BODY_SECONDS:g} s")
        if len(found) > LIMIT_BYTES:
            raise blocked(url, f"is longer than {LIMIT_BYTES >> 20} MiB")
    return found.decode(answer.encoding or "utf-8", "replace")


# --- the cache ----------------------------------------------------------------------------------


def _file(cache: Path, url: str) -> Path:
    return cache / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


def _read(cache: Path, url: str) -> _Kept | None:
    """What was kept for a URL; None where there is nothing usable."""
    try:
        found: dict[str, Any] = json.loads(_file(cache, url).read_text(encoding="utf-8"))
        return _Kept(etag=found["etag"], media_type=found["media_type"], text=found["text"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(cache: Path, url: str, page: _Kept) -> None:
    """Keep a page that has an ETag; a cache that cannot be written is no error."""
    if not page.etag:
        return
    text = json.dumps({"etag": page.etag, "media_type": page.media_type, "text": page.text})
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        path = _file(cache, url)
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def _status(answer: requests.Response) -> str:
    wait = answer.headers.get("Retry-After")
    return f"answers {answer.status_code} {answer.reason}{f', try after {wait} s' if wait else ''}"
