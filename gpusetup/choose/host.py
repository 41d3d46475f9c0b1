"""The host that a build must serve: its snapshot, and what the constraints look at, parsed once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpusetup.accelerators.makers import judged_on
from gpusetup.catalog.builds import Catalog, Channel, completed
from gpusetup.catalog.facts import JetPack, pci_name
from gpusetup.catalog.jetpack import board_of, jetpack_of
from gpusetup.choose.wish import Wish, allows_torch
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Snapshot, visible_gpus
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

CONDA_CHANNELS: tuple[Channel, ...] = ("conda-pytorch", "conda-forge")
WHEELS: tuple[Channel, ...] = ("pytorch",)
CHANNELS = (*WHEELS, *CONDA_CHANNELS)
"""Of the same torch the one from the previous channel is taken."""
Presence = Literal["some", "none", "unknown"]


class HostFacts(Frozen):
    """What the constraints look at: plain values, so that answers about them can be kept."""

    family: str
    architecture: str
    floors: str
    """Whose numbers the driver has: `windows` on WSL."""
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
    jetpack: JetPack | None
    """The release of a Jetson, whose driver is numbered apart."""
    board: str | None
    """What says that this is a Jetson."""
    gpus: tuple[Gpu, ...]
    first_drivers: tuple[tuple[str, str], ...]
    """GPUs that no driver listed, and the first driver that knows each: `("RTX 5090", "570")`."""
    presence: Presence
    """Whether there is an NVIDIA GPU; `none` only if a source said so."""
    assumed_driver: str | None = None
    """What an unknown driver is taken to reach; None for a known one."""


class Host(Frozen):
    """A machine that gets torch: its snapshot, and the facts of it that builds are judged by."""

    machine: Snapshot
    facts: HostFacts


class BuildQuestion(Frozen):
    """What one build is judged by: the wish for torch, the host's facts, and the catalog."""

    wish: Wish
    host: HostFacts
    catalog: Catalog

    @property
    def backend(self) -> str:
        """The backend that is wanted; `auto` for any."""
        return self.wish.wanted_backend

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels whose builds may be chosen."""
        return CONDA_CHANNELS if self.wish.installer == "conda" else WHEELS

    def takes(self, torch: str) -> bool:
        """Whether the wish allows a torch."""
        return allows_torch(self.wish.torch, torch)

    def by_conda(self) -> BuildQuestion:
        """The same question to conda's channels."""
        return replace(self, wish=replace(self.wish, installer="conda"))


def question_of(wish: Wish, host: Host, catalog: Catalog) -> BuildQuestion:
    """The question which build of torch serves a wish on a host."""
    return BuildQuestion(wish=wish.of_torch_alone, host=host.facts, catalog=catalog)


# --- reading a snapshot ---------------------------------------------------------------------------


def host_of(machine: Snapshot, catalog: Catalog) -> Host:
    """A machine as a host; a text that wants another Python is about that Python."""
    if machine.wanted.python and not is_a_step_back(machine):
        wanted = replace(machine.python, version=machine.wanted.python)
        machine = replace(machine, python=wanted)
    return Host(machine=machine, facts=facts_of(machine, catalog))


LACKS_KERNELS = ("gpu-not-in-wheel", "no-kernel-image")
"""Events of a torch without kernels: what an old document asks for does not bring them."""


def is_a_step_back(machine: Snapshot) -> bool:
    """Whether a document asks for an older release than the one that lacks kernels."""
    lacks_kernels = any(event.kind in LACKS_KERNELS for event in machine.events)
    installed = (machine.torch.version or "").partition("+")[0]
    pin = machine.wanted.torch or ""
    is_report = machine.origin == "report"
    if not (is_report and lacks_kernels and installed and pin.startswith("==")):
        return False
    release = pin.removeprefix("==").removesuffix(".*")
    return parsed(release) < parsed(installed)


