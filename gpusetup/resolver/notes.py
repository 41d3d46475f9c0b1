"""What a reader of a resolution should know besides the build: guesses, ages, what is missing.

Each function gives one note or None; `NOTES` is the list of them.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.accelerators.makers import MAKERS
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.jetpack import FIRST_OF_THOR, UNIFIED, board_of, runs_ordinary_wheels
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.choice import best_build
from gpusetup.resolver.companions import left_behind
from gpusetup.resolver.held import vendors_of
from gpusetup.resolver.situation import (
    CONDA_CHANNELS,
    WHEELS,
    Situation,
    is_allowed,
    is_any_allowed,
)

STALE_DAYS = 120
"""From this age on a catalog says so."""

Note = Callable[[Resolution, Situation, Snapshot, Catalog], str | None]


def notes_on(
    found: Resolution, situation: Situation, snapshot: Snapshot, catalog: Catalog
) -> tuple[str, ...]:
    """All notes that apply."""
    asked = (note(found, situation, snapshot, catalog) for note in NOTES)
    return tuple(text for text in asked if text)


def age_note(catalog: Catalog, today: str) -> str | None:
    """A note for a catalog of more than 120 days; `today` is `YYYY-MM-DD`."""
    from datetime import date

    days = (date.fromisoformat(today) - date.fromisoformat(catalog.as_of)).days
    if days <= STALE_DAYS:
        return None
    return (
        f"the catalog is {days} days old ({catalog.as_of}): "
        "`gpusetup resolve --refresh` asks the index"
    )


def torch_unknown(
    _: Resolution, situation: Situation, __: Snapshot, catalog: Catalog
) -> str | None:
    if is_any_allowed(situation, catalog):
        return None
    first, last = catalog.releases[0].torch, catalog.releases[-1].torch
    return (
        f"no torch is {situation.torch_text}: the catalog of {catalog.as_of} knows "
        f"{first} to {last}"
    )


def never_together(
    found: Resolution, situation: Situation, _: Snapshot, catalog: Catalog
) -> str | None:
    """Where the torch and the backend that were asked for exist, but not with one another."""
    if found.build or situation.torch is None or situation.backend == "auto":
        return None
    rows = [row for row in catalog.builds if row.channel == "pytorch"]
    with_torch = {row.backend for row in rows if is_allowed(row.torch, situation)}
    with_backend = [row.torch for row in rows if row.backend == situation.backend]
    if not with_torch or situation.backend in with_torch or not with_backend:
        return None
    torches = sorted(set(with_backend), key=parsed)
    span = torches[0] if len(torches) == 1 else f"{torches[0]} to {torches[-1]}"
    return (
        f"torch {situation.torch_text} was never built for {situation.backend}: it is there for "
        f"{', '.join(sorted(with_torch, key=_by_number))}; {situation.backend} has torch {span}"
    )


def _by_number(backend: str) -> tuple[str, int]:
    """`cu92` before `cu118`, `cpu` first."""
    digits = "".join(c for c in backend if c.isdigit())
    return backend.rstrip("0123456789."), int(digits or 0)


NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def no_gpu(found: Resolution, situation: Situation, _: Snapshot, __: Catalog) -> str | None:
    if situation.presence != "none" or situation.family == "macos" or found.build is None:
        return None
    if found.build.cuda:
        return (
            "no NVIDIA GPU was found here: this build was asked for, it is not judged against a GPU"
        )
    if situation.backend == "cpu":
        return None
    return NO_GPU


def gpu_unknown(found: Resolution, situation: Situation, _: Snapshot, __: Catalog) -> str | None:
    if found.build is None or not found.build.cuda or situation.presence != "unknown":
        return None
    return "the GPU is unknown: whether the build has kernels for it was not judged"


def driver_unknown(
    found: Resolution, situation: Situation, snapshot: Snapshot, _: Catalog
) -> str | None:
    if found.build is None or not found.build.cuda or situation.driver or situation.driver_cuda:
        return None
    absent = snapshot.driver.module_loaded is False or snapshot.driver.library_found is False
    what = (
        "no NVIDIA driver was found"
        if absent
        else "the driver is unknown, so a CUDA that most drivers serve was chosen"
    )
    return f"{what}: this build needs NVIDIA driver {found.build.driver_floor or 0} or newer"


def driver_newer(_: Resolution, situation: Situation, __: Snapshot, catalog: Catalog) -> str | None:
    if situation.driver is None or not catalog.driver_is_newer(situation.driver):
        return None
    newest = max(row.branch for row in catalog.branches)
    return (
        f"driver {situation.driver} is newer than the catalog of {catalog.as_of}: "
        f"it counts as branch {newest}"
    )


def capability_newer(
    _: Resolution, situation: Situation, __: Snapshot, catalog: Catalog
) -> str | None:
    newer = [
        gpu
        for gpu in situation.gpus
        if gpu.compute_capability is not None and catalog.is_newer_gpu(gpu.compute_capability)
    ]
    if not newer:
        return None
    gpu = newer[0]
    return (
        f"{gpu.name} (compute capability {gpu.compute_capability}) is newer than the catalog of "
        f"{catalog.as_of}: try `gpusetup resolve --refresh`, or a nightly build of torch"
    )


def capability_unknown(
    found: Resolution, situation: Situation, _: Snapshot, catalog: Catalog
) -> str | None:
    nameless = [gpu.name for gpu in situation.gpus if gpu.compute_capability is None]
    if not nameless or found.build is None or not found.build.cuda:
        return None
    return (
        f"the compute capability of {nameless[0]} is unknown to the catalog of {catalog.as_of}: "
        "whether the build has kernels for it was not judged"
    )


def driver_without_gpu(
    _: Resolution, situation: Situation, __: Snapshot, catalog: Catalog
) -> str | None:
    """A driver branch that no longer knows a GPU that is there."""
    for gpu in situation.gpus if situation.driver else ():
        last = catalog.last_branch(gpu.compute_capability) if gpu.compute_capability else None
        following = min(
            (b.branch for b in catalog.branches if last and b.branch > last), default=None
        )
        if following and parsed(situation.driver or "0").major >= following:
            return (
                f"driver {situation.driver} no longer knows {gpu.name}: {last} is its last branch"
            )
    return None


def guessed(_: Resolution, __: Situation, snapshot: Snapshot, ___: Catalog) -> str | None:
    known = {"the system": snapshot.os.family, "the architecture": snapshot.os.machine}
    unknown = [name for name, value in known.items() if value is None]
    if not unknown:
        return None
    return f"{' and '.join(unknown)} is not known: Linux on x86_64 is assumed where it is missing"


def jetson(_: Resolution, situation: Situation, snapshot: Snapshot, ___: Catalog) -> str | None:
    board = board_of(snapshot)
    if board is None:
        return None
    known = situation.jetpack
    chips = [gpu.compute_capability for gpu in situation.gpus if gpu.compute_capability]
    if known is not None and runs_ordinary_wheels(known, chips):
        return f"{known.name} (CUDA {known.cuda}) runs torch's own aarch64 wheels"
    own = f" (for {known.name}: {known.wheels})" if known and known.wheels else ""
    return (
        f"a Jetson runs torch's own aarch64 wheels from {UNIFIED.name} (CUDA {UNIFIED.cuda}) on, "
        f"Thor from {FIRST_OF_THOR.name}: before that use the wheels that NVIDIA builds for its "
        f"JetPack{own}"
    )


def torchvision_left_out(
    found: Resolution, _: Situation, snapshot: Snapshot, catalog: Catalog
) -> str | None:
    row = catalog.release_of(found.build.torch) if found.build else None
    if row is None or found.build is None or found.build.torchvision == row.torchvision:
        return None
    return (
        f"torchvision {row.torchvision} excludes Python {snapshot.python.version}, and is left out"
    )


def torchaudio_left_out(
    found: Resolution, _: Situation, snapshot: Snapshot, catalog: Catalog
) -> str | None:
    """An installed torchaudio that cannot follow: no index is known to have one for this build."""
    build = found.build
    here = any(package.name == "torchaudio" for package in snapshot.packages or ())
    if build is None or build.torchaudio or not here:
        return None
    if "torchaudio" not in left_behind(snapshot, build.torch, build.backend, catalog):
        return None
    others = sorted({b.backend for b in catalog.builds if _has_torchaudio(b, build)})
    way = f": it is known for {', '.join(others)} (`--backend`)" if others else ""
    return f"no torchaudio is known for torch {build.torch} {build.backend}{way}"


def _has_torchaudio(other: TorchBuild, build: TorchBuild) -> bool:
    same = (other.torch, other.os, other.machine, other.channel) == (
        build.torch,
        build.os,
        build.machine,
        build.channel,
    )
    return same and other.torchaudio is not None and other.cuda is not None


def other_vendor(
    _: Resolution, situation: Situation, snapshot: Snapshot, __: Catalog
) -> str | None:
    there = (maker for maker in MAKERS if maker.noted and maker.id in vendors_of(snapshot))
    if situation.presence != "none" or (one := next(there, None)) is None:
        return None
    return f"an {one.name} GPU was found: {one.noted}, but only NVIDIA GPUs are fitted here"


def conda_instead(found: Resolution, _: Situation, __: Snapshot, ___: Catalog) -> str | None:
    if found.build is not None or found.conda is None or not found.conda.cuda:
        return None
    return (
        f"conda has torch {found.conda.torch} with CUDA {found.conda.cuda} that fits "
        f"({found.conda.channel}): `gpusetup resolve --installer conda`"
    )


def conda_older(
    found: Resolution, situation: Situation, snapshot: Snapshot, catalog: Catalog
) -> str | None:
    """Where conda's channels are behind the wheels, for who uses conda."""
    wheels, conda = found.build, found.conda
    if situation.channels == WHEELS and snapshot.python.manager != "conda":
        return None
    if situation.channels == CONDA_CHANNELS:
        wheels, conda = best_build(replace(situation, channels=WHEELS), catalog), found.build
    if wheels is None or conda is None or parsed(conda.torch) >= parsed(wheels.torch):
        return None
    return (
        f"conda ({conda.channel}) answers an older torch: {conda.torch} ({conda.backend}) "
        f"instead of {wheels.torch} ({wheels.backend})"
    )


def build_inferred(found: Resolution, _: Situation, __: Snapshot, ___: Catalog) -> str | None:
    build = found.build
    if build is None or build.status != "inferred":
        return None
    why = build.note or "concluded from neighbouring releases"
    return f"what is known of torch {build.torch} {build.backend} is inferred: {why}"


NOTES: tuple[Note, ...] = (
    torch_unknown,
    never_together,
    no_gpu,
    gpu_unknown,
    driver_unknown,
    driver_newer,
    capability_newer,
    capability_unknown,
    driver_without_gpu,
    guessed,
    jetson,
    torchvision_left_out,
    torchaudio_left_out,
    other_vendor,
    conda_instead,
    conda_older,
    build_inferred,
)
