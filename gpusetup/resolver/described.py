"""Another machine than the one that was read: what is given replaces it, the rest stays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gpusetup.accelerators import nvidia
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.gpus import gpus_described
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Container, CudaApi, Driver, Os, Python, Reading, Snapshot
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
    _check(given, snapshot)
    family = given.os or snapshot.os.family
    other = given.os not in (None, snapshot.os.family)
    machine = given.machine or ("aarch64" if other and given.os == "macos" else snapshot.os.machine)
    libc = f"glibc {given.glibc}" if given.glibc else None if other else snapshot.os.libc
    here = snapshot.python
    python = replace(here, executable=None, prefix=None)
    if other:
        python = Python(version=here.version, free_threaded=here.free_threaded, bits=64)
    if given.python is not None:
        free = given.python.endswith("t")
        python = Python(version=given.python.rstrip("t"), free_threaded=free)
    changed = replace(
        snapshot,
        origin="composed",
        os=Os(family=given.os, machine=machine, libc=libc)
        if other
        else replace(snapshot.os, machine=machine, libc=libc),
        python=python,
        readings=(*snapshot.readings, *_readings(given)),
    )
    driver = given.driver and driver_named(given.driver, catalog, family)
    if driver or other:
        changed = replace(changed, driver=Driver(), cuda_api=CudaApi(), container=Container())
    if driver:
        gpus = [replace(gpu, uuid=None, nvml_index=None) for gpu in changed.gpus or ()]
        listed = {"gpus": tuple(gpus) or None, "pci_devices": None}
        changed = replace(changed, driver=Driver(version=driver), **listed)
    if given.gpus:
        gpus_there = gpus_described(given.gpus, catalog.gpus)
        changed = replace(changed, gpus=gpus_there, pci_devices=None)
    return changed


def _check(given: Description, snapshot: Snapshot) -> None:
    for value, pattern, what, example in (
        (given.python, r"\d+\.\d+(\.\d+)?t?", "Python version", "`3.11` or `3.13t`"),
        (given.glibc, r"\d+\.\d+", "glibc version", "`2.35`"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            raise UsageError(f"{value!r} is no {what}", hint=f"such as {example}")
    family = given.os or snapshot.os.family
    if given.glibc and family not in (None, "linux"):
        raise UsageError(f"`--glibc` and {family} exclude each other", hint="leave one of them out")
    if family == "macos" and (given.driver or given.gpus):
        raise UsageError(
            "macOS has no NVIDIA driver: `--driver` and `--gpu` do not go with it",
            hint="leave them out, or name the system with `--os`",
        )


def _readings(given: Description) -> tuple[Reading, ...]:
    gpus = ", ".join(given.gpus) or None
    said = {**{name: getattr(given, name) for name in GIVEN}, "gpus": gpus}
    return tuple(
        Reading(subject=name, source="command line", value=value)
        for name, value in said.items()
        if value
    )


GIVEN = ("driver", "gpus", "os", "machine", "python", "glibc")


# --- the host that an environment is made for ----------------------------------------------------


def for_host(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """This environment as it will stand on another host: its GPUs and driver are the named ones."""
    if driver:
        driver = driver_named(driver, catalog, snapshot.os.family)
    hidden = nvidia.MAKER.masks
    kept = {name: value for name, value in snapshot.environment.items() if name not in hidden}
    replaced = ("gpus", "driver", "cuda_api", "pci_devices", "devices")
    still = (one for one in snapshot.readings if one.subject.partition(".")[0] not in replaced)
    named = (
        *(Reading(subject="gpus", source="--gpu", value=name) for name in names),
        *((Reading(subject="driver", source="--driver", value=driver),) if driver else ()),
    )
    return replace(
        snapshot,
        origin="composed",
        gpus=gpus_described(names, catalog.gpus) or None,
        driver=Driver(version=driver),
        cuda_api=CudaApi(),
        pci_devices=None,
        devices=None,
        container=replace(snapshot.container, cuda_compat_path=None),
        environment=kept,
        readings=(*still, *named),
        events=tuple(event for event in snapshot.events if event.kind != "child-failed"),
    )
