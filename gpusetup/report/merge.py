"""Facts of many places become one snapshot: the most trusted first, the rest kept as readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from gpusetup.accelerators.makers import identified
from gpusetup.model.failing import Failing
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Driver,
    Event,
    Gpu,
    Memory,
    Os,
    Package,
    PciDevice,
    Python,
    Reading,
    Snapshot,
    Toolkit,
    Torch,
    Wanted,
)
from gpusetup.model.versions import Capability, parsed
from gpusetup.report.facts import Claim, Fact, Gpus
from gpusetup.report.formats.exceptions import unless_explained
from gpusetup.report.formats.failing import told_by
from gpusetup.report.merge_gpus import READINGS_A_SUBJECT, choose_gpus

EVENTS_KEPT = 80
PARTS: dict[str, Any] = {
    "os": Os,
    "python": Python,
    "driver": Driver,
    "cuda_api": CudaApi,
    "torch": Torch,
    "container": Container,
    "toolkit": Toolkit,
    "memory": Memory,
    "wanted": Wanted,
}


def merged(facts: Iterable[Fact]) -> Snapshot:
    """
    >>> merged([Claim(subject="torch.version", value="2.5.1+cu124", source="pip")]).torch.backend
    'cu124'
    """
    kinds: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        kinds[type(fact)].append(fact)
    chosen, readings = choose(kinds[Claim])
    by_part = _by_part(chosen)
    parts = {name: make(**by_part[name]) for name, make in PARTS.items()}
    packages = tuple(dict.fromkeys(kinds[Package]))
    gpus, gpu_readings = choose_gpus(kinds[Gpus])
    pci = tuple(dict.fromkeys(kinds[PciDevice]))
    events = unless_explained(_unique(kinds[Event]))
    snapshot = Snapshot(
        origin="report",
        **parts,
        gpus=gpus,
        pci_devices=pci or None,
        packages=packages or None,
        devices=tuple(dict.fromkeys(kinds[DeviceNode])) or None,
        environment=_environment(by_part["environment"]),
        failing=told_by(events, next(iter(kinds[Failing]), Failing())),
        events=events,
        readings=(*readings, *gpu_readings),
    )
    return completed(snapshot)


def choose(claims: Iterable[Claim]) -> tuple[dict[str, Any], tuple[Reading, ...]]:
    """For each field the value of the most trusted claim, the earliest among equals."""
    by: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by[claim.subject].append(claim)
    chosen: dict[str, Any] = {}
    readings: list[Reading] = []
    for subject, told in by.items():
        ranked = sorted(told, key=lambda claim: -claim.trust)
        chosen[subject] = _fullest(ranked)
        different: dict[str, Claim] = {}
        for claim in ranked:
            different.setdefault(str(claim.value), claim)
        for claim in list(different.values())[:READINGS_A_SUBJECT]:
            reading = Reading(subject=subject, source=claim.source, value=str(claim.value))
            readings.append(reading)
    return chosen, tuple(readings)


def _fullest(ranked: list[Claim]) -> str | bool | int:
    """`3.10` of one source is `3.10.13` where another one, less trusted, has the rest."""
    first = ranked[0].value
    if not isinstance(first, str) or ranked[0].subject not in ("python.version", "driver.cuda"):
        return first
    longer = (c.value for c in ranked if str(c.value).startswith(f"{first}."))
    return next(longer, first) if first.count(".") == 1 else first


def _by_part(chosen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of each part of a snapshot by the names of its fields."""
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for subject, value in chosen.items():
        part, _, name = subject.partition(".")
        known[part][name] = tuple(value.split()) if subject == "torch.kernels" else value
    return known


def _environment(named: dict[str, Any]) -> dict[str, str]:
    from gpusetup.readings.environment import without_credentials

    return {name: without_credentials(str(value)) for name, value in sorted(named.items())}


def _unique(events: list[Event]) -> tuple[Event, ...]:
    """Each kind with each set of values once, in the order of the readers."""
    by = {(event.kind, tuple(sorted(event.values.items()))): event for event in reversed(events)}
    return tuple(reversed(by.values()))[:EVENTS_KEPT]


# --- what follows from what was said --------------------------------------------------------------


