"""Fills in snapshot fields that follow from others: torch's backend, the system, and GPUs named in
messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.accelerators.makers import identified
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu, Os, Package, Snapshot, Torch
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import cuda_of

SHOWN_CHARACTERS = 200
"""At most this many characters of a value are quoted as evidence."""


def with_implied_fields(snapshot: Snapshot) -> Snapshot:
    """The snapshot completed with fields that follow from others, such as torch's backend from its
    version label."""
    gpus = _gpus(snapshot)
    if gpus is not None:
        gpus = tuple(identified(gpu) for gpu in gpus)
    events = [_with_meaning(event, snapshot.os) for event in snapshot.events]
    return replace(
        snapshot,
        torch=_torch(snapshot),
        os=_os(snapshot),
        gpus=gpus,
        events=(*events, *_library_folders(snapshot)),
    )


# Folders that contain CUDA's libraries, or the stub libraries, which are meant for linking only.
CUDA_FOLDER = lazy(r"/stubs|/cuda|cudnn|nccl", re.I)


def _library_folders(snapshot: Snapshot) -> Iterator[Event]:
    """Events for folders in LD_LIBRARY_PATH with CUDA libraries, which would be loaded before
    torch's own."""
    library_path = snapshot.environment.get("LD_LIBRARY_PATH", "")
    for folder in dict.fromkeys(library_path.split(":")):
        if not CUDA_FOLDER.search(folder):
            continue
        is_stub = "/stubs" in folder.lower()
        yield Event(
            kind="libcuda-stub" if is_stub else "foreign-library",
            values={"folder": folder},
            source="LD_LIBRARY_PATH",
            text=folder[:SHOWN_CHARACTERS],
        )


# --- events ---------------------------------------------------------------------------------------

SIZE_FIELDS = {
    "asked": "asked_bytes",
    "total": "total_bytes",
    "total2": "total_bytes",
    "free": "free_bytes",
    "held": "held_bytes",
    "idle": "idle_bytes",
}
"""A size in torch's out-of-memory message, by its group in the pattern -> the name of the value in
bytes."""


def _with_meaning(event: Event, os: Os) -> Event:
    """The event, completed: memory sizes are converted to bytes, and an error becomes one of WSL if
    the rest of the text shows no other system."""
    if event.kind == "cuda-version-err":
        # In WSL `CUDA Version: ERR!` means a driver that is too old for WSL. A text that shows no
        # Linux kernel may come from WSL.
        may_be_wsl = os.wsl or (os.wsl is None and os.kernel is None)
        return replace(event, kind="wsl-driver") if may_be_wsl else event
    if event.kind == "out-of-memory":
        return replace(event, values=_with_bytes(event.values))
    return event


def _with_bytes(values: Mapping[str, str]) -> dict[str, str]:
    """The values of an out-of-memory event with sizes in bytes; sizes that cannot be read are left
    out."""
    from gpusetup.readings.nvidia_smi import memory

    values_in_bytes: dict[str, str] = {}
    for name, text in values.items():
        if name not in SIZE_FIELDS:
            values_in_bytes[name] = text
            continue
        size = memory(text.replace("bytes", "B"))
        # Leave out a size that cannot be read.
        if size is not None:
            values_in_bytes[SIZE_FIELDS[name]] = str(size)
    return values_in_bytes


# --- torch ----------------------------------------------------------------------------------------

# The build string of a CPU build in conda: `py3.12_cpu_0`.
CPU_BUILD = lazy(r"(?:^|_)cpu")


def _torch(snapshot: Snapshot) -> Torch:
    """torch's fields, completed from the list of packages and from torch's messages."""
    from gpusetup.readings.packages import backend_of

    torch = snapshot.torch
    packages = snapshot.packages or ()
    torch_packages = [package for package in packages if package.name in ("torch", "pytorch")]
    version = _with_third_number(
        torch.version or next((package.version for package in torch_packages), None)
    )
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    if backend is None and _has_cpu_build(snapshot.events, torch_packages):
        backend = "cpu"
    installed = torch.installed
    torch_answered = any(event.kind in ANSWERS_OF_TORCH for event in snapshot.events)
    # collect_env may have run in a Python without torch, although the text shows another Python
    # where torch works.
    if version and (installed is None or torch_answered):
        installed = True
    installers = [package.installer for package in torch_packages if package.installer]
    return replace(
        torch,
        version=version,
        cuda=torch.cuda or cuda_of(backend or ""),
        backend=backend,
        installed=installed,
        installer=torch.installer or (installers[0] if installers else None),
    )


