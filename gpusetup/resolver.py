"""Which torch build fits a machine, and why the others do not.

All constraints hold jointly, for every visible GPU. The newest torch wins; within it the highest
CUDA that is at most the driver's own, else the highest of its family by minor-version
compatibility; with an unknown driver the lowest CUDA. A CPU build is the answer only where it is
asked for, on macOS, and where a source said that the machine has no NVIDIA GPU at all (a note
says so): a GPU is never left unused silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from gpusetup.catalog import Catalog, Channel, index_url
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.kernels import release, served_by
from gpusetup.model import (
    Choice,
    Gpu,
    Rejection,
    Request,
    Resolution,
    Served,
    Snapshot,
    TorchBuild,
    parsed,
    visible_gpus,
)

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpusetup.answers import ResolveAnswer

CONDA_CHANNELS: tuple[Channel, ...] = ("conda-pytorch", "conda-forge")
WHEELS: tuple[Channel, ...] = ("pytorch",)
CHANNELS = (*WHEELS, *CONDA_CHANNELS)
"""Of the same torch the one from the former channel is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the constraints look at: the machine and the request, parsed once."""

    family: str
    machine: str
    wsl: bool
    """Whether the driver's number is the Windows host's."""
    python: str | None
    """`3.11`, `3.13t`; None when unknown."""
    python_bits: int | None
    libc: str | None
    """`glibc 2.35`, `musl 1.2.5`; None when unknown."""
    macos: str | None
    driver: str | None
    driver_cuda: str | None
    """The newest CUDA that the driver serves; None when the driver is unknown."""
    trusts_cuda: bool
    """Whether the driver's CUDA decides instead of its version (cuda-compat lifts it)."""
    gpus: tuple[Gpu, ...]
    presence: Literal["some", "none", "unknown"]
    """Whether there is an NVIDIA GPU; `none` only where a source said so."""
    torch: SpecifierSet | None
    torch_text: str | None
    backend: str
    channels: tuple[Channel, ...]
    catalog_as_of: str


def resolve(snapshot: Snapshot, request: Request, catalog: Catalog) -> Resolution:
    """The build that fits, its fallbacks, and a reason for every other row of the platform.

    Never raises for what is asked: a request that cannot be read or that names what never
    existed gets no build and a reason (`check_request` raises for the command line).
    """
    from gpusetup.advice import best_change
    from gpusetup.notes import notes_on

    situation = situation_of(snapshot, request, catalog)
    builds = in_scope(situation, catalog)
    fitting = sorted((b for b in builds if fits(b, situation)), key=_preference(situation))
    chosen = fitting[0] if fitting else None
    conda = None
    if situation.channels == WHEELS:
        conda = best_build(replace(situation, channels=CONDA_CHANNELS), catalog)
    found = Resolution(
        build=_with_companions(chosen, snapshot, catalog) if chosen else None,
        index_url=index_url(chosen.backend) if chosen and chosen.channel == "pytorch" else None,
        served=_served(chosen, situation) if chosen else (),
        fallbacks=_fallbacks(fitting, situation),
        rejections=_rejections(builds, fitting, situation, catalog),
        conda=conda,
        catalog_as_of=catalog.as_of,
    )
    advice = best_change(situation, chosen, catalog)
    return replace(found, advice=advice, notes=notes_on(found, situation, snapshot, catalog))


def to_answer(resolution: Resolution, snapshot: Snapshot) -> ResolveAnswer:
    """The public document of a resolution, with the commands of every installer."""
    from gpusetup.answers import ResolveAnswer
    from gpusetup.install import INSTALLERS
    from gpusetup.install.wish import Wish

    build = resolution.build
    shared = {
        "rejections": resolution.rejections,
        "advice": resolution.advice,
        "notes": resolution.notes,
        "python": python_tag(snapshot),
        "catalog_as_of": resolution.catalog_as_of,
    }
    if build is None:
        return ResolveAnswer(torch=None, **shared)  # type: ignore[arg-type]
    wish = Wish(python=snapshot.python.executable, conda_prefix=_conda_prefix(snapshot))
    commands = {}
    for name, steps in INSTALLERS.items():
        try:
            commands[name] = tuple(step.argv for step in steps(resolution, wish))
        except Unsatisfiable:
            commands[name] = ()
    return ResolveAnswer(
        torch=build.torch,
        torchvision=build.torchvision,
        torchaudio=build.torchaudio,
        backend=build.backend,
        index_url=resolution.index_url,
        driver_floor=build.driver_floor,
        served=resolution.served,
        fallbacks=resolution.fallbacks,
        commands=commands,
        **shared,  # type: ignore[arg-type]
    )


