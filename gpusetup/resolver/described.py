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
from gpusetup.model.machine import Container, CudaApi, Driver, Gpu, Os, Python, Reading, Snapshot
from gpusetup.resolver.spelled import driver_named

Family = Literal["linux", "windows", "macos"]
MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


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
    if given.driver is not None:
        family = given.os or snapshot.os.family
        given = replace(given, driver=driver_named(given.driver, catalog, family))
    changed = _other_system(snapshot, given)
    changed = replace(changed, python=replace(changed.python, executable=None, prefix=None))
    if given.python is not None:
        python = Python(version=given.python.rstrip("t"), free_threaded=given.python.endswith("t"))
        changed = replace(changed, python=python)
    if given.driver is not None:
        gpus = tuple(_unlisted(gpu) for gpu in changed.gpus or ()) or None
        changed = replace(
            _without_driver(changed),
            driver=Driver(version=given.driver),
            gpus=gpus,
            pci_devices=None,
        )
    if given.gpus:
        gpus = gpus_described(given.gpus, catalog.gpus)
        changed = replace(changed, gpus=gpus, pci_devices=None)
    return replace(changed, origin="composed", readings=(*changed.readings, *_readings(given)))


def _unlisted(gpu: Gpu) -> Gpu:
    """A GPU that another driver is to list than the one that did."""
    return replace(gpu, uuid=None, nvml_index=None)


def _other_system(snapshot: Snapshot, given: Description) -> Snapshot:
    """Another system has another C library, driver and interpreter."""
    machine = MACHINES.get(given.machine or "", given.machine) or snapshot.os.machine
    libc = f"glibc {given.glibc}" if given.glibc else snapshot.os.libc
    if given.os is None or given.os == snapshot.os.family:
        return replace(snapshot, os=replace(snapshot.os, machine=machine, libc=libc))
    default = "aarch64" if given.os == "macos" and not given.machine else machine
    os = Os(family=given.os, machine=default, libc=libc if given.glibc else None)
    python = Python(
        version=snapshot.python.version, free_threaded=snapshot.python.free_threaded, bits=64
    )
    return replace(_without_driver(snapshot), os=os, python=python)


def _without_driver(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, driver=Driver(), cuda_api=CudaApi(), container=Container())


def _check(given: Description, snapshot: Snapshot) -> None:
    for value, pattern, what, example in (
        (given.python, r"\d+\.\d+(\.\d+)?t?", "Python version", "`3.11` or `3.13t`"),
        (given.glibc, r"\d+\.\d+", "glibc version", "`2.35`"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            shown = f"`{value} --version` prints it; " if re.search(r"[/\\]", value) else ""
            raise UsageError(f"{value!r} is no {what}", hint=f"{shown}such as {example}")
    family = given.os or snapshot.os.family
    if given.glibc and family not in (None, "linux"):
        raise UsageError(f"`--glibc` and {family} exclude each other", hint="leave one of them out")
    if family == "macos" and (given.driver or given.gpus):
        raise UsageError(
            "macOS has no NVIDIA driver: `--driver` and `--gpu` do not go with it",
            hint="leave them out, or name the system with `--os`",
        )


def _readings(given: Description) -> tuple[Reading, ...]:
    said = {
        "driver": given.driver,
        "gpus": ", ".join(given.gpus) or None,
        "os": given.os,
        "machine": given.machine,
        "python": given.python,
        "glibc": given.glibc,
    }
    return tuple(
        Reading(subject=subject, source="command line", value=value)
        for subject, value in said.items()
        if value is not None
    )


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
        *(Reading(subject="gpus", source="--for-gpu", value=name) for name in names),
        *((Reading(subject="driver", source="--for-driver", value=driver),) if driver else ()),
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
