"""Fills in snapshot fields that follow from others: torch's backend, the system, and GPUs named in
messages."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import identified
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, Os, Snapshot, Torch
from gpusetup.model.versions import cuda_of
from gpusetup.readings.nvidia_smi import memory
from gpusetup.readings.packages import backend_of


def with_implied_fields(snapshot: Snapshot) -> Snapshot:
    """The snapshot with fields that follow from others, e.g. torch's backend from its version."""
    events = tuple(_with_meaning(event, snapshot) for event in snapshot.events)
    snapshot = replace(snapshot, events=events)
    gpus = _gpus(snapshot)
    return replace(
        snapshot,
        torch=_torch(snapshot),
        os=_os(snapshot),
        gpus=None if gpus is None else tuple(map(identified, gpus)),
    )


SIZE_FIELDS = {
    **{name: f"{name}_bytes" for name in ("asked", "total", "free", "held", "idle")},
    "total2": "total_bytes",
}
"""A size in torch's out-of-memory message, by its group in the pattern (the total has two wordings)
-> the name of the value in bytes."""


def _with_meaning(event: Event, snapshot: Snapshot) -> Event:
    """The event with the kind that it has together with the other facts of the text; an
    out-of-memory event with its sizes in bytes."""
    os = snapshot.os
    # In WSL `CUDA Version: ERR!` means a driver that is too old for WSL. A text that shows no Linux
    # kernel may come from WSL.
    may_be_wsl = os.wsl or (os.wsl is None and os.kernel is None)
    if event.kind == "cuda-version-err" and may_be_wsl:
        return replace(event, kind="wsl-driver")
    # collect_env printed `no-nvidia-gpu`, but with a CUDA build there may be one without a driver.
    if event.values.get("shown_by") == "collect_env" and snapshot.torch.cuda:
        return replace(event, kind="smi-not-found")
    return _with_bytes(event) if event.kind == "out-of-memory" else event


def _with_bytes(event: Event) -> Event:
    """The event with its memory sizes in bytes, without those that cannot be read."""
    values: dict[str, str] = {}
    for name, text in event.values.items():
        size = memory(text.replace("bytes", "B")) if name in SIZE_FIELDS else text
        if size is not None:
            values[SIZE_FIELDS.get(name, name)] = str(size)
    return replace(event, values=values)


# --- torch ----------------------------------------------------------------------------------------

# The build string of a CPU build in conda: `py3.12_cpu_0`.
CPU_BUILD = re.compile(r"(?:^|_)cpu")


def _torch(snapshot: Snapshot) -> Torch:
    """torch's fields, completed from the list of packages and from torch's messages."""
    torch = snapshot.torch
    kinds = {event.kind for event in snapshot.events}
    packages = snapshot.packages or ()
    listed = [package for package in packages if package.name in ("torch", "pytorch")]
    version = torch.version or next((package.version for package in listed), None)
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    has_cpu_build = any(CPU_BUILD.search(package.build or "") for package in listed)
    if backend is None and ("torch-not-compiled-with-cuda" in kinds or has_cpu_build):
        backend = "cpu"
    installers = (package.installer for package in listed if package.installer)
    return replace(
        torch,
        version=version,
        cuda=torch.cuda or cuda_of(backend or ""),
        backend=backend,
        installed=True if version and torch.installed is None else torch.installed,
        installer=torch.installer or next(installers, None),
    )


# --- the system -----------------------------------------------------------------------------------


def _os(snapshot: Snapshot) -> Os:
    """The system's fields, completed from the driver, the kernel and the Jetson release."""
    os, driver = snapshot.os, snapshot.driver
    # Only Linux drivers can have versions with three numbers, and only nvidia-smi on Linux shows
    # the persistence mode.
    has_linux_driver = (driver.version or "").count(".") == 2 or driver.persistence is not None
    family = os.family
    # In WSL the failing program runs on Linux, although the machine also runs Windows.
    if os.wsl or (family is None and (has_linux_driver or os.jetson)):
        family = "linux"
    wsl = os.wsl
    if wsl is None and family == "linux" and os.kernel:
        wsl = "microsoft" in os.kernel.lower()
    machine = os.machine or ("aarch64" if os.jetson else None)
    return replace(os, family=family, machine=machine, wsl=wsl)


# --- GPUs -----------------------------------------------------------------------------------------

DENY_NVIDIA = ("no-nvidia-gpu", "foreign-gpu")
"""Events that say that a machine has no NVIDIA GPU, or that name a GPU from another maker."""
SHOW_NVIDIA = (
    *("smi-sees-it", "xid", "gpu-fell-off-bus", "hybrid-gpu-off", "out-of-memory"),
    # A hosted notebook can get an NVIDIA GPU in another session.
    *("no-kernel-image", "hosted-notebook"),
)
"""Events that show that an NVIDIA GPU is involved, despite the events above."""


def _gpus(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """The GPUs from lists, or else from messages about compute capability; () if the text says that
    the machine has no NVIDIA GPU and nothing suggests otherwise, None if unknown."""
    if snapshot.gpus:
        return snapshot.gpus
    kinds = {event.kind for event in snapshot.events}
    os, driver, on_bus = snapshot.os, snapshot.driver, snapshot.pci_devices or ()
    suggests_nvidia = (
        not kinds.isdisjoint(SHOW_NVIDIA)
        or snapshot.torch.cuda_available
        # In WSL and on a Jetson, a text about CUDA is about an NVIDIA GPU.
        or (os.wsl or os.jetson or driver.version or driver.cuda)
        or any(device.vendor == "nvidia" for device in on_bus)
    )
    if not kinds.isdisjoint(DENY_NVIDIA) and not suggests_nvidia:
        return ()
    # A device on the PCI bus may be a GPU that no list contains.
    return None if on_bus else snapshot.gpus
