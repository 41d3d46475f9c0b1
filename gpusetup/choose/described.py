"""Replaces parts of a machine's snapshot with the values that a user describes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.accelerators.makers import APPLE, NVIDIA
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.gpus import gpu_described, platform_of
from gpusetup.catalog.jetpack import is_board_gpu
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Container, CudaApi, Driver, Os, Python, Snapshot, Torch, Wanted
from gpusetup.model.versions import parsed


def described(
    snapshot: Snapshot,
    catalog: Catalog,
    *,
    driver: str | None = None,
    gpus: Sequence[str] = (),
    family: str | None = None,
    machine: str | None = None,
    python: str | None = None,
    glibc: str | None = None,
) -> Snapshot:
    """The snapshot with the values that a user describes; None and () keep what was read.

    `family` is the system (`linux`), `machine` the processor architecture (`x86_64`). GPUs that
    exist on only one platform also describe that: a Jetson or a GB200 needs an aarch64 Linux, an
    Apple chip a Mac. A system that the user names takes precedence. Raises UsageError if the
    values are invalid or contradict each other.
    """
    if not (driver or gpus or family or machine or python or glibc):
        return snapshot
    platforms = {platform_implied(name, catalog) for name in gpus}
    # Several GPUs describe the platform only if they agree on it.
    implied = platforms.pop() if len(platforms) == 1 else None
    implied_family, _, implied_machine = (implied or "").partition("-")
    if implied_family == "macos" and family not in (None, "macos"):
        raise UsageError(
            f"{gpus[0]!r} is an Apple chip, but `--os {family}` is not macOS",
            hint="leave out `--os`",
        )
    if implied and family in (None, implied_family):
        family, machine = implied_family, machine or implied_machine
    for value, pattern, meaning, example in (
        (python, r"\d+\.\d+(\.\d+)?t?", "Python version", "`3.11` or `3.13t`"),
        (glibc, r"\d+\.\d+", "glibc version", "`2.35`"),
    ):
        if value is not None and not re.fullmatch(pattern, value):
            raise UsageError(f"{value!r} is not a valid {meaning}", hint=f"for example {example}")
    # The described machine has another environment, and perhaps another distribution.
    interpreter = replace(snapshot.python, executable=None, prefix=None)
    os = replace(snapshot.os, name=None)
    if family not in (None, snapshot.os.family):
        # Of this system's Python, only the version applies there. A described one has 64 bits.
        interpreter = Python(
            version=interpreter.version, free_threaded=interpreter.free_threaded, bits=64
        )
        # Every Mac that torch still supports has an Apple chip.
        usual_machine = "aarch64" if family == "macos" else snapshot.os.machine
        os = Os(family=family, machine=machine or usual_machine)  # type: ignore[arg-type]
        snapshot = _without_driver(snapshot)
    elif machine:
        os = replace(os, machine=machine)
    if glibc:
        os = replace(os, libc=f"glibc {glibc}")
    if python:
        interpreter = Python(version=python.rstrip("t"), free_threaded=python.endswith("t"))
    snapshot = replace(snapshot, origin="composed", os=os, python=interpreter)
    return with_gpus(snapshot, gpus, driver, catalog)


def with_gpus(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """The snapshot with the named GPUs and driver. Raises UsageError for a wrong one."""
    if driver:
        text = driver.strip()
        if not re.fullmatch(r"\d{3}(\.\d+){0,3}", text):
            raise UsageError(
                f"{text!r} is not an NVIDIA driver version",
                hint="for example `580.95.05`; `nvidia-smi` shows yours as `Driver Version`",
            )
        # A branch alone (`580`) means the first driver of that branch that supports a CUDA version.
        floors = filter(None, (row.on(snapshot.os.family or "linux") for row in catalog.toolkits))
        of_branch = [floor for floor in floors if floor.partition(".")[0] == text]
        version = min(of_branch, key=parsed, default=text)
        # The GPUs no longer count as listed by the driver, and an empty list, which would mean that
        # there is none, becomes None: unknown. So does the bus of the machine that was read.
        gpus = tuple(replace(gpu, uuid=None, nvml_index=None) for gpu in snapshot.gpus or ())
        snapshot = replace(
            _without_driver(snapshot),
            driver=Driver(version=version),
            pci_devices=None,
            gpus=gpus or None,
        )
    if names:
        named = tuple(gpu_described(name, catalog.gpus) for name in names)
        snapshot = replace(snapshot, gpus=named, pci_devices=None)
    return snapshot


def _without_driver(snapshot: Snapshot) -> Snapshot:
    """The snapshot without what the driver reported, and without the container's cuda-compat."""
    return replace(snapshot, driver=Driver(), cuda_api=CudaApi(), container=Container())


def platform_implied(name: str, catalog: Catalog) -> str | None:
    """The only platform on which a GPU exists, such as `linux-aarch64`; None for several."""
    gpu = gpu_described(name, catalog.gpus)
    if gpu.maker == APPLE.id:
        return "macos-aarch64"
    # The GPU of a Jetson is part of an aarch64 board. For others, such as GB10, the table says it.
    return "linux-aarch64" if is_board_gpu(gpu) else platform_of(name, catalog.gpus)


def without_torch(machine: Snapshot) -> Snapshot:
    """The snapshot with an empty environment: nothing is installed, and no request is shown."""
    return replace(machine, torch=Torch(installed=False), packages=(), wanted=Wanted())


def on_other_host(
    snapshot: Snapshot, names: Sequence[str], driver: str | None, catalog: Catalog
) -> Snapshot:
    """The snapshot of this environment on another host, which has the named GPUs and driver."""
    # Drop variables that hide GPUs, and errors of our own queries to this machine's driver, because
    # they do not apply to the other host.
    environment = {
        name: value for name, value in snapshot.environment.items() if name not in NVIDIA.masks
    }
    events = tuple(event for event in snapshot.events if event.kind != "child-failed")
    container = replace(snapshot.container, cuda_compat_path=None)
    bare = replace(
        _without_driver(snapshot),
        origin="composed" if names or driver else snapshot.origin,
        gpus=None,
        pci_devices=None,
        devices=None,
        environment=environment,
        readings=(),
        events=events,
    )
    # The environment stays in its container, without the libraries of this machine's driver.
    return replace(with_gpus(bare, names, driver, catalog), container=container)
