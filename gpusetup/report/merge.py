"""Facts of many places become one snapshot: the most trusted first, the rest kept as readings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from gpusetup.accelerators.makers import identified
from gpusetup.model.finding import Failing
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Container,
    CudaApi,
    DeviceNode,
    Driver,
    Event,
    Events,
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
from gpusetup.model.versions import Capability, cuda_of, parsed
from gpusetup.readings.side import UNNAMED, first_known, same_gpu, told_gpus
from gpusetup.report.facts import Claim, Fact, Gpus

EVENTS_KEPT = 80
GPUS_KEPT = 64
READINGS_A_SUBJECT = 4
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
    >>> merged([Claim("torch.version", "2.5.1+cu124", "pip")]).torch.backend
    'cu124'
    """
    kinds: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        kinds[type(fact)].append(fact)
    known, readings = chosen(kinds[Claim])
    gpus, gpu_readings = choose_gpus(kinds[Gpus])
    by_kind = {(e.kind, *sorted(e.values.items())): e for e in reversed(kinds[Event])}
    events = unrefuted(tuple(reversed(by_kind.values()))[:EVENTS_KEPT])
    pci, packages, nodes = (
        tuple(dict.fromkeys(kinds[kind])) or None for kind in (PciDevice, Package, DeviceNode)
    )
    snapshot = Snapshot(
        origin="report",
        **{name: make(**known[name]) for name, make in PARTS.items()},
        gpus=gpus,
        pci_devices=pci,
        packages=packages,
        devices=nodes,
        environment=_environment(known["environment"]),
        failing=next(iter(kinds[Failing]), Failing()),
        events=events,
        readings=(*readings, *gpu_readings),
    )
    return completed(snapshot)


LEFT_BEHIND = ("no-nvidia-gpu", "out-of-memory", "no-kernel-image", "cuda-library-error")
"""What fails after a kernel's assertion (CUDA error 710), whatever fails first."""


def unrefuted(events: Events) -> Events:
    if not any(e.kind == "cuda-error" and e.values.get("code") == "710" for e in events):
        return events
    return tuple(e for e in events if e.kind not in LEFT_BEHIND or "asked" in e.values)


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, list[Reading]]:
    """The most trusted list with GPUs in it, each GPU with what other lists know of it; one that
    is not named is the only one that there is."""
    readings = [
        reading for one in lists[:READINGS_A_SUBJECT] for reading in told_gpus(one.source, one.gpus)
    ]
    full = sorted((one for one in lists if one.gpus), key=lambda one: -one.trust)
    others = [gpu for one in full[1:] for gpu in one.gpus]
    kept = full[0].gpus[:GPUS_KEPT] if full else ()
    alone = (UNNAMED,) if len(kept) == 1 else ()
    whole = (
        first_known(
            [gpu, *(one for one in others if same_gpu(gpu, one) or one.name in (gpu.name, *alone))]
        )
        for gpu in kept
    )
    return (tuple(whole) if lists else None), readings


def chosen(claims: Iterable[Claim]) -> tuple[dict[str, dict[str, Any]], list[Reading]]:
    """For each field of each part the value of the most trusted claim, the earliest among equals."""
    by: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by[claim.subject].append(claim)
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    readings: list[Reading] = []
    for subject, told in by.items():
        ranked = sorted(told, key=lambda claim: -claim.trust)
        value = ranked[0].value
        part, _, name = subject.partition(".")
        known[part][name] = tuple(str(value).split()) if subject == "torch.kernels" else value
        sources: dict[str, str] = {}
        for claim in ranked:
            sources.setdefault(str(claim.value), claim.source)
        for said in list(sources)[:READINGS_A_SUBJECT]:
            readings.append(Reading(subject=subject, source=sources[said], value=said))
    return known, readings


def _environment(named: dict[str, Any]) -> dict[str, str]:
    from gpusetup.readings.environment import without_credentials

    return {name: without_credentials(str(value)) for name, value in sorted(named.items())}


# --- what follows from what was said --------------------------------------------------------------


def completed(snapshot: Snapshot) -> Snapshot:
    """Fields that others imply: a backend by its label, the system by its tools."""
    gpus = _spoken_of(snapshot)
    return replace(
        snapshot,
        torch=_torch(snapshot),
        os=_os(snapshot),
        gpus=None if gpus is None else tuple(map(identified, gpus)),
        events=(*(_sized(event, snapshot.os) for event in snapshot.events), *_folders(snapshot)),
    )


