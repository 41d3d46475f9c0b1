"""Replaces parts of a machine's snapshot with the values that a user describes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gpusetup.accelerators.makers import APPLE, NVIDIA
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.gpus import gpu_of_any_maker, platform_of
from gpusetup.catalog.jetpack import is_board_gpu
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    Driver,
    Os,
    Python,
    Snapshot,
    Torch,
    Wanted,
)
from gpusetup.model.versions import parsed

Family = Literal["linux", "windows", "macos"]


class Description(Frozen):
    """The parts of a machine that a user describes; None or an empty value keeps what was read."""

    driver: str | None = None
    gpus: tuple[str, ...] = ()
    os: Family | None = None
    machine: str | None = None
    """The processor architecture: `x86_64` or `aarch64`."""
    python: str | None = None
    glibc: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether driver, GPUs, system and Python are all described, so that gpusetup need not read
        the driver."""
        return None not in (self.driver, self.os, self.python) and bool(self.gpus)


def described(snapshot: Snapshot, description: Description, catalog: Catalog) -> Snapshot:
    """The snapshot with the described values. Raises UsageError if they are invalid or contradict
    each other."""
    if description == Description():
        return snapshot
    family = description.os or snapshot.os.family
    _check(description, family, catalog)
    snapshot = replace(
        snapshot,
        origin="composed",
        python=replace(snapshot.python, executable=None, prefix=None),
    )
    if description.os not in (None, snapshot.os.family):
        # Every Mac that torch still supports has an Apple chip, and a described Python is a 64-bit
        # one.
        usual = "aarch64" if description.os == "macos" else snapshot.os.machine
        version, is_free_threaded = snapshot.python.version, snapshot.python.free_threaded
        snapshot = replace(
            _without_driver(snapshot),
            os=Os(family=description.os, machine=description.machine or usual),
            python=Python(version=version, free_threaded=is_free_threaded, bits=64),
        )
    elif description.machine:
        snapshot = replace(snapshot, os=replace(snapshot.os, machine=description.machine))
    if description.glibc:
        os = replace(snapshot.os, libc=f"glibc {description.glibc}")
        snapshot = replace(snapshot, os=os)
    if description.python:
        version = description.python.rstrip("t")
        is_free_threaded = description.python.endswith("t")
        python = Python(version=version, free_threaded=is_free_threaded)
        snapshot = replace(snapshot, python=python)
    if description.driver:
        driver = description.driver.strip()
        if not re.fullmatch(r"\d{3}(\.\d+){0,3}", driver):
            raise UsageError(
                f"{description.driver!r} is not a version of an NVIDIA driver",
                hint="for example `580.95.05`: `nvidia-smi` prints it as `Driver Version`",
            )
        # A branch alone (`580`) means the first driver of that branch that supports a CUDA version.
        first_drivers = filter(None, (row.on(family or "linux") for row in catalog.toolkits))
        of_branch = [first for first in first_drivers if first.partition(".")[0] == driver]
        driver = min(of_branch, key=parsed, default=driver)
        # The GPUs no longer count as listed by the driver.
        gpus = tuple(replace(gpu, uuid=None, nvml_index=None) for gpu in snapshot.gpus or ())
        snapshot = replace(
            _without_driver(snapshot),
            driver=Driver(version=driver),
            pci_devices=None,
            gpus=gpus or None,
        )
    if description.gpus:
        named = [gpu_of_any_maker(name, catalog.gpus) for name in description.gpus]
        snapshot = replace(snapshot, gpus=tuple(named), pci_devices=None)
    return snapshot


def _without_driver(snapshot: Snapshot) -> Snapshot:
    """The snapshot without everything that the driver reported, and without the container, of which
    cuda-compat is a part."""
    return replace(snapshot, driver=Driver(), cuda_api=CudaApi(), container=Container())


def completed_by_gpus(description: Description, catalog: Catalog) -> Description:
    """The description completed with the system and machine type, if its GPUs exist on only one;
    otherwise unchanged.

    For example, a Jetson or a GB200 needs an aarch64 Linux, and an Apple chip needs a Mac. A system
    that the user names takes precedence. Raises UsageError for an Apple chip in another system.
    """
    platforms = {platform_implied(name, catalog) for name in description.gpus}
    implied = platforms.pop() if len(platforms) == 1 else None
    if implied is None:
        return description
    family, _, machine = implied.partition("-")
    if family == "macos" and description.os not in (None, "macos"):
        raise UsageError(
            f"{description.gpus[0]!r} is a chip of Apple, and `--os {description.os}` is not a "
            "Mac's system",
            hint="leave out `--os`",
        )
    if description.os not in (None, family):
        return description
    return replace(description, os=family, machine=description.machine or machine)


def platform_implied(name: str, catalog: Catalog) -> str | None:
    """The only platform on which a GPU exists, such as `linux-aarch64`; None if there are
    several."""
    gpu = gpu_of_any_maker(name, catalog.gpus)
    if gpu.maker == APPLE.id:
        return "macos-aarch64"
    # The GPU of a Jetson or a GB10.
    if is_board_gpu(gpu):
        return "linux-aarch64"
    return platform_of(name, catalog.gpus)


def _check(description: Description, family: str | None, catalog: Catalog) -> None:
    """Raise UsageError for an invalid Python or glibc version, or for a driver or a GPU of another
    maker on macOS."""
    for value, pattern, meaning, example in (
        (description.python, r"\d+\.\d+(\.\d+)?t?", "Python version", "`3.11` or `3.13t`"),
        (description.glibc, r"\d+\.\d+", "glibc version", "`2.35`"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            raise UsageError(f"{value!r} is not a valid {meaning}", hint=f"for example {example}")
    platforms = [platform_implied(name, catalog) for name in description.gpus]
    has_other_gpus = any(platform != "macos-aarch64" for platform in platforms)
    if family == "macos" and (description.driver or has_other_gpus):
        raise UsageError(
            "On macOS, torch uses Apple's GPU or the CPU, so a driver or another vendor's card "
            "makes no difference",
            hint="leave out `--driver` and `--gpu`, or choose the system with `--os`",
        )


def without_torch(machine: Snapshot) -> Snapshot:
    """The snapshot with an empty environment: nothing is installed, and no request is shown."""
    return replace(machine, torch=Torch(installed=False), packages=(), wanted=Wanted())


def for_host(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """The snapshot of this environment on another host, which has the named GPUs and driver."""
    # Drop variables that hide GPUs, and errors of our own queries to this machine's driver, because
    # they do not apply to the other host.
    environment = {
        name: value for name, value in snapshot.environment.items() if name not in NVIDIA.masks
    }
    events = tuple(event for event in snapshot.events if event.kind != "child-failed")
    bare = replace(
        _without_driver(snapshot),
        gpus=None,
        pci_devices=None,
        devices=None,
        environment=environment,
        readings=(),
        events=events,
    )
    other_host = described(bare, Description(driver=driver, gpus=tuple(names)), catalog)
    container = replace(snapshot.container, cuda_compat_path=None)
    return replace(other_host, python=snapshot.python, container=container)
