"""The catalog brought up to what the live index has today.

Wheels that the index lists and the catalog lacks become builds, with the kernels of the newest
release on the same backend: inferred, and each says so. Builds that the index no longer lists go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import Release
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.page import ask_page
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import cuda_of, parsed

LABEL = re.compile(r"cu\d{2,4}")
MOST_LABELS = 16
"""How many labels that nobody knows are asked for: an index may list any number."""
MOST_AT_ONCE = 8
RECENT = 3
"""Of how many of the newest releases the backends are asked for."""

PLATFORM = re.compile(
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)|(?P<win>win_amd64)"
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
GLIBC = {"manylinux1": "2.17", "manylinux2010": "2.17", "manylinux2014": "2.17", "linux": "2.17"}
"""The oldest glibc that torch's wheels of these names really need."""


class Seen(Frozen):
    """One torch on one backend and platform, as an index lists it."""

    torch: str
    backend: str
    os: Literal["linux", "windows", "macos"]
    machine: str
    pythons: tuple[str, ...]
    glibc: str | None = None
    macos: str | None = None
    labelled: bool = True

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.torch, self.backend, self.os, self.machine


class ListedBuilds(Frozen):
    """What an index said: every build that it lists, and the backends whose pages were read."""

    rows: tuple[Seen, ...]
    answered: tuple[str, ...]
    root: str


def ask_root(
    catalog: Catalog, root: str, notify: Callable[[str], None], wanted: str = "cpu"
) -> ListedBuilds:
    """What every backend's page lists: the recent ones', those that the root itself names, and the
    one that is wanted; Unsatisfiable where neither the root nor the catalog has that."""
    known = {*backends_to_ask(catalog), *listed_labels(catalog, root)}
    unknown = {wanted} - {*catalog.backends} if LABEL.fullmatch(wanted) else set()
    backends = tuple(sorted(known | unknown))
    notify(f"asking {without_credentials(root)} for {', '.join(backends)}")

    def asked(backend: str) -> tuple[Wheel, ...] | str:
        return ask_page(f"{index_url(backend, root)}/torch/")

    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        pages = dict(zip(backends, pool.map(asked, backends), strict=True))
    listed = {b: page for b, page in pages.items() if not isinstance(page, str)}
    if not listed:
        raise Blocked(
            f"{without_credentials(root)} has no index of torch: {next(iter(pages.values()))}",
            hint="name the right one: `--index URL`",
        )
    if missing := unknown - listed.keys():
        raise Unsatisfiable(f"{without_credentials(root)} lists no torch for {missing.pop()!r}")
    found = (row for backend, page in listed.items() for row in seen_builds(page, backend))
    return ListedBuilds(rows=tuple(found), answered=tuple(listed), root=root)


def listed_labels(catalog: Catalog, root: str) -> tuple[str, ...]:
    """The CUDA labels that the index lists and the catalog lacks: by the page of all torch wheels.

    An index without such a page names none, and one that does not answer is asked by backend.
    """
    try:
        page = ask_page(f"{root.rstrip('/')}/torch/")
    except Blocked:
        return ()
    if isinstance(page, str):
        return ()
    known = {*catalog.backends} - {
        b for b, torches in catalog.other_backends.items() if not torches
    }
    found = {wheel.version.partition("+")[2].partition(".")[0] for wheel in page}
    fresh = {label for label in found if LABEL.fullmatch(label) and label not in known}
    return tuple(sorted(fresh, reverse=True)[:MOST_LABELS])


def backends_to_ask(catalog: Catalog) -> tuple[str, ...]:
    """The backends of the newest releases, and CUDA labels that nobody has confirmed yet."""
    recent = {row.torch for row in catalog.releases[-RECENT:]}
    rows = (b for b in catalog.builds if b.torch in recent and b.channel == "pytorch")
    known = {build.backend for build in rows}
    newest = max((release(c) for b in known if (c := cuda_of(b))), default=(0, 0))
    waiting = {
        b
        for b, torches in catalog.other_backends.items()
        if not torches and (cuda := cuda_of(b)) and release(cuda) > newest
    }
    return tuple(sorted(known | waiting))


def merged(catalog: Catalog, rows: Iterable[Seen], answered: frozenset[str], today: str) -> Catalog:
    """The catalog with these builds; a backend whose page was not read changes nothing."""
    seen = {row.key: row for row in rows}
    kept = [
        replace(build, pythons=seen[key].pythons) if key in seen else build
        for build in catalog.builds
        for key in ((build.torch, build.backend, build.os, build.machine),)
        if build.channel != "pytorch" or build.backend not in answered or key in seen
    ]
    known = {
        (b.torch, b.backend, b.os, b.machine) for b in catalog.builds if b.channel == "pytorch"
    }
    fresh = [new_build(s, catalog) for s in seen.values() if s.key not in known]
    added = tuple(build for build in fresh if build is not None)
    confirmed = {build.backend for build in added}
    others = {b: t for b, t in catalog.other_backends.items() if b not in confirmed}
    return replace(
        catalog,
        as_of=today,
        builds=(*kept, *added),
        releases=_releases(catalog, added),
        other_backends=others,
    )