def _folders(snapshot: Snapshot) -> Iterator[Event]:
    """What `LD_LIBRARY_PATH` puts in front: CUDA's folders, and the stubs that only link."""
    for folder in dict.fromkeys(snapshot.environment.get("LD_LIBRARY_PATH", "").split(":")):
        if re.search(r"/stubs|/cuda|cudnn|nccl", folder, re.I):
            kind = "libcuda-stub" if "/stubs" in folder.lower() else "foreign-library"
            yield Event(
                kind=kind, values={"folder": folder}, source="LD_LIBRARY_PATH", text=folder[:200]
            )


SIZED = {"asked": "asked_bytes", "total": "total_bytes", "total2": "total_bytes", "free": "free_bytes", "held": "held_bytes"}  # fmt: skip


def _sized(event: Event, os: Os) -> Event:
    """The sizes of torch's message about memory as numbers; what `CUDA Version: ERR!` means in WSL."""
    from gpusetup.readings.nvidia_smi import memory

    if event.kind == "cuda-version-err" and (os.wsl or (os.wsl is None and os.kernel is None)):
        return replace(event, kind="wsl-driver")
    if event.kind != "out-of-memory":
        return event
    values = {
        SIZED.get(name, name): str(memory(text)) if name in SIZED else text
        for name, text in event.values.items()
    }
    return replace(event, values={name: text for name, text in values.items() if text != "None"})


def _torch(snapshot: Snapshot) -> Torch:
    from gpusetup.readings.packages import backend_of

    torch, listed = snapshot.torch, snapshot.packages or ()
    there = [p for p in listed if p.name in ("torch", "pytorch")]
    versions = (p.version for p in there)
    version = torch.version or max(versions, key=lambda v: ("+" in v, parsed(v)), default=None)
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    without = any(e.kind == "torch-not-compiled-with-cuda" for e in snapshot.events)
    without = without or any(re.search(r"(?:^|_)cpu", p.build or "") for p in there)
    return replace(
        torch,
        version=version,
        cuda=torch.cuda or cuda_of(backend or ""),
        backend=backend or ("cpu" if without else None),
        installed=bool(version) or None if torch.installed is None else torch.installed,
        installer=torch.installer or next((p.installer for p in there if p.installer), None),
    )


def _os(snapshot: Snapshot) -> Os:
    os = snapshot.os
    family, version = os.family, snapshot.driver.version or ""
    # Only Linux' drivers have three numbers, and only its nvidia-smi a column of persistence.
    shown = version.count(".") == 2 or snapshot.driver.persistence is not None
    if family is None and (shown or os.wsl or os.jetson):
        family = "linux"
    machine = os.machine or ("aarch64" if os.jetson else None)
    wsl = os.wsl
    if wsl is None and family == "linux" and os.kernel:
        wsl = "microsoft" in os.kernel.lower()
    return replace(os, family=family, machine=machine, wsl=wsl)


DENY_NVIDIAS = ("no-nvidia-gpu", "foreign-gpu")
"""What says that a machine has no NVIDIA GPU, or names another maker's,"""
SHOW_NVIDIAS = ("smi-sees-it", "xid", "gpu-fell-off-bus", "hybrid-gpu-off", "hosted-notebook", "out-of-memory", "no-kernel-image")  # fmt: skip
"""and what speaks of one all the same, or of a machine that is lent."""


def _none_here(snapshot: Snapshot) -> bool:
    """Whether a text says that the machine has no NVIDIA GPU, and shows nothing of one."""
    kinds = {event.kind for event in snapshot.events}
    driver, os = snapshot.driver, snapshot.os
    shown = driver.version or driver.cuda or os.wsl or os.jetson or kinds.intersection(SHOW_NVIDIAS)
    nvidias = any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())
    denied = kinds.intersection(DENY_NVIDIAS)
    return bool(denied) and not (shown or nvidias or snapshot.torch.cuda_available)


def _spoken_of(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """The GPU that a message about its capability names, where nothing else shows one."""
    told = tuple(dict.fromkeys(_by_capability(snapshot.events)))
    if snapshot.gpus:
        return snapshot.gpus
    if told or _none_here(snapshot):
        return told
    return None if snapshot.pci_devices else snapshot.gpus


def _by_capability(events: Events) -> list[Gpu]:
    """Those that a message names, else the one that a compiler was to compile for."""
    named = [
        Gpu(name=e.values["gpu"], compute_capability=Capability.parse(e.values["capability"]))
        for e in events
        if {"gpu", "capability"} <= e.values.keys()
    ]
    for event in events if not named else ():
        asked = event.values.get("capability") or event.values.get("arch", "")
        listed = event.values.get("compiler") == "nvcc" and asked.startswith("compute_")
        if event.kind in ("jit-arch-rejected", "gpu-not-in-wheel") and not listed:
            with suppress(ValueError):
                return [Gpu(name="unknown", compute_capability=Capability.parse(asked))]
    return named
