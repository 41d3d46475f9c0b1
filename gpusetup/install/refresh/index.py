"""Asks a live index for one page, with a cache that the index itself keeps fresh (ETag).

`ask_index` tells apart what an index says (such a page, no such page, an empty one) from what
keeps it from saying anything: a time-out, 429, 5xx, TLS, something that is no index page. The
latter is `Blocked`, with URL and cause; how soon, `web.py` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from pathlib import Path

from gpusetup.catalog.builds import index_url
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.causes import cause_of
from gpusetup.install.fetching.page import ACCEPT, parse_page
from gpusetup.install.fetching.web import MISSING, Web, page_text
from gpusetup.install.fetching.wheel_cache import blocked
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import read_json_object
from gpusetup.model.frozen import Frozen

NOT_MODIFIED = 304
KEPT_BYTES = 64 << 20


class IndexPage(Frozen):
    """What an index says about one project."""

    url: str
    files: tuple[Wheel, ...] = ()
    missing: str | None = None
    """Why there are no files: `answers 404`, `lists no wheels`; None where there are some."""


class _Kept(Frozen):
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
    kept = _read(folder, url)
    page = _answer(url, kept)
    if isinstance(page, int):
        return IndexPage(url=url, missing=f"{without_credentials(url)} answers {page}")
    try:
        files = parse_page(url, page.media_type, page.text)
    except ValueError as problem:
        if page is kept:
            _file(folder, url).unlink(missing_ok=True)
            return ask_page(url, cache=cache)
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

    headers = {"Accept": ACCEPT} | ({"If-None-Match": kept.etag} if kept else {})
    answer = Web().answer(url, headers, also=(NOT_MODIFIED,) if kept else ())
    try:
        if answer.status_code == NOT_MODIFIED and kept:
            return kept
        if answer.status_code in MISSING:
            return answer.status_code
        return _Kept(
            etag=answer.headers.get("ETag", ""),
            media_type=answer.headers.get("Content-Type", ""),
            text=page_text(url, answer),
        )
    except requests.RequestException as problem:
        raise blocked(url, cause_of(problem)) from problem
    finally:
        answer.close()


# --- the cache ----------------------------------------------------------------------------------


def _file(cache: Path, url: str) -> Path:
    return cache / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"


def _read(cache: Path, url: str) -> _Kept | None:
    """What was kept for a URL; None where there is nothing usable: somebody may have written it."""
    found = read_json_object(_file(cache, url), KEPT_BYTES) or {}
    etag, media_type, text = (str(found.get(key, "")) for key in ("etag", "media_type", "text"))
    return _Kept(etag=etag, media_type=media_type, text=text) if ETAG.fullmatch(etag) else None


ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,256}"')
"""What a server marks a version by, and what may be sent back to it."""


def _keep(cache: Path, url: str, page: _Kept) -> None:
    """Keep a page that has an ETag; a cache that cannot be written is no error."""
    if not ETAG.fullmatch(page.etag):
        return
    text = json.dumps({"etag": page.etag, "media_type": page.media_type, "text": page.text})
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        path = _file(cache, url)
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
