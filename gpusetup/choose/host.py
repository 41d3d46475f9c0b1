"""The host for which a build is chosen: its snapshot, and the facts that decide what fits."""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.accelerators.makers import Maker, judged_on
from gpusetup.catalog.builds import Catalog, Channel, completed
from gpusetup.catalog.facts import JetPack
from gpusetup.catalog.jetpack import board_of, jetpack_of
from gpusetup.choose.other_makers import gpus_of_any_maker, maker_to_serve
from gpusetup.choose.wish import Wish, allows_torch
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu, Snapshot, visible_gpus
from gpusetup.model.versions import parsed

CONDA_CHANNELS: tuple[Channel, ...] = ("conda-pytorch", "conda-forge")
WHEELS: tuple[Channel, ...] = ("pytorch",)
CHANNELS = (*WHEELS, *CONDA_CHANNELS)
"""The channels in order of preference, if several have the same torch."""
Presence = Literal["some", "none", "unknown"]


class HostFacts(Frozen):
    """The facts that decide which builds fit, as plain values so that results can be cached."""

    family: str
    architecture: str
    driver_system: str
    """The system whose driver version numbers apply: `windows` on WSL."""
    python: str | None
    """The Python version, such as `3.11` or `3.13t`; None if unknown."""
    python_bits: int | None
    libc: str | None
    """The C library, such as `glibc 2.35` or `musl 1.2.5`; None if unknown."""
    macos: str | None
    driver: str | None
    driver_cuda: str | None
    """The newest CUDA version that the driver supports; None if the driver is unknown."""
    trusts_cuda: bool
    """Whether the CUDA version that the driver reports decides instead of its version number, for
    example because cuda-compat raises it."""
    jetpack: JetPack | None
    """The JetPack of a Jetson, whose driver has its own version numbers."""
    board: str | None
    """The text which shows that this is a Jetson."""
    gpus: tuple[Gpu, ...]
    first_drivers: tuple[tuple[str, str], ...]
    """The GPUs that no driver has listed, with the first driver for each: `("RTX 5090", "570")`."""
    presence: Presence
    """Whether there is an NVIDIA GPU; `none` only if a source explicitly reported that."""
    assumed_driver: str | None = None
    """The version that an unknown driver is assumed to have at least; None if it is known."""


class Host(Frozen):
    """A machine on which torch is to be installed."""

    machine: Snapshot
    facts: HostFacts


class BuildQuestion(Frozen):
    """Everything by which a build is judged."""

    wish: Wish
    host: HostFacts
    catalog: Catalog
    maker: Maker | None = None
    """AMD or Intel, if the build is for their GPUs."""
    maker_gpus: tuple[Gpu, ...] = ()

    @property
    def platform(self) -> str:
        """The host's platform, such as `linux-x86_64`."""
        return f"{self.host.family}-{self.host.architecture}"

    @property
    def backend(self) -> str:
        """The requested backend; `auto` if any is accepted."""
        return self.wish.wanted_backend

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels from which a build may come."""
        # In one environment, a conda torch and a torch wheel would hide each other.
        return CONDA_CHANNELS if self.wish.installer == "conda" else WHEELS

    def allows_version(self, torch: str) -> bool:
        """Whether the request allows this torch version."""
        return allows_torch(self.wish.torch, torch)

    def allows(self, build: TorchBuild) -> bool:
        """Whether the request allows this build, whatever the host needs."""
        return self.allows_version(build.torch) and self.backend in ("auto", build.backend)


def question_of(wish: Wish, host: Host, catalog: Catalog) -> BuildQuestion:
    """A question: which torch build meets this request on this host?"""
    maker = maker_to_serve(wish, host.machine, host.facts.presence)
    # Answers are cached by their question, so it contains only what decides: not the other packages
    # of the request, and of a GPU neither its load nor its temperature.
    maker_gpus = tuple(
        Gpu(name=gpu.name, maker=gpu.maker, target=gpu.target)
        for gpu in gpus_of_any_maker(host.machine)
        if maker and gpu.maker == maker.id
    )
    return BuildQuestion(
        wish=wish.of_torch_alone,
        host=host.facts,
        catalog=catalog,
        maker=maker,
        maker_gpus=maker_gpus,
    )


def host_of(machine: Snapshot, catalog: Catalog) -> Host:
    """The machine as a host, with the facts that decide which builds fit. If the machine does not
    show a fact, such as the driver's CUDA version, it comes from the catalog."""
    os, driver = machine.os, machine.driver
    gpus = gpus_to_serve(machine, catalog)
    board = board_of(machine)
    jetpack = jetpack_of(board)
    driver_cuda = driver.cuda or (jetpack.cuda if jetpack else None)
    if driver_cuda is None and driver.version:
        driver_cuda = catalog.driver_cuda(driver.version)
    # An empty list means that a source found no GPU; None means that no source responded. No Mac
    # that torch supports has an NVIDIA GPU. A driver that responds may have a GPU not listed.
    has_driver = bool(driver.cuda or driver.version)
    presence: Presence = "some" if gpus else "unknown"
    if not gpus and not has_driver and (machine.gpus == () or os.family == "macos"):
        presence = "none"
    # A Jetson's driver is part of its JetPack.
    is_assumed = not has_driver and not board
    facts = HostFacts(
        family=os.family or "linux",
        architecture=os.machine or "x86_64",
        driver_system=driver_family(machine),
        python=python_tag(machine),
        python_bits=machine.python.bits,
        libc=os.libc,
        macos=os.version if os.family == "macos" else None,
        driver=driver.version,
        driver_cuda=driver_cuda,
        # Without a driver version, with a Jetson's, or with cuda-compat, the version does not tell
        # which CUDA is supported: what the driver itself says is believed.
        trusts_cuda=not driver.version or bool(machine.container.cuda_compat_path or board),
        jetpack=jetpack,
        board=board,
        gpus=tuple(Gpu(name=g.name, compute_capability=g.compute_capability) for g in gpus),
        first_drivers=first_drivers(machine, catalog),
        presence=presence,
        assumed_driver=assumed_driver(machine, catalog) if is_assumed else None,
    )
    return Host(machine=machine, facts=facts)