def seen_builds(files: Iterable[Wheel], backend: str) -> tuple[Seen, ...]:
    """The torch builds that a page lists, prereleases left aside.

    A page of a backend lists its own wheels; one without a label counts where the backend's
    wheels have none (macOS, old aarch64).
    """
    found: dict[tuple[str, str, str, str], Seen] = {}
    for wheel in files:
        seen = _seen(wheel, backend)
        if seen is None:
            continue
        had = found.get(seen.key)
        if had:
            pythons = tuple(sorted({*had.pythons, *seen.pythons}, key=_python_order))
            seen = replace(seen, pythons=pythons, labelled=had.labelled or seen.labelled)
        found[seen.key] = seen
    return tuple(found.values())


def _seen(wheel: Wheel, backend: str) -> Seen | None:
    public, _, label = wheel.version.partition("+")
    parts = wheel.filename.removesuffix(".whl").split("-")
    platform = PLATFORM.search(parts[-1])
    version = parsed(public)
    if wheel.name != "torch" or platform is None or label not in ("", backend):
        return None
    if version.is_prerelease or not re.fullmatch(r"cp3\d+", parts[-3]):
        return None
    free = "t" if parts[-2].endswith("t") else ""
    common = {
        "torch": public,
        "backend": backend,
        "pythons": (f"3.{parts[-3][3:]}{free}",),
        "labelled": bool(label),
    }
    if platform["linux"]:
        glibc = GLIBC.get(platform["many"]) or ".".join(platform["many"].split("_")[1:3])
        return Seen(os="linux", machine=platform["linux"], glibc=glibc, **common)  # type: ignore[arg-type]
    if platform["win"]:
        return Seen(os="windows", machine="x86_64", **common)  # type: ignore[arg-type]
    machine = "aarch64" if platform["mac"] == "arm64" else "x86_64"
    macos = platform["macos"].replace("_", ".")
    return Seen(os="macos", machine=machine, macos=macos, **common)  # type: ignore[arg-type]


def _python_order(python: str) -> tuple[int, bool]:
    return int(python.rstrip("t").partition(".")[2]), python.endswith("t")


def new_build(seen: Seen, catalog: Catalog) -> TorchBuild | None:
    """A build for what was seen, kernels inferred; None where nothing tells them, and for torch
    older than the catalog."""
    if parsed(seen.torch) < parsed(catalog.releases[0].torch):
        return None
    like = _nearest(seen, catalog)
    cuda = cuda_of(seen.backend)
    if like is None:
        return None
    same = catalog.release_of(seen.torch) or _following(seen.torch, catalog)
    return replace(
        like,
        torch=seen.torch,
        backend=seen.backend,
        cuda=cuda,
        pythons=seen.pythons,
        glibc=seen.glibc,
        macos=seen.macos,
        labelled=seen.labelled,
        driver_floor=catalog.driver_floor(cuda, seen.os) if cuda else None,
        torchvision=same.torchvision,
        torchaudio=same.torchaudio,
        released=same.released or None,
        status="inferred",
        note=f"seen on the index; its kernels are inferred from {like.torch} {like.backend}",
    )


def _nearest(seen: Seen, catalog: Catalog) -> TorchBuild | None:
    """The build that tells most: the same backend's newest, else the family's highest CUDA, else
    the highest of all (a CUDA major that the catalog does not know)."""
    rows = [
        b
        for b in catalog.builds
        if (b.os, b.machine, b.channel) == (seen.os, seen.machine, "pytorch")
    ]
    same = [b for b in rows if b.backend == seen.backend]
    if same:
        return max(same, key=lambda b: parsed(b.torch))
    cuda = cuda_of(seen.backend)
    with_cuda = [b for b in rows if cuda and b.cuda]
    family = [b for b in with_cuda if release(b.cuda or "0")[0] == release(cuda or "0")[0]]
    newer = release(cuda or "0") > max((release(b.cuda or "0") for b in with_cuda), default=(0, 0))
    among = family or (with_cuda if newer else [])
    return max(among, key=lambda b: (parsed(b.torch), release(b.cuda or "0")), default=None)


def _following(torch: str, catalog: Catalog) -> Release:
    """A release that the catalog lacks: the newest torchvision where it accepts later torch."""
    from packaging.specifiers import SpecifierSet

    last = catalog.releases[-1]
    fits = last.torchvision_needs and torch in SpecifierSet(last.torchvision_needs)
    return Release(
        torch=torch,
        released="",
        torchvision=last.torchvision if fits else None,
        torchvision_needs=last.torchvision_needs if fits else None,
        torchvision_excludes=last.torchvision_excludes,
    )


def _releases(catalog: Catalog, added: tuple[TorchBuild, ...]) -> tuple[Release, ...]:
    known = {row.torch for row in catalog.releases}
    fresh = dict.fromkeys(build.torch for build in added if build.torch not in known)
    rows = (*catalog.releases, *(_following(torch, catalog) for torch in fresh))
    return tuple(sorted(rows, key=lambda row: parsed(row.torch)))