def check_request(request: Request, catalog: Catalog) -> None:
    """Raise UsageError for a request that is malformed, contradictory or names what never was."""
    specifier(request.torch)
    labelled = _label(request.torch)
    if labelled and request.backend not in ("auto", labelled):
        raise UsageError(
            f"`--torch {request.torch}` asks for {labelled} and `--backend` for {request.backend}",
            hint="give one of them",
        )
    for backend in filter(None, (labelled, request.backend)):
        if backend != "auto" and backend not in catalog.backends:
            raise UsageError(
                f"No torch was ever built for {backend!r}", hint=_nearest_backends(backend, catalog)
            )


def _nearest_backends(backend: str, catalog: Catalog) -> str:
    import difflib

    # Of several equally near labels the newest are the ones that people mean.
    known = sorted(catalog.backends, key=lambda b: (len(b), b), reverse=True)
    near = difflib.get_close_matches(backend, known, 3, 0.5) or ["cpu", "cu126", "cu130"]
    return f"the nearest: {', '.join(near)}"


def specifier(text: str | None) -> SpecifierSet | None:
    """The torch that is asked for; UsageError where the text is no version or specifier.

    A bare version means that version, `2.5` its newest patch; a local label is set aside.

    >>> str(specifier("2.5")), str(specifier("torch==2.5.1+cu124")), str(specifier(">=2.6,<2.9"))
    ('==2.5.*', '==2.5.1', '<2.9,>=2.6')
    """
    plain = (text or "").strip().removeprefix("torch").strip().split("+")[0]
    if not plain or plain == "latest":
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if plain[0].isdigit():
        plain = f"=={plain}.*" if plain.count(".") < 2 and "*" not in plain else f"=={plain}"
    try:
        return SpecifierSet(plain)
    except InvalidSpecifier:
        raise UsageError(
            f"{text!r} is no torch version", hint="such as `2.5.1` or `>=2.6,<2.9`"
        ) from None


def _label(text: str | None) -> str | None:
    return text.partition("+")[2].strip().lower() or None if text else None


# --- the situation ------------------------------------------------------------------------------


def situation_of(snapshot: Snapshot, request: Request, catalog: Catalog) -> Situation:
    """Snapshot and request as the constraints read them; an unreadable torch matches nothing."""
    try:
        torch = specifier(request.torch)
    except UsageError:
        torch = specifier("==0")
    gpus = _gpus(snapshot, catalog)
    driver = snapshot.driver
    return Situation(
        family=snapshot.os.family or "linux",
        machine=snapshot.os.machine or "x86_64",
        wsl=bool(snapshot.os.wsl),
        python=python_tag(snapshot),
        python_bits=snapshot.python.bits,
        libc=snapshot.os.libc,
        macos=snapshot.os.version if snapshot.os.family == "macos" else None,
        driver=driver.version,
        driver_cuda=driver.cuda or _cuda_of_driver(driver.version, snapshot, catalog),
        trusts_cuda=driver.version is None or snapshot.container.cuda_compat_path is not None,
        gpus=gpus,
        presence=_presence(snapshot, gpus),
        torch=torch,
        torch_text=request.torch,
        backend=_label(request.torch) or request.backend,
        channels=CONDA_CHANNELS if request.installer == "conda" else WHEELS,
        catalog_as_of=catalog.as_of,
    )


def python_tag(snapshot: Snapshot) -> str | None:
    """The interpreter as wheels name it: `3.11`, `3.13t`; None when unknown."""
    version = snapshot.python.version
    if not version:
        return None
    major, _, rest = version.partition(".")
    minor = "".join(c for c in rest.split(".")[0] if c.isdigit())
    free = snapshot.python.free_threaded or version.endswith("t")
    return f"{major}.{minor}{'t' if free else ''}"


def _cuda_of_driver(version: str | None, snapshot: Snapshot, catalog: Catalog) -> str | None:
    return catalog.driver_cuda(version, snapshot.os.family or "linux") if version else None


