"""Another machine than the one that was read: what is given replaces it, the rest stays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gpusetup.accelerators.makers import APPLE, NVIDIA
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.gpus import gpu_described, gpu_of_any_maker, platform_of
from gpusetup.catalog.jetpack import is_board_gpu
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Container, CudaApi, Driver, Os, Python, Snapshot
from gpusetup.resolver.spelled import driver_named

Family = Literal["linux", "windows", "macos"]


class Description(Frozen):
    """What somebody says about a machine; None is what the read machine keeps."""

    driver: str | None = None
    gpus: tuple[str, ...] = ()
    os: Family | None = None
    machine: str | None = None
    python: str | None = None
    glibc: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing but the system's own parts is left to be read."""
        return None not in (self.driver, self.os, self.python) and bool(self.gpus)


def described(snapshot: Snapshot, given: Description, catalog: Catalog) -> Snapshot:
    """The snapshot as the description says; UsageError for values that are none or that clash."""
    if given == Description():
        return snapshot
    family = given.os or snapshot.os.family
    _check(given, family, catalog)
    here = replace(snapshot.python, executable=None, prefix=None)
    os = replace(snapshot.os, machine=given.machine or snapshot.os.machine)
    if given.os not in (None, snapshot.os.family):
        arm = given.os == "macos" and not given.machine
        os = Os(family=given.os, machine="aarch64" if arm else os.machine)
        here = Python(version=here.version, free_threaded=here.free_threaded, bits=64)
        snapshot = _without_driver(snapshot)
    if given.glibc:
        os = replace(os, libc=f"glibc {given.glibc}")
    if given.python:
        free = given.python.endswith("t")
        here = Python(version=given.python.rstrip("t"), free_threaded=free)
    if given.driver:
        driver = Driver(version=driver_named(given.driver, catalog, family))
        gpus = (replace(gpu, uuid=None, nvml_index=None) for gpu in snapshot.gpus or ())
        snapshot = replace(_without_driver(snapshot), driver=driver, pci_devices=None)
        snapshot = replace(snapshot, gpus=tuple(gpus) or None)
    if given.gpus:
        gpus_there = (gpu_of_any_maker(name, catalog.gpus) for name in given.gpus)
        snapshot = replace(snapshot, gpus=tuple(gpus_there), pci_devices=None)
    return replace(snapshot, os=os, python=here, origin="composed")


def _without_driver(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, driver=Driver(), cuda_api=CudaApi(), container=Container())


def completed_by_gpus(given: Description, catalog: Catalog) -> Description:
    """The description with the system and the machine that its GPUs are only found in.

    A Jetson is an aarch64 Linux, a GB200 too, and an Apple chip a Mac; what was said of the system
    counts more. UsageError for an Apple chip in another system.
    """
    platforms = {platform_implied(name, catalog) for name in given.gpus}
    implied = platforms.pop() if len(platforms) == 1 else None
    if implied is None:
        return given
    family, _, machine = implied.partition("-")
    if family == "macos" and given.os not in (None, "macos"):
        raise UsageError(
            f"{given.gpus[0]!r} is a chip of Apple, and `--os {given.os}` is no system of a Mac",
            hint="leave out `--os`",
        )
    if given.os not in (None, family):
        return given
    return replace(given, os=family, machine=given.machine or machine)


def platform_implied(name: str, catalog: Catalog) -> str | None:
    """The only platform of a GPU: `linux-aarch64`; None where there are several."""
    gpu = gpu_of_any_maker(name, catalog.gpus)
    if gpu.maker == APPLE.id:
        return "macos-aarch64"
    return "linux-aarch64" if is_board_gpu(gpu) else platform_of(name, catalog.gpus)


def _check(given: Description, family: str | None, catalog: Catalog) -> None:
    for value, pattern, what, example in (
        (given.python, r"\d+\.\d+(\.\d+)?t?", "Python version", "`3.11` or `3.13t`"),
        (given.glibc, r"\d+\.\d+", "glibc version", "`2.35`"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            raise UsageError(f"{value!r} is no {what}", hint=f"such as {example}")
    others = [name for name in given.gpus if platform_implied(name, catalog) != "macos-aarch64"]
    if family == "macos" and (given.driver or others):
        raise UsageError(
            "macOS has no NVIDIA driver: `--driver` and `--gpu` do not go with it",
            hint="leave them out, or name the system with `--os`",
        )


def for_host(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """This environment as it will be on another host: its GPUs and driver are the named ones.

    Unsatisfiable for GPUs of other makers, which nothing here judges.
    """
    for name in names:
        gpu_described(name, catalog.gpus)
    environment = {k: v for k, v in snapshot.environment.items() if k not in NVIDIA.masks}
    bare = replace(
        _without_driver(snapshot),
        gpus=None,
        pci_devices=None,
        devices=None,
        environment=environment,
        readings=(),
        events=tuple(event for event in snapshot.events if event.kind != "child-failed"),
    )
    there = described(bare, Description(driver=driver, gpus=tuple(names)), catalog)
    container = replace(snapshot.container, cuda_compat_path=None)
    return replace(there, python=snapshot.python, container=container)