def facts_of(machine: Snapshot, catalog: Catalog) -> HostFacts:
    """What the constraints look at of a machine."""
    os, driver = machine.os, machine.driver
    gpus = gpus_to_serve(machine, catalog)
    board = board_of(machine)
    jetpack = jetpack_of(board)
    driver_cuda = driver.cuda or (jetpack.cuda if jetpack else None)
    if driver_cuda is None and driver.version:
        driver_cuda = catalog.driver_cuda(driver.version)
    return HostFacts(
        family=os.family or "linux",
        architecture=os.machine or "x86_64",
        floors=driver_family(machine),
        python=python_tag(machine),
        python_bits=machine.python.bits,
        libc=os.libc,
        macos=os.version if os.family == "macos" else None,
        driver=driver.version,
        driver_cuda=driver_cuda,
        # A Jetson's driver and cuda-compat serve a CUDA that the version does not tell.
        trusts_cuda=not driver.version or bool(machine.container.cuda_compat_path or board),
        jetpack=jetpack,
        board=board,
        gpus=tuple(Gpu(name=g.name, compute_capability=g.compute_capability) for g in gpus),
        first_drivers=first_drivers(machine, catalog),
        presence=presence_of(machine, gpus),
        assumed_driver=assumed_driver(machine, catalog),
    )


def presence_of(machine: Snapshot, gpus: tuple[Gpu, ...]) -> Presence:
    """Whether there is an NVIDIA GPU. A driver that answers speaks for one that is not listed."""
    if gpus:
        return "some"
    driver_answers = bool(machine.driver.cuda or machine.driver.version)
    is_denied = machine.gpus == () or machine.os.family == "macos"
    return "none" if is_denied and not driver_answers else "unknown"


def assumed_driver(machine: Snapshot, catalog: Catalog) -> str | None:
    """The driver that an unknown one is taken to be; None where the driver or the board is known.

    It is taken to serve the last CUDA major but one, as most drivers do, and to start each GPU.
    """
    driver = machine.driver
    if driver.version or driver.cuda or board_of(machine):
        return None
    floors = driver_family(machine)
    of_majors = [floor for row in catalog.families if (floor := row.on(floors))]
    last_but_one = sorted(of_majors, key=parsed)[-2:-1]
    of_gpus = [first for _, first in first_drivers(machine, catalog)]
    return max((*last_but_one, *of_gpus), key=parsed, default=None)


def driver_family(machine: Snapshot) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if machine.os.wsl else machine.os.family or "linux"


def python_tag(machine: Snapshot) -> str | None:
    """The interpreter as wheels name it: `3.11`, `3.13t`; None when unknown."""
    version = machine.python.version or ""
    release = re.match(r"\d+\.\d+", version)
    if release is None:
        return None
    is_free_threaded = machine.python.free_threaded or version.endswith("t")
    return f"{release[0]}t" if is_free_threaded else release[0]


def gpus_to_serve(machine: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs to serve: the visible ones; all if a variable hides every one; else PCI's."""
    present = tuple(gpu for gpu in machine.gpus or () if not gpu.lost)
    visible = visible_gpus(machine) if present else ()
    gpus = visible or present or tuple(gpus_on_pci(machine))
    return tuple(completed(gpu, catalog)[0] for gpu in gpus)


def gpus_on_pci(machine: Snapshot) -> Iterator[Gpu]:
    """NVIDIA's GPUs as the PCI bus names them: `GA107M [GeForce RTX 3050]`."""
    for device in judged_on(machine.pci_devices):
        name = device.name or pci_name(device.device_id) or "NVIDIA GPU"
        marketing_name = name.partition("[")[2].partition("]")[0]
        yield Gpu(name=marketing_name or name)


def first_drivers(machine: Snapshot, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """The GPUs that no driver listed, each with the first driver that knows it.

    A GPU that a driver listed is known to it; the driver of a Jetson is numbered apart.
    """
    if board_of(machine):
        return ()
    floors = driver_family(machine)
    drivers: dict[tuple[str, str], None] = {}
    for gpu in gpus_to_serve(machine, catalog):
        is_listed = gpu.uuid or gpu.nvml_index is not None or gpu.cuda_index is not None
        first = None if is_listed else catalog.first_driver(gpu, floors)
        if first:
            drivers[gpu.name, first] = None
    return tuple(drivers)