ANSWERS_OF_TORCH = ("no-xpu", "backend-runs", "gpu-in-use")
"""Events that can only come from a torch that was imported."""


def _has_cpu_build(events: Events, torch_packages: list[Package]) -> bool:
    """Whether torch says that it has no CUDA, or conda's build string shows a CPU build."""
    if any(event.kind == "torch-not-compiled-with-cuda" for event in events):
        return True
    for package in torch_packages:
        build = package.build or ""
        if CPU_BUILD.search(build):
            return True
    return False


def _with_third_number(version: str | None) -> str | None:
    """The version with the third number added (`.0`) if it has a build label and only two numbers.

    >>> _with_third_number("2.7+cu128"), _with_third_number("2.7")
    ('2.7.0+cu128', '2.7')
    """
    if version is None:
        return None
    release, plus, label = version.partition("+")
    has_two_numbers = release.count(".") == 1
    if plus and has_two_numbers:
        return f"{release}.0+{label}"
    return version


# --- the system -----------------------------------------------------------------------------------


# Source: AMD, "Radeon and Ryzen: PyTorch for Windows", whose first release is of ROCm 6.4.4.
LINUX_ROCM = lazy(r"\+rocm(?:[1-5]\.\d|6\.[0-3])(?!\d)")
"""The label of a build from the time when there were none for Windows."""


def _os(snapshot: Snapshot) -> Os:
    """The system's fields, completed from the driver, the kernel and the Jetson release."""
    os = snapshot.os
    driver_version = snapshot.driver.version or ""
    # Only Linux drivers can have versions with three numbers, and only nvidia-smi on Linux shows
    # the persistence mode.
    has_linux_driver = driver_version.count(".") == 2 or snapshot.driver.persistence is not None
    family = os.family
    is_linux = has_linux_driver or os.jetson or LINUX_ROCM.search(snapshot.torch.version or "")
    if family is None and is_linux:
        family = "linux"
    # In WSL the failing program runs on Linux, although the machine also runs Windows.
    if os.wsl:
        family = "linux"
    machine = os.machine
    if machine is None and os.jetson:
        machine = "aarch64"
    wsl = os.wsl
    if wsl is None and family == "linux" and os.kernel:
        wsl = "microsoft" in os.kernel.lower()
    return replace(os, family=family, machine=machine, wsl=wsl)


# --- GPUs -----------------------------------------------------------------------------------------

DENY_NVIDIA = ("no-nvidia-gpu", "foreign-gpu")
"""Events that say that a machine has no NVIDIA GPU, or that name a GPU from another maker."""
SHOW_NVIDIA = (
    "smi-sees-it",
    "xid",
    "gpu-fell-off-bus",
    "hybrid-gpu-off",
    "out-of-memory",
    "no-kernel-image",
    # A hosted notebook can get an NVIDIA GPU in another session.
    "hosted-notebook",
)
"""Events that show that an NVIDIA GPU is involved, despite the events above."""


def _has_no_nvidia_gpu(snapshot: Snapshot) -> bool:
    """Whether the text says that the machine has no NVIDIA GPU, and nothing in it suggests
    otherwise."""
    kinds = {event.kind for event in snapshot.events}
    if not kinds.intersection(DENY_NVIDIA):
        return False
    if kinds.intersection(SHOW_NVIDIA) or snapshot.torch.cuda_available:
        return False
    # In WSL and on a Jetson, a text about CUDA is about an NVIDIA GPU.
    if snapshot.os.wsl or snapshot.os.jetson:
        return False
    if snapshot.driver.version or snapshot.driver.cuda:
        return False
    return not any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())


def _gpus(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """The GPUs from lists, or else from messages about compute capability; () if the machine has no
    GPU, None if unknown."""
    if snapshot.gpus:
        return snapshot.gpus
    if _has_no_nvidia_gpu(snapshot):
        return ()
    # A device on the PCI bus may be a GPU that no list contains.
    return None if snapshot.pci_devices else snapshot.gpus