def _gpus(snapshot: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs to serve: the visible ones; all where a variable hides every one; else PCI's."""
    present = tuple(gpu for gpu in snapshot.gpus or () if not gpu.lost)
    if present:
        return tuple(_named(gpu, catalog) for gpu in visible_gpus(snapshot) or present)
    nvidia = (device for device in snapshot.pci_devices or () if device.vendor == "nvidia")
    return tuple(_named(Gpu(name=_board(device.name)), catalog) for device in nvidia)


def _board(pci_name: str | None) -> str:
    """The board inside a PCI name: `GA107M [GeForce RTX 3050 Mobile]`."""
    name = pci_name or "NVIDIA GPU"
    inside = name.partition("[")[2].partition("]")[0]
    return inside or name


def _named(gpu: Gpu, catalog: Catalog) -> Gpu:
    """A GPU with its capability from its name, where only the name is known."""
    from gpusetup.gpus import one_capability

    if gpu.compute_capability is not None:
        return gpu
    try:
        return replace(
            gpu, compute_capability=one_capability(gpu.name, catalog.gpus_named(gpu.name))
        )
    except UsageError:
        return gpu


def _presence(snapshot: Snapshot, gpus: tuple[Gpu, ...]) -> Literal["some", "none", "unknown"]:
    if gpus:
        return "some"
    if snapshot.driver.version or snapshot.driver.cuda:
        return "unknown"
    return "none" if snapshot.gpus == () or snapshot.os.family == "macos" else "unknown"


# --- constraints: named for what should hold, they give the reason where it does not ------------


def is_asked_torch(build: TorchBuild, situation: Situation) -> str | None:
    if situation.torch is None or situation.torch.contains(_version(build.torch)):
        return None
    return f"is not the torch asked for ({situation.torch_text})"


def is_asked_backend(build: TorchBuild, situation: Situation) -> str | None:
    if situation.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({situation.backend})"


def uses_the_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda or situation.backend == "cpu" or situation.family == "macos":
        return None
    if situation.presence == "some":
        name = situation.gpus[0].name
        return f"is a CPU build and would not use {name}; `--backend cpu` asks for it"
    if situation.presence == "unknown":
        return "is a CPU build; `--backend cpu` asks for it"
    return None


def has_a_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None or situation.presence != "none" or situation.backend == build.backend:
        return None
    return "needs an NVIDIA GPU, found none; `--backend` asks for it all the same"


def has_this_python(build: TorchBuild, situation: Situation) -> str | None:
    if situation.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if situation.python is None or situation.python in build.pythons:
        return None
    if not build.pythons:
        return f"has no wheels for Python {situation.python}"
    return f"needs Python {_span(build.pythons)}, found {situation.python}"


def libc_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if situation.libc is None or situation.family != "linux":
        return None
    name, _, version = situation.libc.partition(" ")
    if name == "musl":
        return f"needs glibc, found {situation.libc}: there are no wheels for musl"
    if build.glibc and version and _version(version) < _version(build.glibc):
        return f"needs glibc {build.glibc}, found {version}"
    return None


def macos_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if not (build.macos and situation.macos) or _version(situation.macos) >= _version(build.macos):
        return None
    return f"needs macOS {build.macos}, found {situation.macos}"


def driver_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None or (situation.driver is None and situation.driver_cuda is None):
        return None
    if situation.trusts_cuda and situation.driver_cuda:
        if release(situation.driver_cuda)[0] >= release(build.cuda)[0]:
            return None
        return f"needs a driver for CUDA {build.cuda}, found one for {situation.driver_cuda}"
    floor = build.driver_floor
    if floor is None or situation.driver is None or _version(situation.driver) >= _version(floor):
        return None
    return f"needs NVIDIA driver {floor}, found {situation.driver}"


def covers_every_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None:
        return None
    missed = {
        f"{gpu.name} ({gpu.compute_capability})": gpu
        for gpu in situation.gpus
        if gpu.compute_capability is not None
        and served_by(build, gpu.compute_capability, situation.driver_cuda) is None
    }
    if not missed:
        return None
    has = " ".join((*build.kernels, *build.ptx))
    return f"has no kernel for {', '.join(missed)}: it carries {has}"


ASKED = (is_asked_torch, is_asked_backend)
FITS = (
    has_this_python,
    libc_reaches,
    macos_reaches,
    driver_reaches,
    covers_every_gpu,
    has_a_gpu,
    uses_the_gpu,
)
CONSTRAINTS = (*ASKED, *FITS)


def fits(build: TorchBuild, situation: Situation) -> bool:
    return all(constraint(build, situation) is None for constraint in CONSTRAINTS)


def why_not(build: TorchBuild, situation: Situation) -> str | None:
    """Every reason why a build does not fit; what was not asked for is no further judged."""
    for constraint in ASKED:
        if (reason := constraint(build, situation)) is not None:
            return reason
    reasons = [r for constraint in FITS if (r := constraint(build, situation)) is not None]
    return "; ".join(reasons) or None


def in_scope(situation: Situation, catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The rows of this platform and of the installer's channels, newest torch first."""
    rows = (
        _on_wsl(build, catalog) if situation.wsl else build
        for build in catalog.builds
        if build.os == situation.family
        and build.machine == situation.machine
        and build.channel in situation.channels
    )
    return tuple(sorted(rows, key=lambda build: _newest_first(build.torch)))


def _on_wsl(build: TorchBuild, catalog: Catalog) -> TorchBuild:
    """A Linux build with the floor of the Windows driver that serves it."""
    if build.cuda is None:
        return build
    return replace(build, driver_floor=catalog.driver_floor(build.cuda, "windows"))


def best_build(situation: Situation, catalog: Catalog) -> TorchBuild | None:
    """The build that `resolve` would choose, and nothing else."""
    torch = None
    fitting: list[TorchBuild] = []
    for build in in_scope(situation, catalog):
        if torch is not None and build.torch != torch:
            break
        if fits(build, situation):
            torch = build.torch
            fitting.append(build)
    return min(fitting, key=_preference(situation), default=None)


# --- the choice ---------------------------------------------------------------------------------


def _preference(situation: Situation) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key: newest torch, channel, the CUDA nearest below the driver's own, then above."""
    own = release(situation.driver_cuda) if situation.driver_cuda else None

    def key(build: TorchBuild) -> tuple[int, ...]:
        cuda = release(build.cuda) if build.cuda else (0, 0)
        channel = CHANNELS.index(build.channel)
        if own is None:
            return (*_newest_first(build.torch), channel, *cuda)
        return (*_newest_first(build.torch), channel, int(cuda > own), -cuda[0], -cuda[1])

    return key


@lru_cache(maxsize=512)
def _newest_first(torch: str) -> tuple[int, ...]:
    return tuple(-part for part in (*_version(torch).release, 0, 0, 0)[:4])


def _fallbacks(fitting: list[TorchBuild], situation: Situation) -> tuple[Choice, ...]:
    same = [build for build in fitting[1:] if build.torch == fitting[0].torch]
    return tuple(
        Choice(torch=b.torch, backend=b.backend, index_url=_where(b))
        for b in same
        if situation.backend == "auto" and b.cuda
    )


def _where(build: TorchBuild) -> str:
    return index_url(build.backend) if build.channel == "pytorch" else build.channel


def _served(build: TorchBuild, situation: Situation) -> tuple[Served, ...]:
    found = []
    for gpu in situation.gpus if build.cuda else ():
        if gpu.compute_capability is None:
            continue
        by = served_by(build, gpu.compute_capability, situation.driver_cuda)
        if by is not None:
            found.append(Served(gpu=gpu.name, compute_capability=gpu.compute_capability, by=by))
    return tuple(found)


def _rejections(
    builds: tuple[TorchBuild, ...],
    fitting: list[TorchBuild],
    situation: Situation,
    catalog: Catalog,
) -> tuple[Rejection, ...]:
    """A reason for every row that is neither the answer nor a fallback."""
    newest = fitting[0].torch if fitting else None
    found = []
    for build in builds:
        reason = why_not(build, situation)
        if reason is None and build.torch != newest:
            reason = f"fits, but torch {newest} is newer"
        if reason is not None:
            found.append(Rejection(torch=build.torch, backend=build.backend, reason=reason))
    return (*found, *_elsewhere(situation, catalog, any_here=bool(builds)))


def _elsewhere(situation: Situation, catalog: Catalog, *, any_here: bool) -> Iterable[Rejection]:
    """Why what was asked for has no row here: another platform's, ROCm's, or never published."""
    here = f"{situation.family} {situation.machine}"
    if not any_here:
        newest = catalog.releases[-1].torch
        for build in catalog.builds:
            if build.torch == newest and build.channel == "pytorch":
                reason = f"is built for {build.os} {build.machine}, this is {here}"
                yield Rejection(torch=newest, backend=build.backend, reason=reason)
    for torch in catalog.other_backends.get(situation.backend, ()):
        reason = "is not for NVIDIA GPUs, and other GPUs are not fitted"
        yield Rejection(torch=torch, backend=situation.backend, reason=reason)
    if not catalog.other_backends.get(situation.backend, True):
        reason = f"has no torch from 1.13 on that the catalog of {catalog.as_of} knows"
        yield Rejection(torch="any", backend=situation.backend, reason=reason)
    if situation.backend != "auto" and situation.backend not in catalog.backends:
        yield Rejection(torch="any", backend=situation.backend, reason="never existed")


def _with_companions(build: TorchBuild, snapshot: Snapshot, catalog: Catalog) -> TorchBuild:
    """The build without a torchvision that refuses this very Python (3.14.1)."""
    row = catalog.release_of(build.torch)
    excluded = row.torchvision_excludes if row else None
    if excluded is None or excluded != snapshot.python.version:
        return build
    return replace(build, torchvision=None)


def _conda_prefix(snapshot: Snapshot) -> str | None:
    return snapshot.python.prefix if snapshot.python.manager == "conda" else None


def _span(pythons: tuple[str, ...]) -> str:
    """`3.9 to 3.12`, with the free-threaded ones named apart."""
    plain = [p for p in pythons if not p.endswith("t")]
    free = [p for p in pythons if p.endswith("t")]
    span = plain[0] if len(plain) == 1 else f"{plain[0]} to {plain[-1]}"
    return f"{span} or {' '.join(free)}" if free else span


@lru_cache(maxsize=1024)
def _version(text: str) -> Version:
    return parsed(text)
