"""The catalog brought up to what the live index has today (`resolve --refresh`), and what is kept
of that for `install`.

Wheels that the index lists and the catalog lacks become builds, with the kernels of the newest
release on the same backend: inferred, and each says so. Builds that the index no longer lists go.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Literal

from gpusetup.catalog.builds import INDEX_ROOT, Catalog, index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import Release
from gpusetup.errors import BadInput, Blocked, Unsatisfiable
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.page import ask_page
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.settings.index_root import index_root_of
from gpusetup.install.switching.files import no_link, write_safely
from gpusetup.model.codec import from_json, to_json
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import cuda_of, parsed

LABEL = re.compile(r"cu\d{2,4}")
MOST_LABELS = 16
"""How many labels that nobody knows are asked for: an index may list any number."""
MOST_AT_ONCE = 8
RECENT = 3
"""Of how many of the newest releases the backends are asked for."""
LIMIT_BYTES = 8 << 20
"""Of the file that is kept."""
PLATFORM = re.compile(
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)|(?P<win>win_amd64)"
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
OLDEST_GLIBC = "2.17"
"""What torch's wheels of a platform without a number (`linux_x86_64`, `manylinux2014`) need."""


class Listed(Frozen):
    """What an index listed on a day."""

    schema: Literal["gpusetup.refreshed/2"] = "gpusetup.refreshed/2"
    as_of: str
    root: str
    answered: tuple[str, ...]
    """The backends whose pages were read: of these nothing else is there."""
    builds: tuple[TorchBuild, ...]


def ask_root(
    catalog: Catalog, root: str, notify: Callable[[str], None], wanted: str = "cpu"
) -> Listed:
    """What every backend's page lists: the recent ones', and the one that is wanted; Unsatisfiable
    if neither the root nor the catalog has that."""
    shown = without_credentials(root)
    unknown = {wanted} - {*catalog.backends} if LABEL.fullmatch(wanted) else set()
    known = {*backends_to_ask(catalog), *listed_labels(catalog, root)}
    backends = tuple(sorted(known | unknown))
    notify(f"asking {shown} for {', '.join(backends)}")

    def asked(backend: str) -> tuple[Wheel, ...]:
        return ask_page(f"{index_url(backend, root)}/torch/")

    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        pages = dict(zip(backends, pool.map(asked, backends), strict=True))
    listed = {backend: page for backend, page in pages.items() if page}
    if not listed:
        raise Blocked(
            f"{shown} has no index of torch: {backends[0]}/torch/ lists no wheels",
            hint="name the right one: `--index URL`",
        )
    if missing := unknown - listed.keys():
        raise Unsatisfiable(f"{shown} lists no torch for {missing.pop()!r}")
    return Listed(
        as_of=date.today().isoformat(),
        root=shown.rstrip("/"),
        answered=tuple(listed),
        builds=tuple(
            b for name, page in listed.items() for b in listed_builds(page, name, catalog)
        ),
    )


def listed_labels(catalog: Catalog, root: str) -> tuple[str, ...]:
    """The CUDA labels that the index lists and the catalog lacks, by the page of all torch wheels;
    none if there is no such page."""
    try:
        page = ask_page(f"{root.rstrip('/')}/torch/")
    except Blocked:
        return ()
    known = {b for b in catalog.backends if catalog.other_backends.get(b) != ()}
    labels = {wheel.version.partition("+")[2].partition(".")[0] for wheel in page} - known
    return tuple(sorted(filter(LABEL.fullmatch, labels), reverse=True)[:MOST_LABELS])


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


def merged(catalog: Catalog, listed: Listed) -> Catalog:
    """The catalog with these builds; a backend whose page was not read changes nothing."""
    there = {_key(build) for build in listed.builds}
    kept = tuple(
        build
        for build in catalog.builds
        if build.channel != "pytorch"
        or build.backend not in listed.answered
        or _key(build) in there
    )
    known = {_key(build) for build in kept if build.channel == "pytorch"}
    added = tuple(build for build in listed.builds if _key(build) not in known)
    releases = {row.torch: row for row in catalog.releases}
    for build in added:
        releases.setdefault(build.torch, _following(build.torch, catalog))
    confirmed = {build.backend for build in added}
    return replace(
        catalog,
        as_of=listed.as_of,
        builds=(*kept, *added),
        releases=tuple(sorted(releases.values(), key=lambda row: parsed(row.torch))),
        other_backends={b: t for b, t in catalog.other_backends.items() if b not in confirmed},
    )


def _key(build: TorchBuild) -> tuple[str, ...]:
    return build.torch, build.backend, build.os, build.machine


