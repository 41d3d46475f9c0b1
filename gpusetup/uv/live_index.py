"""Asks torch's own index for builds that are not in the catalog (`resolve --refresh`).

The page may come from an untrusted server. So it is read within limits of size and time, and only
links whose file names are those of torch wheels are used. No URL from the page appears in a result
or a command.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from gpusetup.catalog.builds import INDEX_ROOT, Catalog
from gpusetup.catalog.index_builds import Place, new_builds, with_other_makers
from gpusetup.errors import Unreached, Unsatisfiable
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.uv.pages import answered

if TYPE_CHECKING:
    from requests import Response

TIMEOUTS = (5.0, 10.0)
"""Timeouts in seconds, for connecting and between two parts of the response."""
WHOLE_SECONDS = 30.0
"""The time limit in seconds for the whole page, in case a server sends it very slowly."""
MOST_BYTES = 32 << 20
"""The maximum size of the page. torch's page with all wheels, for every backend since 2016, has a
few megabytes."""
MOST_WHEELS = 50_000
"""The maximum number of wheels read from a page; torch's own page has a few thousand."""
LINK = re.compile(r"<a\b(?P<attributes>[^<>]{0,2000})>", re.IGNORECASE)
WHEEL = re.compile(r"""href\s*=\s*["']?(?P<path>[^"'#<>=\s]{1,1000}\.whl)""", re.IGNORECASE)
"""LINK and WHEEL stop at a character with which another match may begin. Otherwise a page that
consists only of such beginnings would take quadratic time."""


class LiveIndex(Frozen):
    """The builds that the index lists now: the catalog with the new builds added."""

    catalog: Catalog
    places: frozenset[Place]
    """Torch, backend, system and machine of the builds that the catalog lacks."""
    url: str
    """The URL of the page that was read, without a login."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def lists(self, build: TorchBuild | None) -> bool:
        """Whether the index lists a build that the catalog lacks."""
        if build is None:
            return False
        return (build.torch, build.backend, build.os, build.machine) in self.places

    def count_on(self, family: str) -> int:
        """The number of new builds for a system, such as `linux`."""
        return sum(place[2] == family for place in self.places)


def ask_index(root: str, backend: str, catalog: Catalog, talk: Callable[[str], None]) -> LiveIndex:
    """The builds for a backend (or all backends, for `auto`) that torch's index lists now.

    Raises Unreached if the index gives no usable answer, and Unsatisfiable if it has no such
    backend.
    """
    folder = "" if backend == "auto" else f"/{backend}"
    address = f"{root.rstrip('/')}{folder}/torch/"
    shown = without_logins(address)
    talk(f"Asking {shown} ...")
    names = wheel_names(read_page(address, shown, backend, catalog))
    if not names:
        raise Unreached(
            f"{shown} lists no wheel: it is not a page of a package index", hint=hint_of(catalog)
        )
    default_folder = "" if backend == "auto" else backend
    places = [(name, path_folder or default_folder) for path_folder, name in names]
    builds = new_builds(places, catalog)
    others, of_others = with_other_makers(places, catalog)
    full = replace(catalog, builds=(*builds, *catalog.builds), other_makers=others)
    listed = {(build.torch, build.backend, build.os, build.machine) for build in builds}
    return LiveIndex(catalog=full, places=frozenset((*listed, *of_others)), url=shown)


def wheel_names(page: str) -> list[tuple[str, str]]:
    """Returns the wheels that a page links to, as (last folder of the URL, file name); withdrawn
    ones (PEP 592) are left out.

    >>> wheel_names('<a href="/whl/cu134/torch-2.16.0%2Bcu134-cp311-cp311-win_amd64.whl#x=1">')
    [('cu134', 'torch-2.16.0+cu134-cp311-cp311-win_amd64.whl')]
    """
    names: list[tuple[str, str]] = []
    for link in LINK.finditer(page):
        if len(names) == MOST_WHEELS:
            break
        wheel = WHEEL.search(link["attributes"])
        if wheel is None or "data-yanked" in link["attributes"].lower():
            continue
        path = unquote(unescape(wheel["path"]))
        folder, _, name = path.rpartition("/")
        names.append((folder.rpartition("/")[2], name))
    return names


def read_page(address: str, shown: str, backend: str, catalog: Catalog) -> str:
    """The text of a page on the index. Raises Unreached or Unsatisfiable if it cannot be read
    within limits of size and time."""
    import requests

    url, login = split_login(address)
    deadline = time.monotonic() + WHOLE_SECONDS
    try:
        with answered(url, login=login, timeouts=TIMEOUTS) as answer:
            refuse_status(answer, shown, backend, catalog)
            return read_within(answer, shown, deadline)
    except requests.RequestException as problem:
        host = urlsplit(url).hostname
        reason = why_unreached(problem, host or shown)
        raise Unreached(f"{shown} cannot be reached: {reason}", hint=hint_of(catalog)) from problem


def why_unreached(problem: Exception, host: str) -> str:
    """A short reason why a page could not be read."""
    import requests

    text = without_logins(str(problem))
    if isinstance(problem, requests.Timeout):
        return f"{host} gave no answer within {TIMEOUTS[1]:g} s"
    if "resolve" in text or "getaddrinfo" in text:
        return f"could not resolve host {host}"
    if isinstance(problem, requests.exceptions.SSLError):
        return f"the certificate of {host} is not trusted here"
    if isinstance(problem, requests.exceptions.ProxyError):
        return "the proxy did not let it through"
    if "refused" in text:
        return f"{host} refused the connection"
    return text.partition("(Caused by")[2].strip(" )") or text


def refuse_status(answer: Response, shown: str, backend: str, catalog: Catalog) -> None:
    """Raise Unsatisfiable if the index has no folder for the backend, and Unreached for any other
    refusal."""
    if answer.status_code == 200:
        return
    is_own = shown.startswith(INDEX_ROOT)
    is_missing = answer.status_code == 404 or (is_own and answer.status_code == 403)
    if is_missing and backend != "auto":
        raise Unsatisfiable(
            f"{shown} is not there: the index has no builds for {backend} now",
            hint=f"gpusetup's table of {catalog.as_of} knows {known_backends(catalog)}",
        )
    raise Unreached(f"{shown} answered {answer.status_code}", hint=hint_of(catalog))


def read_within(answer: Response, shown: str, deadline: float) -> str:
    """The body of a response as text. Raises Unreached if it is too large or too slow."""
    parts: list[bytes] = []
    size_bytes = 0
    for part in answer.iter_content(1 << 16):
        parts.append(part)
        size_bytes += len(part)
        if size_bytes > MOST_BYTES:
            raise Unreached(f"{shown} is larger than {MOST_BYTES >> 20} MiB: it was not read")
        if time.monotonic() > deadline:
            raise Unreached(f"{shown} was not read within {WHOLE_SECONDS:g} s")
    return b"".join(parts).decode("utf-8", errors="replace")


def known_backends(catalog: Catalog) -> str:
    """The backends of the newest torch in the catalog, as a text for an error message."""
    newest = catalog.releases[-1].torch
    names = {build.backend for build in catalog.builds if build.torch == newest}
    return ", ".join(sorted(names))


def hint_of(catalog: Catalog) -> str:
    """The hint if an index cannot be asked: use the catalog, or name a mirror."""
    return (
        f"without `--refresh` gpusetup answers from its table of {catalog.as_of}; a mirror of the "
        "index is named by `--index URL`"
    )