def assumed_driver(machine: Snapshot, catalog: Catalog) -> str | None:
    """The driver version that is assumed if the driver is unknown: one that supports each of the
    GPUs, and the second-newest CUDA major version, as most drivers do. None if neither says it."""
    # The least driver of each CUDA major version.
    floors = filter(None, (row.on(driver_family(machine)) for row in catalog.families))
    # Empty if the catalog has only one CUDA major version for this system.
    second_newest = sorted(floors, key=parsed)[-2:-1]
    for_gpus = (first_driver for _, first_driver in first_drivers(machine, catalog))
    return max((*second_newest, *for_gpus), key=parsed, default=None)


def driver_family(machine: Snapshot) -> str:
    """The system whose driver version numbers apply: WSL uses the Windows driver."""
    return "windows" if machine.os.wsl else machine.os.family or "linux"


def python_tag(machine: Snapshot) -> str | None:
    """The Python version as wheels name it: `3.11`, or `3.13t` without the GIL; None if unknown."""
    version = machine.python.version or ""
    release = re.match(r"\d+\.\d+", version)
    suffix = "t" if machine.python.free_threaded or version.endswith("t") else ""
    return f"{release[0]}{suffix}" if release else None


def gpus_to_serve(machine: Snapshot, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs that the build must support. These are the visible ones, all of them if a variable
    hides them (a program may unset it), or without any driver NVIDIA's GPUs on the PCI bus."""
    present = [gpu for gpu in machine.gpus or () if not gpu.lost]
    gpus = list(visible_gpus(machine)) or present
    if not gpus:
        for device in judged_on(machine.pci_devices):
            name = device.name or catalog.name_on_pci(device.device_id) or "NVIDIA GPU"
            # `lspci` prints `GA102 [GeForce RTX 3090]`; the catalog knows the name in brackets.
            gpus.append(Gpu(name=name.partition("[")[2].partition("]")[0] or name))
    return tuple(completed(gpu, catalog) for gpu in gpus)


def first_drivers(machine: Snapshot, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """The GPUs that no driver has listed, each with the first driver version that supports it, as
    far as that is known. Empty for a Jetson."""
    # A Jetson's driver has its own version numbers.
    if board_of(machine):
        return ()
    drivers = []
    for gpu in gpus_to_serve(machine, catalog):
        # A driver that listed the GPU supports it.
        is_listed = gpu.uuid or gpu.nvml_index is not None or gpu.cuda_index is not None
        first = None if is_listed else catalog.first_driver(gpu, driver_family(machine))
        if first:
            drivers.append((gpu.name, first))
    return tuple(dict.fromkeys(drivers))
