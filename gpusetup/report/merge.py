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
    GpuLink,
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
from gpusetup.readings.sources import UNNAMED, first_known, gpu_readings, same_gpu
from gpusetup.report.facts import USUAL, Claim, Fact, Gpus

MAX_EVENTS = 80
MAX_GPUS = 64
MAX_READINGS = 4
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


def merge(facts: Iterable[Fact]) -> Snapshot:
    """
    >>> merge([Claim("torch.version", "2.5.1+cu124", "pip")]).torch.backend
    'cu124'
    """
    kinds: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        kinds[type(fact)].append(fact)
    known, readings = choose_values(kinds[Claim])
    kinds[Event] += _torch_only_named(kinds[Claim])
    gpus, gpu_readings = choose_gpus(kinds[Gpus])
    by_kind = {(e.kind, *sorted(e.values.items())): e for e in reversed(kinds[Event])}
    events = without_followers(tuple(reversed(by_kind.values()))[:MAX_EVENTS])
    pci, packages, nodes, links = (
        tuple(dict.fromkeys(kinds[kind])) or None
        for kind in (PciDevice, Package, DeviceNode, GpuLink)
    )
    snapshot = Snapshot(
        origin="report",
        **{name: make(**known[name]) for name, make in PARTS.items()},
        gpus=gpus,
        gpu_links=links,
        pci_devices=pci,
        packages=packages,
        devices=nodes,
        environment=_environment(known["environment"]),
        failing=next(iter(kinds[Failing]), Failing()),
        events=events,
        readings=(*readings, *gpu_readings),
    )
    return with_implied_fields(snapshot)


def _torch_only_named(claims: list[Claim]) -> list[Event]:
    """What says that no program printed torch's version: a person named it in a sentence."""
    named = [claim for claim in claims if claim.subject == "torch.version"]
    if not named or any(claim.trust >= USUAL for claim in named):
        return []
    return [Event(kind="torch-only-named", source=named[0].source, text=str(named[0].value))]


FOLLOW_AN_ASSERTION = ("no-nvidia-gpu", "out-of-memory", "no-kernel-image", "cuda-library-error")
"""What fails after a kernel's assertion (CUDA error 710), whatever fails first."""


def without_followers(events: Events) -> Events:
    if not any(e.kind == "cuda-error" and e.values.get("code") == "710" for e in events):
        return events
    return tuple(e for e in events if e.kind not in FOLLOW_AN_ASSERTION or "asked" in e.values)


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, list[Reading]]:
    """The most trusted list with GPUs in it, each GPU with what other lists know of it; one that
    is not named is the only one that there is."""
    readings = [
        reading
        for listed in lists[:MAX_READINGS]
        for reading in gpu_readings(listed.source, listed.gpus)
    ]
    full = sorted((one for one in lists if one.gpus), key=lambda one: -one.trust)
    others = [gpu for one in full[1:] for gpu in one.gpus]
    kept = full[0].gpus[:MAX_GPUS] if full else ()
    alone = (UNNAMED,) if len(kept) == 1 else ()
    whole = (
        first_known(
            [gpu, *(one for one in others if same_gpu(gpu, one) or one.name in (gpu.name, *alone))]
        )
        for gpu in kept
    )
    return (tuple(whole) if lists else None), readings


def choose_values(claims: Iterable[Claim]) -> tuple[dict[str, dict[str, Any]], list[Reading]]:
    """For each field of each part the value of the most trusted claim, the earliest among equals."""
    by_subject: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_subject[claim.subject].append(claim)
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    readings: list[Reading] = []
    for subject, claimed in by_subject.items():
        ranked = sorted(claimed, key=lambda claim: -claim.trust)
        value = ranked[0].value
        if subject == "torch.version":
            value = _with_its_build(str(value), ranked)
        part, _, name = subject.partition(".")
        known[part][name] = tuple(str(value).split()) if subject == "torch.kernels" else value
        sources: dict[str, str] = {}
        for claim in ranked:
            sources.setdefault(str(claim.value), claim.source)
        for text, source in list(sources.items())[:MAX_READINGS]:
            readings.append(Reading(subject=subject, source=source, value=text))
    return known, readings


def _with_its_build(version: str, claims: list[Claim]) -> str:
    """The version with the build that another place of the text gives it.

    A title says "torch 2.7.0 cpu", the session below prints 2.7.0+cpu: they are one torch.

    >>> _with_its_build("2.7.0", [Claim("torch.version", "2.7.0+cpu", "line 2")])
    '2.7.0+cpu'
    """
    if "+" in version:
        return version
    for claim in claims:
        release, plus, _ = str(claim.value).partition("+")
        if plus and (release == version or release.startswith(f"{version}.")):
            return str(claim.value)
    return version


def _environment(named: dict[str, Any]) -> dict[str, str]:
    from gpusetup.readings.environment import without_credentials

    return {name: without_credentials(str(value)) for name, value in sorted(named.items())}


# --- fields that others imply ---------------------------------------------------------------------


def with_implied_fields(snapshot: Snapshot) -> Snapshot:
    """Fields that others imply: a backend by its label, the system by its tools."""
    gpus = _gpus(snapshot)
    return replace(
        snapshot,
        torch=_torch(snapshot),
        os=_os(snapshot),
        gpus=None if gpus is None else tuple(map(identified, gpus)),
        events=(
            *(_with_sizes(event, snapshot.os) for event in snapshot.events),
            *_library_folders(snapshot),
        ),
    )