def listed_builds(page: Iterable[Wheel], backend: str, catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The torch builds that a backend's page lists, prereleases left aside: the catalog's own, and
    inferred ones. One without a label counts if the backend's wheels have none (macOS, old
    aarch64)."""
    found: dict[tuple[str, ...], TorchBuild] = {}
    for wheel in page:
        build = _build(wheel, backend, catalog)
        if build is not None:
            had = found.get(_key(build))
            pythons = {*build.pythons, *(had.pythons if had else ())}
            ordered = tuple(sorted(pythons, key=lambda one: (len(one.rstrip("t")), one)))
            found[_key(build)] = replace(had or build, pythons=ordered)
    return tuple(
        catalog.row_of(one.torch, one.backend, one.os, one.machine) or one for one in found.values()
    )


def _build(wheel: Wheel, backend: str, catalog: Catalog) -> TorchBuild | None:
    """The build of one wheel, its kernels inferred; None if nothing tells them, and for torch older
    than the catalog."""
    torch, _, label = wheel.version.partition("+")
    *_, python, abi, tag = wheel.filename.removesuffix(".whl").split("-")
    platform, version = PLATFORM.search(tag), parsed(torch)
    if wheel.name != "torch" or platform is None or label not in ("", backend):
        return None
    if version.is_prerelease or version < parsed(catalog.releases[0].torch):
        return None
    family: Literal["linux", "windows", "macos"]
    family = "linux" if platform["linux"] else "windows" if platform["win"] else "macos"
    machine = (platform["linux"] or platform["mac"] or "x86_64").replace("arm64", "aarch64")
    like = _nearest(backend, family, machine, catalog)
    if like is None or not re.fullmatch(r"cp3\d+", python):
        return None
    many, cuda = platform["many"] or "", cuda_of(backend)
    numbers = ".".join(many.split("_")[1:3]) or OLDEST_GLIBC
    same = catalog.release_of(torch) or _following(torch, catalog)
    return replace(
        like,
        torch=torch,
        backend=backend,
        cuda=cuda,
        pythons=(f"3.{python[3:]}{'t' if abi.endswith('t') else ''}",),
        glibc=numbers if many else None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
        labelled=bool(label),
        driver_floor=catalog.driver_floor(cuda, family) if cuda else None,
        torchvision=same.torchvision,
        torchaudio=same.torchaudio,
        released=same.released or None,
        status="inferred",
        note=f"seen on the index; its kernels are inferred from {like.torch} {like.backend}",
    )


def _nearest(backend: str, family: str, machine: str, catalog: Catalog) -> TorchBuild | None:
    """The build that tells most: the same backend's newest, else that of its CUDA major, else the
    highest CUDA."""
    cuda = cuda_of(backend)
    rows = [
        b
        for b in catalog.builds
        if (b.os, b.machine, b.channel) == (family, machine, "pytorch")
        and (b.backend == backend or (cuda and b.cuda))
    ]

    def tells(b: TorchBuild) -> tuple[object, ...]:
        has = release(b.cuda or "0")
        major = bool(cuda) and has[0] == release(cuda or "0")[0]
        return b.backend == backend, major, parsed(b.torch), has

    return max(rows, key=tells, default=None)


def _following(torch: str, catalog: Catalog) -> Release:
    """A release that the catalog lacks: the newest torchvision if it accepts later torch."""
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


# --- what is kept of it ---------------------------------------------------------------------------


def saved_file() -> Path:
    """In the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpusetup", appauthor=False)) / "refreshed.json"


def keep(listed: Listed) -> bool:
    """Write it; False if the cache cannot be written, which is no error."""
    path = saved_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.touch(mode=0o600)
        write_safely(path, to_json(listed))
    except OSError:
        return False
    return True


def with_saved(catalog: Catalog, root: str, notify: Callable[[str], None]) -> Catalog:
    """The catalog with what this index listed when it was last asked, if that is newer."""
    path = saved_file()
    listed = _read(path, notify)
    if listed is None or listed.root != without_credentials(root).rstrip("/"):
        return catalog
    if listed.as_of < catalog.as_of:
        notify(f"{path} of {listed.as_of} is older than the catalog of {catalog.as_of}: left aside")
        return catalog
    return merged(catalog, listed)


def _read(path: Path, notify: Callable[[str], None]) -> Listed | None:
    """What is kept; None if there is nothing, or if it is not a small file of the user's own that
    nobody else may write."""
    try:
        with open(path, "rb", opener=no_link) as file:
            found, raw = os.fstat(file.fileno()), file.read(LIMIT_BYTES + 1)
        own = os.name != "posix" or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
        if not own or not stat.S_ISREG(found.st_mode) or len(raw) > LIMIT_BYTES:
            raise BadInput("it is no small file of your own that nobody else may write")
        kept = from_json(raw, Listed, what="it")
        if kept.as_of > date.today().isoformat():
            raise BadInput(f"its date is {kept.as_of!r}")
        return kept
    except FileNotFoundError:
        return None
    except (OSError, BadInput) as problem:
        said = problem.message if isinstance(problem, BadInput) else problem.strerror or ""
        notify(f"{path} is left aside: {said[:200]}")
        return None


def known_catalog(
    machine: Snapshot, notify: Callable[[str], None] | None, root: str | None
) -> Catalog:
    """The catalog, for this machine with what its index listed when it was last asked."""
    catalog = load_catalog()
    if machine.origin != "live" or notify is None:
        return catalog
    return with_saved(catalog, index_root_of(root, os.environ, INDEX_ROOT), notify)
