"""Decides what an installation will do, before anything is changed: a plain value to show."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked, Unreached, UsageError
from gpusetup.install.inuse import User
from gpusetup.install.journal import STAGING, STORE
from gpusetup.install.layout import Layout, normalized
from gpusetup.install.page import ACCEPT, parse_page
from gpusetup.install.wheels import Wheel, best, without_credentials
from gpusetup.install.wish import as_links
from gpusetup.install.words import FAMILY, refuse_what_is_no_package
from gpusetup.model import Choice, Resolution, Step
from gpusetup.value import Value

if TYPE_CHECKING:
    from packaging.requirements import Requirement

UNPACKED_FACTOR = 3.6
"""How much larger a torch wheel is unpacked; measured on the CPU wheel of torch 2.13.0 (4.0) and
nvidia-cudnn-cu12 (1.6), weighted towards the larger."""
SPARE_BYTES = 50 << 20

COMPANIONS = FAMILY[1:]

Page = Callable[[str, str], "tuple[str, str, str] | None"]
"""(URL, Accept) -> the page's own URL, media type and text, or None where there is none."""


class Asked(Value):
    """The words of the command line: `numpy transformers>=4 torch torchvision`."""

    family: tuple[str, ...]
    """Of the torch family, torch first."""
    packages: tuple[str, ...] = ()
    """Everything else, as requirements for the default index."""
    torch: str | None = None
    """A specifier that `torch==2.5.1` among the words gave."""
    beside: tuple[tuple[str, str], ...] = ()
    """Companions with the specifier that the words gave: `("torchvision", "==0.20.1")`."""
    named: tuple[str, ...] = ()
    """Of the torch family, as the words have it."""
    followers: tuple[str, ...] = ()
    """What is installed, takes another torch than the one to come, and is asked for anew."""
    pinned: tuple[str, ...] = ()
    """What must stay as it is: `torch==2.9.1+cu130`."""


class Plan(Value):
    """What will be done. `rest` is None where it can only be known once torch's wheel is here."""

    target: str
    python: str
    """The interpreter of the target."""
    venv: str | None = None
    """The environment to be made first."""
    installer: str
    choice: Choice
    passed_over: tuple[tuple[str, str], ...] = ()
    """Backends whose index has no such wheel, and what it says."""
    fallbacks: tuple[Choice, ...] = ()
    """What is left to fall back to."""
    family: tuple[Wheel, ...]
    rest: tuple[Wheel, ...] | None = None
    packages: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """What stays as it is, while the packages are chosen."""
    why: str | None = None
    """Why this torch comes, or stays."""
    steps: tuple[Step, ...] = ()
    before: Mapping[str, str] = {}
    breaks: tuple[tuple[str, str, str], ...] = ()
    """What is installed and would no longer find what it requires."""
    used_by: tuple[User, ...] = ()
    """Programs that have torch of the target loaded."""
    notes: tuple[str, ...] = ()
    device: str = "auto"
    """What verify is told to prove."""

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return (*self.family, *(self.rest or ()))

    @property
    def after(self) -> dict[str, str]:
        return {wheel.name: wheel.version for wheel in self.wheels}