def _library_folders(snapshot: Snapshot) -> Iterator[Event]:
    """What `LD_LIBRARY_PATH` puts in front: CUDA's folders, and the stubs that only link."""
    for folder in dict.fromkeys(snapshot.environment.get("LD_LIBRARY_PATH", "").split(":")):
        if re.search(r"/stubs|/cuda|cudnn|nccl", folder, re.I):
            kind = "libcuda-stub" if "/stubs" in folder.lower() else "foreign-library"
            yield Event(
                kind=kind, values={"folder": folder}, source="LD_LIBRARY_PATH", text=folder[:200]
            )


SIZE_FIELDS = {"asked": "asked_bytes", "total": "total_bytes", "total2": "total_bytes", "free": "free_bytes", "held": "held_bytes", "idle": "idle_bytes"}  # fmt: skip


def _with_sizes(event: Event, os: Os) -> Event:
    """The sizes of torch's message about memory as numbers; what `CUDA Version: ERR!` means in WSL."""
    from gpusetup.readings.nvidia_smi import memory

    if event.kind == "cuda-version-err" and (os.wsl or (os.wsl is None and os.kernel is None)):
        return replace(event, kind="wsl-driver")
    if event.kind != "out-of-memory":
        return event
    values = {
        SIZE_FIELDS.get(name, name): str(memory(text.replace("bytes", "B")))
        if name in SIZE_FIELDS
        else text
        for name, text in event.values.items()
    }
    return replace(event, values={name: text for name, text in values.items() if text != "None"})


def _torch(snapshot: Snapshot) -> Torch:
    from gpusetup.readings.packages import backend_of

    torch, listed = snapshot.torch, snapshot.packages or ()
    torches = [p for p in listed if p.name in ("torch", "pytorch")]
    versions = (p.version for p in torches)
    version = torch.version or max(versions, key=lambda v: ("+" in v, parsed(v)), default=None)
    version = _with_its_last_number(version)
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    is_cpu_build = any(e.kind == "torch-not-compiled-with-cuda" for e in snapshot.events) or any(
        re.search(r"(?:^|_)cpu", p.build or "") for p in torches
    )
    return replace(
        torch,
        version=version,
        cuda=torch.cuda or cuda_of(backend or ""),
        backend=backend or ("cpu" if is_cpu_build else None),
        installed=bool(version) or None if torch.installed is None else torch.installed,
        installer=torch.installer or next((p.installer for p in torches if p.installer), None),
    )


def _with_its_last_number(version: str | None) -> str | None:
    """A build that people call by two numbers is the first of its series.

    >>> _with_its_last_number("2.7+cu128"), _with_its_last_number("2.7")
    ('2.7.0+cu128', '2.7')
    """
    release, plus, label = (version or "").partition("+")
    return f"{release}.0+{label}" if plus and release.count(".") == 1 else version


def _os(snapshot: Snapshot) -> Os:
    os = snapshot.os
    family, version = os.family, snapshot.driver.version or ""
    # Only Linux' drivers have three numbers, and only its nvidia-smi a column of persistence.
    shown = version.count(".") == 2 or snapshot.driver.persistence is not None
    # What fails in WSL fails in its Linux, whatever Windows runs beside it.
    if os.wsl or (family is None and (shown or os.jetson)):
        family = "linux"
    machine = os.machine or ("aarch64" if os.jetson else None)
    wsl = os.wsl
    if wsl is None and family == "linux" and os.kernel:
        wsl = "microsoft" in os.kernel.lower()
    return replace(os, family=family, machine=machine, wsl=wsl)


DENY_NVIDIA = ("no-nvidia-gpu", "foreign-gpu")
"""Events that say that a machine has no NVIDIA GPU, or name another maker's."""
SHOW_NVIDIA = ("smi-sees-it", "xid", "gpu-fell-off-bus", "hybrid-gpu-off", "hosted-notebook", "out-of-memory", "no-kernel-image")  # fmt: skip
"""Events that speak of one all the same, or of a machine that is lent."""


def _has_no_nvidia_gpu(snapshot: Snapshot) -> bool:
    """Whether a text says that the machine has no NVIDIA GPU, and shows nothing of one."""
    kinds = {event.kind for event in snapshot.events}
    driver, os = snapshot.driver, snapshot.os
    shown = driver.version or driver.cuda or os.wsl or os.jetson or kinds.intersection(SHOW_NVIDIA)
    on_bus = any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())
    denied = kinds.intersection(DENY_NVIDIA)
    return bool(denied) and not (shown or on_bus or snapshot.torch.cuda_available)


def _gpus(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """Those that lists show, else those that messages about a capability name; () for none."""
    if snapshot.gpus:
        return snapshot.gpus
    named = tuple(dict.fromkeys(_gpus_in_messages(snapshot.events)))
    if named or _has_no_nvidia_gpu(snapshot):
        return named
    return None if snapshot.pci_devices else snapshot.gpus


def _gpus_in_messages(events: Events) -> list[Gpu]:
    """Those that a message names, else the one that a compiler was to compile for."""
    named = [
        Gpu(name=e.values["gpu"], compute_capability=Capability.parse(e.values["capability"]))
        for e in events
        if {"gpu", "capability"} <= e.values.keys()
    ]
    for event in events if not named else ():
        arch = event.values.get("capability") or event.values.get("arch", "")
        listed = event.values.get("compiler") == "nvcc" and arch.startswith("compute_")
        if event.kind in ("jit-arch-rejected", "gpu-not-in-wheel") and not listed:
            with suppress(ValueError):
                return [Gpu(name="unknown", compute_capability=Capability.parse(arch))]
    return named