def completed(snapshot: Snapshot) -> Snapshot:
    """Fields that others imply: a backend by its label, the system by its tools, visibility."""
    torch = _torch(snapshot)
    events = (
        *(_sized(_of_wsl(event, snapshot.os)) for event in snapshot.events),
        *_foreign_folders(snapshot.environment.get("LD_LIBRARY_PATH", "")),
    )
    return replace(
        snapshot,
        torch=torch,
        driver=_driver(snapshot),
        os=_os(snapshot),
        gpus=_identified(_visible(replace(snapshot, gpus=_spoken_of(snapshot)))),
        events=events,
    )


def _foreign_folders(path: str) -> Iterator[Event]:
    """What `LD_LIBRARY_PATH` puts in front: CUDA's folders, and the stubs that only link."""
    for folder in dict.fromkeys(path.split(":")):
        low = folder.lower()
        if "/stubs" in low:
            kind = "libcuda-stub"
        elif "/cuda" in low or "cudnn" in low or "nccl" in low:
            kind = "foreign-library"
        else:
            continue
        yield Event(
            kind=kind, values={"folder": folder}, source="LD_LIBRARY_PATH", text=folder[:200]
        )


SIZED = {
    "asked": "asked_bytes",
    "total": "total_bytes",
    "total2": "total_bytes",
    "free": "free_bytes",
}


def _sized(event: Event) -> Event:
    """The sizes that torch's message about memory names, as numbers."""
    if event.kind != "out-of-memory" or not event.values.keys() & SIZED.keys():
        return event
    from gpusetup.readings.nvidia_smi.values import memory

    values = {SIZED.get(name, name): value for name, value in event.values.items()}
    known = {k: memory(text) if k.endswith("_bytes") else text for k, text in values.items()}
    return replace(event, values={k: str(v) for k, v in known.items() if v is not None})


def _of_wsl(event: Event, os: Os) -> Event:
    """`CUDA Version: ERR!` is what nvidia-smi prints in a WSL that does not reach libcuda."""
    if event.kind == "cuda-version-err" and (os.wsl or (os.wsl is None and os.kernel is None)):
        return replace(event, kind="wsl-driver")
    return event


def _torch(snapshot: Snapshot) -> Torch:
    from gpusetup.readings.torch_version import backend_of

    torch = snapshot.torch
    version = torch.version or _installed_torch(snapshot)
    if version and "+" not in version:
        version = _labelled(version, snapshot)
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    cuda = torch.cuda
    if cuda is None and backend and backend.startswith("cu") and backend[2:].isdigit():
        cuda = f"{backend[2:-1]}.{backend[-1]}"
    said = any(e.kind == "torch-not-compiled-with-cuda" for e in snapshot.events)
    if said and backend is None:
        backend = "cpu"
    installed = torch.installed if torch.installed is not None else (True if version else None)
    return replace(
        torch,
        version=version,
        cuda=cuda,
        backend=backend or _conda_backend(snapshot),
        installed=installed,
        installer=torch.installer or _installer(snapshot),
    )


def _installed_torch(snapshot: Snapshot) -> str | None:
    found = [p.version for p in snapshot.packages or () if p.name in ("torch", "pytorch")]
    return max(found, key=lambda v: ("+" in v, parsed(v)), default=None)


def _labelled(version: str, snapshot: Snapshot) -> str:
    """With the label that a package list has for the same release."""
    same = (p.version for p in snapshot.packages or () if p.name == "torch")
    return next((v for v in same if v.partition("+")[0] == version and "+" in v), version)


def _conda_backend(snapshot: Snapshot) -> str | None:
    """What conda's build string says: `py3.10_cpu_0`, `cuda112py310h…`, `py3.11_cuda12.1_cudnn8`."""
    import re

    for package in _condas(snapshot):
        if package.build:
            if re.search(r"(?:^|_)cpu", package.build):
                return "cpu"
            if found := re.search(r"cuda_?(\d{1,2})\.?(\d)", package.build):
                return f"cu{found.group(1)}{found.group(2)}"
    return None


def _installer(snapshot: Snapshot) -> str | None:
    pips = (p for p in snapshot.packages or () if p.name == "torch" and p.installer)
    return next((p.installer for p in (*pips, *_condas(snapshot))), None)


def _condas(snapshot: Snapshot) -> list[Package]:
    """What conda has of torch: the package, or the one that chose its build, unless pip's came."""
    listed = snapshot.packages or ()
    chosen = () if any(p.name == "torch" for p in listed) else ("-pytorch-select",)
    return [p for p in listed if p.name in ("pytorch", "libtorch", *chosen)]


