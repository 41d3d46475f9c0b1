"""Finds the releases of a project that an index lists, including those without a wheel.

uv is not allowed to build, so it does not see releases that only exist as source code. The index's
own page lists them (https://packaging.python.org/specifications/simple-repository-api/).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from gpusetup.errors import Unreached
from gpusetup.model.frozen import Frozen
from gpusetup.uv.hosts import AllowedHosts, host_of
from gpusetup.uv.indexes import Index
from gpusetup.uv.pages import answered

if TYPE_CHECKING:
    from gpusetup.uv.settings import PersonSettings

TIMEOUTS = (5.0, 6.0)
"""Timeouts in seconds, for connecting and between two parts of the page, as for uv."""
WHOLE_SECONDS = 20.0
"""The time limit in seconds for the whole page, in case a server sends it very slowly."""
MOST_BYTES = 32 << 20
"""The maximum size of a page; those of the largest projects have a few megabytes."""
MOST_FILES = 100_000
PAGES = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
LINK = re.compile(r"<a\b([^<>]{0,4000})>([^<>]{1,500})</a>", re.IGNORECASE)
REQUIRES = re.compile(r"""data-requires-python\s*=\s*["']([^"']{0,200})["']""", re.IGNORECASE)


class Release(Frozen):
    """A release of a project on an index. Pre-releases and withdrawn releases are left out."""

    version: str
    has_wheel: bool
    """Whether the release has any wheel, even if it is for another machine."""
    published: datetime | None = None
    """When the release's first file was uploaded; None if the index does not say."""


def newest_release(name: str, settings: PersonSettings, python_version: str) -> Release | None:
    """A project's newest release for a Python version, from the first index that lists the project;
    None if there is none or no index can be read.

    A failure is not an error here, because the release is only used for comparison.
    """
    if settings.single("offline") or settings.single("no-index"):
        return None
    for index in settings.indexes:
        files = list(files_listed(name, index))
        if files:
            return _newest(files, python_version)
    return None


COMMON_PROJECT = "pip"
"""A project that every full copy of the default index has."""


@cache
def file_hosts_of(index_url: str) -> tuple[str, ...]:
    """The hosts where uv's default index keeps its files, according to its page for one project;
    empty if they are on its own host.

    Only uv's default index may name additional hosts itself, because its URL is built into uv and
    does not come from a setting. The page is only used over https, so that nobody can change it on
    the way.
    """
    if not index_url.startswith("https://"):
        return ()
    index = Index(url=index_url, source="")
    own_host = host_of(index_url)
    names: dict[str, None] = {}
    for file in files_listed(COMMON_PROJECT, index):
        url = str(file.get("url", ""))
        host = host_of(url)
        is_elsewhere = host is not None and host != own_host
        if is_elsewhere and url.startswith("https://"):
            names[str(host)] = None
    return tuple(names)


def files_listed(name: str, index: Index) -> Iterator[Mapping[str, Any]]:
    """Yields the files of a project that an index lists, as its JSON page describes them."""
    # Skip an index with one flat page for all projects, and an index whose password is in a
    # keyring, which only uv reads.
    is_flat = index.options.get("format") == "flat"
    keyring_has_password = index.login is not None and not index.login[1]
    if not index.url.startswith("http") or is_flat or keyring_has_password:
        return
    kind, text = read_page(f"{index.url.rstrip('/')}/{canonicalize_name(name)}/", index)
    if "json" in kind:
        yield from _files_of_json(text)
    else:
        yield from _files_of_html(text)


def read_page(url: str, index: Index) -> tuple[str, str]:
    """The media type and the text of a page; both are "" if it cannot be read within the limits of
    size and time."""
    import requests
    from urllib3.exceptions import HTTPError

    deadline = time.monotonic() + WHOLE_SECONDS
    allowed = AllowedHosts((index.url,))
    accepted = {"Accept": PAGES}
    try:
        with answered(
            url, allowed, login=index.login, headers=accepted, timeouts=TIMEOUTS
        ) as answer:
            if answer.status_code != 200:
                return "", ""
            parts: list[bytes] = []
            size_bytes = 0
            for part in answer.iter_content(1 << 16):
                parts.append(part)
                size_bytes += len(part)
                if size_bytes > MOST_BYTES or time.monotonic() > deadline:
                    return "", ""
            kind = answer.headers.get("Content-Type", "")
            return kind.lower(), b"".join(parts).decode("utf-8", "replace")
    except (requests.RequestException, HTTPError, OSError, ValueError, Unreached):
        # Ignore the error, because uv itself reports an index that does not work.
        return "", ""


def _files_of_json(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        page = json.loads(text)
    except (ValueError, RecursionError):
        return
    # The content may be valid JSON but have an unexpected structure.
    files = page.get("files") if isinstance(page, dict) else None
    for file in files[:MOST_FILES] if isinstance(files, list) else ():
        if isinstance(file, dict):
            yield file


def _files_of_html(text: str) -> Iterator[Mapping[str, Any]]:
    """
    >>> list(_files_of_html('<a href="/a-1.tar.gz" data-requires-python="&gt;=3.9">a-1.tar.gz</a>'))
    [{'filename': 'a-1.tar.gz', 'requires-python': '>=3.9', 'yanked': False}]
    """
    for number, link in enumerate(LINK.finditer(text)):
        # A page that never ends must not keep this loop running.
        if number == MOST_FILES:
            return
        requires = REQUIRES.search(link[1])
        yield {
            "filename": unquote(unescape(link[2])).strip(),
            "requires-python": unescape(requires[1]) if requires else None,
            "yanked": "data-yanked" in link[1].lower(),
        }


def _newest(files: list[Mapping[str, Any]], python_version: str) -> Release | None:
    """The newest release among these files that supports the Python version; None if there is
    none."""
    by_version: dict[Version, list[Mapping[str, Any]]] = {}
    for file in files:
        version = _version_of(file)
        if version is None or version.is_prerelease or file.get("yanked"):
            continue
        if _runs_on(file.get("requires-python"), python_version):
            by_version.setdefault(version, []).append(file)
    if not by_version:
        return None
    # The newest release is the one with the highest version, not the latest date: an older branch
    # may get a later patch.
    version = max(by_version)
    files = by_version[version]
    times = [when for file in files if (when := _time_of(file)) is not None]
    return Release(
        version=str(version),
        has_wheel=any(str(file.get("filename")).endswith(".whl") for file in files),
        published=min(times, default=None),
    )


def _version_of(file: Mapping[str, Any]) -> Version | None:
    """The version in the name of a wheel or source file; None if it has none."""
    name = file.get("filename")
    if not isinstance(name, str):
        return None
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[1]
        return parse_sdist_filename(urlsplit(name).path)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, ValueError):
        return None


def _runs_on(requires_python: Any, python_version: str) -> bool:
    """Whether a file's `requires-python` allows the Python version; an unreadable requirement
    allows every version."""
    if not isinstance(requires_python, str) or not requires_python:
        return True
    try:
        return SpecifierSet(requires_python).contains(python_version, prereleases=True)
    except InvalidSpecifier:
        return True


def _time_of(file: Mapping[str, Any]) -> datetime | None:
    """The time at which a file was uploaded (PEP 700); None if the index does not say."""
    when = file.get("upload-time")
    if not isinstance(when, str):
        return None
    try:
        return datetime.fromisoformat(when.replace("Z", "+00:00"))
    except ValueError:
        return None
