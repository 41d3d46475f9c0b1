"""Asks torch's own index for builds that are not in the catalog (`resolve --refresh`).

The page may come from an untrusted server. So it is read within limits of size and time, and only
links whose file names are those of torch wheels are used. No URL from the page appears in a result
or a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from itertools import islice
from urllib.parse import unquote, urlsplit

from gpusetup.catalog.builds import INDEX_ROOT, Catalog
from gpusetup.catalog.index_builds import Place, new_builds
from gpusetup.errors import Unreached, Unsatisfiable
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import without_logins
from gpusetup.uv.pages import answered, text_of

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
        return build is not None and place_of(build) in self.places

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
    try:
        with answered(address) as answer:
            status, page = answer.status_code, text_of(answer) if answer.ok else ""
        # torch's own index answers 403 for a folder that it does not have.
        if folder and status in ((404, 403) if shown.startswith(INDEX_ROOT) else (404,)):
            newest = catalog.releases[-1].torch
            known = {build.backend for build in catalog.builds if build.torch == newest}
            raise Unsatisfiable(
                f"{shown} is not there: the index has no builds for {backend} now",
                hint=f"gpusetup's table of {catalog.as_of} knows {', '.join(sorted(known))}",
            )
        if status != 200:
            raise Unreached(f"{shown} answered {status}")
        names = wheel_names(page)
        if not names:
            raise Unreached(f"{shown} lists no wheel: it is not a page of a package index")
    except Unreached as problem:
        hint = (
            f"without `--refresh` gpusetup answers from its table of {catalog.as_of}; to use a "
            "mirror of the index, add `--index URL`"
        )
        raise Unreached(problem.message, hint=hint) from problem
    places = [(name, path_folder or folder.lstrip("/")) for path_folder, name in names]
    builds = new_builds(places, catalog)
    full = replace(catalog, builds=(*builds, *catalog.builds))
    return LiveIndex(catalog=full, places=frozenset(map(place_of, builds)), url=shown)


def place_of(build: TorchBuild) -> Place:
    return build.torch, build.backend, build.os, build.machine


def wheel_names(page: str) -> list[tuple[str, str]]:
    """Returns the wheels that a page links to, as (last folder of the URL, file name); withdrawn
    ones (PEP 592) are left out.

    >>> wheel_names('<a href="/whl/cu134/torch-2.16.0%2Bcu134-cp311-cp311-win_amd64.whl#x=1">')
    [('cu134', 'torch-2.16.0+cu134-cp311-cp311-win_amd64.whl')]
    """
    links = (link["attributes"] for link in LINK.finditer(page))
    wheels = (WHEEL.search(link) for link in links if "data-yanked" not in link.lower())
    names: list[tuple[str, str]] = []
    for wheel in islice(filter(None, wheels), MOST_WHEELS):
        folder, _, name = unquote(unescape(wheel["path"])).rpartition("/")
        names.append((folder.rpartition("/")[2], name))
    return names