def _driver(snapshot: Snapshot) -> Driver:
    driver = snapshot.driver
    kinds = {event.kind for event in snapshot.events}
    missing = any(e.kind == "no-nvidia-driver" and "library" in e.values for e in snapshot.events)
    if driver.nouveau_loaded is None and "nouveau-in-the-way" in kinds:
        driver = replace(driver, nouveau_loaded=True)
    if driver.library_found is None and missing:
        driver = replace(driver, library_found=False)
    whole = "." in (driver.version or "")  # a bare branch is a person's word
    if whole and driver.module_loaded is None and not driver.nvml_code:
        driver = replace(driver, module_loaded=True)
    return driver


def _os(snapshot: Snapshot) -> Os:
    os = snapshot.os
    # Only Linux' drivers have three numbers, and NCCL is for Linux only.
    nccl = any(event.kind.startswith("nccl-") for event in snapshot.events)
    version = snapshot.driver.version or ""
    if os.family is None and (
        version.count(".") == 2
        or nccl
        or os.wsl
        or os.jetson
        or (os.libc or "").startswith("glibc")
    ):
        os = replace(os, family="linux")
    if os.jetson and os.machine is None:
        os = replace(os, machine="aarch64")
    if os.wsl is None and os.family == "linux" and os.kernel:
        os = replace(os, wsl="microsoft" in os.kernel.lower())
    return os


DENY_NVIDIAS = ("no-nvidia-gpu", "foreign-gpu")
"""What says that a machine has no NVIDIA GPU, or names another maker's,"""
SHOW_NVIDIAS = ("smi-sees-it", "xid", "gpu-fell-off-bus", "hybrid-gpu-off", "hosted-notebook")
"""and what speaks of one all the same, or of a machine that is lent."""


def _none_here(snapshot: Snapshot) -> bool:
    """Whether a text says that the machine has no NVIDIA GPU, and shows nothing of one."""
    kinds = {event.kind for event in snapshot.events}
    driver, os = snapshot.driver, snapshot.os
    shown = driver.version or driver.cuda or os.wsl or os.jetson or kinds.intersection(SHOW_NVIDIAS)
    nvidias = any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())
    ran = snapshot.torch.cuda_available or kinds.intersection(("out-of-memory", "no-kernel-image"))
    return bool(kinds.intersection(DENY_NVIDIAS)) and not (shown or nvidias or ran)


def _spoken_of(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """The GPU that a message about its capability names, where nothing else shows one."""
    named = (e.values for e in snapshot.events if {"gpu", "capability"} <= e.values.keys())
    found = (
        Gpu(name=values["gpu"], compute_capability=Capability.parse(values["capability"]))
        for values in named
    )
    told = tuple(dict.fromkeys(found)) or _compiled_for(snapshot)
    guessed = all(map(_is_only_named, snapshot.gpus or ()))
    if snapshot.gpus and not (guessed and (told or snapshot.pci_devices)):
        return snapshot.gpus
    if told or _none_here(snapshot):
        return told
    return None if snapshot.pci_devices else snapshot.gpus


def _is_only_named(gpu: Gpu) -> bool:
    """Whether nothing but a person's word says of a GPU what it is."""
    return gpu == Gpu(name=gpu.name, compute_capability=gpu.compute_capability)


def _compiled_for(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPU that a compiler (Triton's ptxas, LLVM, nvcc for an extension) was to compile for."""
    for event in snapshot.events:
        asked = event.values.get("capability") or event.values.get("arch", "")
        listed = event.values.get("compiler") == "nvcc" and asked.startswith("compute_")
        if event.kind in ("jit-arch-rejected", "gpu-not-in-wheel") and not listed:
            with suppress(ValueError):
                return (Gpu(name="unknown", compute_capability=Capability.parse(asked)),)
    return ()


def _visible(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """Which GPUs CUDA_VISIBLE_DEVICES leaves, where the text shows both."""
    gpus, variable = snapshot.gpus, snapshot.environment.get("CUDA_VISIBLE_DEVICES")
    if not gpus or variable is None:
        return gpus
    from gpusetup.readings.visible import visible_by_variable

    flags = visible_by_variable(variable, gpus, pci_order=False)
    return tuple(replace(gpu, visible=flag) for gpu, flag in zip(gpus, flags, strict=True))


def _identified(gpus: tuple[Gpu, ...] | None) -> tuple[Gpu, ...] | None:
    return None if gpus is None else tuple(map(identified, gpus))
