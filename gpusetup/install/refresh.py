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
    """What every backend's page lists: the recent ones', and the one that is wanted; Unsatisfiable
    if neither the root nor the catalog has that."""
    unknown = {wanted} - {*catalog.backends} if LABEL.fullmatch(wanted) else set()
    known = {*backends_to_ask(catalog), *listed_labels(catalog, root)}
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
    """The CUDA labels that the index lists and the catalog lacks, by the page of all torch wheels;
    none if there is no such page."""
    try:
        page = ask_page(f"{root.rstrip('/')}/torch/")
    except Blocked:
        return ()
    known = {b for b in catalog.backends if catalog.other_backends.get(b) != ()}
    wheels = () if isinstance(page, str) else page
    labels = {wheel.version.partition("+")[2].partition(".")[0] for wheel in wheels} - known
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
    family = "linux" if platform["linux"] else "windows" if platform["win"] else "macos"
    machine = platform["linux"] or platform["mac"] or "x86_64"
    many = platform["many"] or ""
    return Seen(
        torch=public,
        backend=backend,
        os=family,  # type: ignore[arg-type]
        machine="aarch64" if machine == "arm64" else machine,
        pythons=(f"3.{parts[-3][3:]}{free}",),
        glibc=GLIBC.get(many) or ".".join(many.split("_")[1:3]) or None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
        labelled=bool(label),
    )


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


# --- what is kept of it ---------------------------------------------------------------------------

LIMIT_BYTES = 1 << 20


class Kept(Frozen):
    """What an index listed on a day."""

    schema: Literal["gpusetup.refreshed/1"] = "gpusetup.refreshed/1"
    as_of: str
    root: str
    answered: tuple[str, ...]
    """The backends whose pages were read: of these nothing else is there."""
    rows: tuple[Seen, ...]


def saved_file() -> Path:
    """In the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpusetup", appauthor=False)) / "refreshed.json"


def keep(asked: ListedBuilds, as_of: str) -> bool:
    """Write it; False if the cache cannot be written, which is no error."""
    path, root = saved_file(), without_credentials(asked.root).rstrip("/")
    kept = Kept(as_of=as_of, root=root, answered=asked.answered, rows=asked.rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.touch(mode=0o600)
        write_safely(path, to_json(kept))
    except OSError:
        return False
    return True


def with_saved(catalog: Catalog, root: str, notify: Callable[[str], None]) -> Catalog:
    """The catalog with what this index listed when it was last asked, if that is newer."""
    path = saved_file()
    kept = _read(path, notify)
    if kept is None or kept.root != without_credentials(root).rstrip("/"):
        return catalog
    if kept.as_of < catalog.as_of:
        notify(f"{path} of {kept.as_of} is older than the catalog of {catalog.as_of}: left aside")
        return catalog
    return merged(catalog, kept.rows, frozenset(kept.answered), kept.as_of)


def _read(path: Path, notify: Callable[[str], None]) -> Kept | None:
    """What is kept; None if there is nothing, or if it is not a small file of the user's own that
    nobody else may write."""
    try:
        with open(path, "rb", opener=no_link) as file:
            found, raw = os.fstat(file.fileno()), file.read(LIMIT_BYTES + 1)
        own = os.name != "posix" or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
        if not own or not stat.S_ISREG(found.st_mode) or len(raw) > LIMIT_BYTES:
            raise BadInput("it must be a small file that only you can write")
        kept = from_json(raw, Kept, what="it")
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