def asked_for(
    words: Sequence[str],
    installed: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> Asked:
    """Sort the words; torch always, and where nothing else is named the companions that are there.

    `environment` are the markers' variables of the target: what they leave out is not asked for.

    >>> words = asked_for(["torchvision", "numpy>=2"], {})
    >>> words.family, words.named, words.packages
    (('torch', 'torchvision'), ('torchvision',), ('numpy>=2',))
    >>> asked_for([], {"torchaudio": "2.5.1"}).family
    ('torch', 'torchaudio')
    >>> words = asked_for(["torch==2.5.1"], {"torchaudio": "2.6.0"})
    >>> words.family, words.torch
    (('torch', 'torchaudio'), '2.5.1')
    """
    from packaging.requirements import InvalidRequirement, Requirement

    torch: str | None = None
    family, packages, named = {"torch"}, [], []
    beside: list[tuple[str, str]] = []
    for word in words:
        refuse_what_is_no_package(word)
        try:
            asked = Requirement(word)
        except InvalidRequirement as problem:
            raise UsageError(
                f"{word!r} is no package and no requirement",
                hint="such as `torchvision`, `transformers` or `'numpy>=2'`",
            ) from problem
        name = normalized(asked.name)
        if asked.marker and environment and not asked.marker.evaluate(dict(environment)):
            continue
        if name in FAMILY:
            _refuse_more_than_a_version(word, asked)
            family.add(name)
            named.append(name)
        else:
            packages.append(word)
            continue
        if name == "torch":
            torch = re.sub(EXACT, "", str(asked.specifier)) or None
        elif asked.specifier:
            beside.append((name, str(asked.specifier)))
    if family == {"torch"} and not packages:
        family.update(name for name in COMPANIONS if name in installed)
    return Asked(
        family=tuple(name for name in FAMILY if name in family),
        packages=tuple(packages),
        torch=torch,
        named=tuple(named),
        beside=tuple(beside),
    )


EXACT = r"^==(?=\d+\.\d+\.\d+[^,]*$)"
"""What `torch==2.5.1` says more than `--torch 2.5.1`."""


def _refuse_more_than_a_version(word: str, asked: Requirement) -> None:
    """Of torch's family only a version can be asked; nothing that was said is dropped silently."""
    if asked.url:
        raise UsageError(
            f"{word!r}: which wheel of {asked.name} fits is found out here",
            hint="`--torch VERSION`, `--backend`, or a mirror by `--index-root URL`",
        )
    if asked.extras:
        raise UsageError(
            f"{word!r}: extras of {asked.name} are not installed",
            hint="name the packages that they stand for besides it",
        )


def choices_of(resolution: Resolution, backend: str) -> tuple[Choice, ...]:
    """The build and what may be taken in its place; nothing, where a backend was named."""
    build = resolution.build
    if build is None or resolution.index_url is None:
        return ()
    first = Choice(torch=build.torch, backend=build.backend, index_url=resolution.index_url)
    return (first, *(resolution.fallbacks if backend == "auto" else ()))


def at_root(choice: Choice, index_root: str) -> str:
    """The index of a choice at a root, the usual one or a mirror.

    >>> at_root(Choice(torch="2.5.1", backend="cu124", index_url=""), "https://mirror.example/whl/")
    'https://mirror.example/whl/cu124'
    """
    return f"{index_root.rstrip('/')}/{choice.backend}"


def versions_of(resolution: Resolution, names: Iterable[str]) -> dict[str, str]:
    """The family's versions that go together; a companion that was never released is left out."""
    build = resolution.build
    if build is None:
        return {}
    known = {"torch": build.torch, "torchvision": build.torchvision, "torchaudio": build.torchaudio}
    return {name: version for name in names if (version := known[name])}


def family_at(
    page: Page, index: str, backend: str, versions: Mapping[str, str], tags: Sequence[str]
) -> tuple[tuple[Wheel, ...], str | None]:
    """The family's wheels on one index; or what it says where it has no such wheel."""
    found = []
    for name, version in versions.items():
        url = f"{index}/{name}/"
        answer = page(url, ACCEPT)
        if answer is None:
            return (), f"{without_credentials(url)}: there is no such page"
        listed = _listed(*answer)
        wheel = best_build(listed, version, backend, tags)
        if wheel is None:
            return (), (
                f"{without_credentials(url)}: has no wheel of {name} {version} for {tags[0]}"
                if listed
                else f"{without_credentials(url)}: the page is empty"
            )
        found.append(wheel)
    return tuple(found), None


def _listed(url: str, media_type: str, text: str) -> tuple[Wheel, ...]:
    try:
        return parse_page(url, media_type, text)
    except ValueError as problem:
        raise Unreached(
            f"{without_credentials(url)}: what came is no index page: {problem}",
            hint="nothing was changed; is there a log-in page or a proxy in between? "
            "Name the right root: `--index-root URL`",
        ) from problem


def best_build(
    listed: Sequence[Wheel], version: str, backend: str, tags: Sequence[str]
) -> Wheel | None:
    """The wheel of a version on a backend: `2.5.1+cu124`; without a local label (macOS, old ones)
    only where the page has none with.

    >>> one = Wheel(name="x", version="1.0+cpu", filename="x-1.0+cpu-py3-none-any.whl", url="u")
    >>> best_build([one], "1.0", "cpu", ["py3-none-any"]).version
    '1.0+cpu'
    """
    return best(listed, f"{version}+{backend}", tags) or best(listed, version, tags)


def first_that_has(
    page: Page,
    choices: Sequence[Choice],
    index_root: str,
    versions: Mapping[str, str],
    tags: Sequence[str],
) -> tuple[Choice, tuple[Wheel, ...], tuple[tuple[str, str], ...]]:
    """Go down the choices until an index has the wheels. Only "no such wheel" goes on."""
    passed: list[tuple[str, str]] = []
    for choice in choices:
        index = at_root(choice, index_root)
        wheels, missing = family_at(page, index, choice.backend, versions, tags)
        if missing is None:
            return choice, wheels, tuple(passed)
        passed.append((choice.backend, missing))
    why = "\n".join(f"  {name:8} {reason}" for name, reason in passed)
    if index_root.startswith("file:"):
        raise Blocked(
            f"The wheelhouse has no such wheel:\n{why}",
            hint="nothing was changed; `gpusetup install --download DIR` fetches it where there is "
            "a network, or name the version that is there (`--torch`, `--backend`)",
        )
    raise Blocked(
        f"No index has such a wheel:\n{why}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index-root URL`)",
    )


def device_to_prove(backend: str, gpus: int | None) -> str:
    """What verify is asked: a CUDA build is proven on the GPUs; without any (an image build) its
    libraries only; a CPU build on the CPU.

    >>> device_to_prove("cu124", 1), device_to_prove("cu124", 0), device_to_prove("cpu", 1)
    ('auto', 'none', 'cpu')
    """
    if not re.fullmatch(r"cu\d+", backend):
        return "cpu"
    return "none" if gpus == 0 else "auto"


class Room(Value):
    """What a folder's disk has to hold, and has free."""

    path: str
    needed_bytes: int
    free_bytes: int
    disk: int
    """The number of its filesystem: what lies on one disk counts together."""


def shortage(rooms: Iterable[Room]) -> Room | None:
    """The first disk that cannot hold what it has to; None where all can."""
    disks: dict[int, Room] = {}
    for room in rooms:
        had = disks.get(room.disk)
        disks[room.disk] = (
            room
            if had is None
            else Room(
                path=had.path,
                needed_bytes=had.needed_bytes + room.needed_bytes,
                free_bytes=min(had.free_bytes, room.free_bytes),
                disk=room.disk,
            )
        )
    return next((r for r in disks.values() if r.needed_bytes + SPARE_BYTES > r.free_bytes), None)


def switch_steps(plan: Plan, layout: Layout, program: str, prefix: str) -> tuple[Step, ...]:
    """The command that unpacks the wheels: one, offline, each by its hash, into a folder of the
    environment `prefix` from which they are renamed to their places once they are compared."""
    stage = os.path.join(prefix, STORE, STAGING)
    root, links, wanted, cache = (
        os.path.join(stage, name) for name in ("root", "links", "wheels.txt", "cache")
    )
    asked = (
        "--no-index",
        "--no-deps",
        "--find-links",
        as_links(links),
        "--require-hashes",
        "-r",
        wanted,
    )
    if plan.installer == "pip":
        quiet = ("--no-warn-script-location", "--no-compile", "--no-cache-dir")
        where = ("--ignore-installed", "--prefix", root)
        argv: tuple[str, ...] = (layout.python, "-m", "pip", "install", *quiet, *where, *asked)
    else:
        ours = ("--no-config", "--offline", "--cache-dir", cache, "--link-mode", "hardlink")
        there = ("--python", layout.python, "--prefix", root)
        argv = (program, "pip", "install", *ours, *there, *asked)
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.path.join(stage, "tmp"))
    return (
        Step(
            argv=argv,
            title="unpack the checked wheels beside the environment",
            environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        ),
    )


def venv_step(program: str, folder: str, base: str, *, seed: bool) -> Step:
    """The command that makes an environment."""
    argv = (
        program,
        "venv",
        "--quiet",
        "--no-project",
        "--allow-existing",  # the store with the journal is in it already
        *(("--seed",) if seed else ()),
        "--python",
        base,
        folder,
    )
    return Step(argv=argv, title="make the environment", timeout_seconds=120.0)
