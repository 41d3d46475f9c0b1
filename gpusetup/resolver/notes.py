"""What a reader of a resolution should know besides the build: guesses, ages, what is missing.

Each function gives one note or None; `NOTES` is the list of them.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.accelerators.makers import MAKERS
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.jetpack import FIRST_OF_THOR, UNIFIED, board_of, runs_ordinary_wheels
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.resolution import Resolution
from gpusetup.model.versions import parsed
from gpusetup.resolver.choice import best_build
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


class Told(Frozen):
    """A resolution, and what it is of."""

    found: Resolution
    situation: Situation
    machine: Snapshot
    catalog: Catalog

    @property
    def computes(self) -> bool:
        """Whether the answer is a build for CUDA."""
        return self.found.build is not None and self.found.build.cuda is not None

    @property
    def as_of(self) -> str:
        return f"the catalog of {self.catalog.as_of}"

    def gpus(self, of: Callable[[Gpu], object]) -> list[Gpu]:
        return [gpu for gpu in self.situation.gpus if of(gpu)]


Note = Callable[[Told], str | None]


def notes_on(told: Told) -> tuple[str, ...]:
    """All notes that apply."""
    return tuple(text for note in NOTES if (text := note(told)))


def age_note(as_of: str, today: str) -> str | None:
    """A note for a catalog of more than 120 days; `today` is `YYYY-MM-DD`."""
    from datetime import date

    days = (date.fromisoformat(today) - date.fromisoformat(as_of)).days
    if days <= STALE_DAYS:
        return None
    return f"the catalog is {days} days old ({as_of}): `gpusetup resolve --refresh` asks the index"


def torch_unknown(told: Told) -> str | None:
    if is_any_allowed(told.situation, told.catalog):
        return None
    first, last = told.catalog.releases[0].torch, told.catalog.releases[-1].torch
    return f"no torch is {told.situation.torch_text}: {told.as_of} knows {first} to {last}"


def never_together(told: Told) -> str | None:
    """If the torch and the backend that were asked for exist, but not with one another."""
    asked = told.situation
    if told.found.build or asked.torch is None or asked.backend == "auto":
        return None
    rows = [row for row in told.catalog.builds if row.channel == "pytorch"]
    with_torch = dict.fromkeys(row.backend for row in rows if is_allowed(row.torch, asked))
    with_backend = [row.torch for row in rows if row.backend == asked.backend]
    if not with_torch or asked.backend in with_torch or not with_backend:
        return None
    first, last = min(with_backend, key=parsed), max(with_backend, key=parsed)
    span = first if first == last else f"{first} to {last}"
    return (
        f"torch {asked.torch_text} was never built for {asked.backend}: it is there for "
        f"{', '.join(with_torch)}; {asked.backend} has torch {span}"
    )


NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def no_gpu(told: Told) -> str | None:
    here = told.situation
    if here.presence != "none" or here.family == "macos" or told.found.build is None:
        return None
    if told.computes:
        return "no NVIDIA GPU found: you asked for this build, so it was not checked against one"
    return None if here.backend == "cpu" else NO_GPU


def gpu_unknown(told: Told) -> str | None:
    if not told.computes or told.situation.presence != "unknown":
        return None
    return "the GPU is unknown: gpusetup cannot tell whether the build has kernels for it"


def driver_unknown(told: Told) -> str | None:
    build, here, driver = told.found.build, told.situation, told.machine.driver
    if build is None or not build.cuda or here.driver or here.driver_cuda:
        return None
    absent = driver.module_loaded is False or driver.library_found is False
    what = (
        "no NVIDIA driver was found"
        if absent
        else "the driver is unknown, so a CUDA that most drivers support was chosen"
    )
    return f"{what}: this build needs NVIDIA driver {build.driver_floor or 0} or newer"


def driver_newer(told: Told) -> str | None:
    driver = told.situation.driver
    if driver is None or not told.catalog.driver_is_newer(driver):
        return None
    newest = max(row.branch for row in told.catalog.branches)
    return f"driver {driver} is newer than {told.as_of}: it counts as branch {newest}"


def capability_newer(told: Told) -> str | None:
    known = told.catalog.is_newer_gpu
    for gpu in told.gpus(lambda g: g.compute_capability and known(g.compute_capability)):
        return (
            f"{gpu.name} (compute capability {gpu.compute_capability}) is newer than {told.as_of}: "
            "try `gpusetup resolve --refresh`, or a nightly build of torch"
        )
    return None


def capability_unknown(told: Told) -> str | None:
    for gpu in told.gpus(lambda g: g.compute_capability is None) if told.computes else ():
        return (
            f"the compute capability of {gpu.name} is unknown to {told.as_of}: "
            "gpusetup cannot tell whether the build has kernels for it"
        )
    return None


def driver_without_gpu(told: Told) -> str | None:
    """A driver branch that no longer knows a GPU that is there."""
    driver = told.situation.driver
    for gpu in told.gpus(lambda g: g.compute_capability) if driver else ():
        last = gpu.compute_capability and told.catalog.last_branch(gpu.compute_capability)
        later = [row.branch for row in told.catalog.branches if last and row.branch > last]
        if later and parsed(driver or "0").major >= min(later):
            return f"driver {driver} no longer knows {gpu.name}: {last} is its last branch"
    return None


def guessed(told: Told) -> str | None:
    known = {"the system": told.machine.os.family, "the architecture": told.machine.os.machine}
    unknown = [name for name, value in known.items() if value is None]
    if not unknown:
        return None
    return f"{' and '.join(unknown)} is not known: Linux on x86_64 is assumed where it is missing"


def jetson(told: Told) -> str | None:
    if board_of(told.machine) is None:
        return None
    known = told.situation.jetpack
    chips = [gpu.compute_capability for gpu in told.situation.gpus if gpu.compute_capability]
    if known is not None and runs_ordinary_wheels(known, chips):
        return f"{known.name} (CUDA {known.cuda}) runs torch's own aarch64 wheels"
    own = f" (for {known.name}: {known.wheels})" if known and known.wheels else ""
    return (
        f"a Jetson runs torch's own aarch64 wheels from {UNIFIED.name} (CUDA {UNIFIED.cuda}) on, "
        f"Thor from {FIRST_OF_THOR.name}: before that use the wheels that NVIDIA builds for its "
        f"JetPack{own}"
    )


def torchvision_left_out(told: Told) -> str | None:
    build = told.found.build
    row = told.catalog.release_of(build.torch) if build else None
    if row is None or build is None or build.torchvision == row.torchvision:
        return None
    python = told.machine.python.version
    return f"torchvision {row.torchvision} excludes Python {python}, and is left out"


def other_vendor(told: Told) -> str | None:
    there = vendors_of(told.machine)
    for maker in MAKERS if told.situation.presence == "none" else ():
        if maker.noted and maker.id in there:
            only = "but only NVIDIA GPUs are fitted here"
            return f"an {maker.name} GPU was found: {maker.noted}, {only}"
    return None


def conda_instead(told: Told) -> str | None:
    conda = told.found.conda
    if told.found.build is not None or conda is None or not conda.cuda:
        return None
    return (
        f"conda has torch {conda.torch} with CUDA {conda.cuda} that fits "
        f"({conda.channel}): `gpusetup resolve --installer conda`"
    )


def conda_older(told: Told) -> str | None:
    """If conda's channels are behind the wheels, for who uses conda."""
    wheels, conda, channels = told.found.build, told.found.conda, told.situation.channels
    if channels == WHEELS and told.machine.python.manager != "conda":
        return None
    if channels == CONDA_CHANNELS:
        by_wheels = replace(told.situation, channels=WHEELS)
        wheels, conda = best_build(by_wheels, told.catalog), wheels
    if wheels is None or conda is None or parsed(conda.torch) >= parsed(wheels.torch):
        return None
    return (
        f"conda ({conda.channel}) answers an older torch: {conda.torch} ({conda.backend}) "
        f"instead of {wheels.torch} ({wheels.backend})"
    )


def build_inferred(told: Told) -> str | None:
    build = told.found.build
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
    other_vendor,
    conda_instead,
    conda_older,
    build_inferred,
)
