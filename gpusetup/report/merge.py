"""Facts of many lines become one snapshot: the most trusted value counts, the others stay readings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

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
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability, cuda_of, parsed
from gpusetup.readings.sources import UNNAMED, first_known, gpu_readings, same_gpu
from gpusetup.report import fields
from gpusetup.report.facts import USUAL, Claim, Fact, Gpus

MAX_EVENTS = 80
"""Different events of one text; a log of thousands of lines has fewer."""
MAX_GPUS = 64
MAX_READINGS = 4
"""Readings that are kept of one field: they show which sources differ."""
SHOWN_CHARACTERS = 200
"""Characters of a value that are quoted as evidence."""
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
"""The parts of a snapshot whose fields are claimed one by one: `torch.version` is of `torch`."""

Values = Mapping[str, Mapping[str, Any]]
"""The values of fields, by the part of the snapshot and the field's name in it."""


def merge(facts: Iterable[Fact]) -> Snapshot:
    """The machine that these facts show.

    >>> merge([Claim("torch.version", "2.5.1+cu124", "pip")]).torch.backend
    'cu124'
    """
    facts_by_kind: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        facts_by_kind[type(fact)].append(fact)
    claims: list[Claim] = facts_by_kind[Claim]
    values, field_readings = choose_values(claims)
    gpus, list_readings = choose_gpus(facts_by_kind[Gpus])
    parts = {name: make_part(**values[name]) for name, make_part in PARTS.items()}
    failing_programs = facts_by_kind[Failing]
    snapshot = Snapshot(
        origin="report",
        **parts,
        gpus=gpus,
        gpu_links=_each_once(facts_by_kind[GpuLink]),
        pci_devices=_each_once(facts_by_kind[PciDevice]),
        packages=_each_once(facts_by_kind[Package]),
        devices=_each_once(facts_by_kind[DeviceNode]),
        environment=_environment(values["environment"]),
        failing=failing_programs[0] if failing_programs else Failing(),
        events=_events([*facts_by_kind[Event], *_torch_only_named(claims)]),
        readings=(*field_readings, *list_readings),
    )
    return with_implied_fields(snapshot)


def _each_once(facts: list[Any]) -> tuple[Any, ...] | None:
    """Facts without repetitions, in the order of the text; None if the text has none."""
    different_facts = tuple(dict.fromkeys(facts))
    return different_facts or None


def _events(events: list[Event]) -> Events:
    """The different events in the order of their last occurrences, each as it first occurs.

    Events with the same kind and the same values are one.
    """
    different_events: dict[tuple[Any, ...], Event] = {}
    for event in reversed(events):
        values = sorted(event.values.items())
        key = (event.kind, *values)
        different_events[key] = event
    in_order = list(different_events.values())
    in_order.reverse()
    first_events = tuple(in_order[:MAX_EVENTS])
    return without_followers(first_events)


def _torch_only_named(claims: list[Claim]) -> Iterator[Event]:
    """The event that no program printed torch's version: only a person's sentence names it."""
    version_claims = [claim for claim in claims if claim.subject == fields.TORCH_VERSION]
    if not version_claims:
        return
    if any(claim.trust >= USUAL for claim in version_claims):
        return
    first_claim = version_claims[0]
    yield Event(kind="torch-only-named", source=first_claim.source, text=str(first_claim.value))


FOLLOW_AN_ASSERTION = ("no-nvidia-gpu", "out-of-memory", "no-kernel-image", "cuda-library-error")
"""Errors that every later call may report after a kernel's assertion failed (CUDA error 710)."""
ASSERTION_FAILED = "710"


def without_followers(events: Events) -> Events:
    """The events without those that only follow a failed assertion in a kernel."""
    assertion_failed = any(
        event.kind == "cuda-error" and event.values.get("code") == ASSERTION_FAILED
        for event in events
    )
    if not assertion_failed:
        return events
    # An allocation that names its size is an error in its own right.
    return tuple(
        event
        for event in events
        if event.kind not in FOLLOW_AN_ASSERTION or "asked" in event.values
    )


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, list[Reading]]:
    """The GPUs of the most trusted list, completed by the other lists; and what each list says.

    None if the text has no list; () if its lists say that there is no GPU.
    """
    readings: list[Reading] = []
    for gpu_list in lists[:MAX_READINGS]:
        readings.extend(gpu_readings(gpu_list.source, gpu_list.gpus))
    if not lists:
        return None, readings
    lists_with_gpus = [gpu_list for gpu_list in lists if gpu_list.gpus]
    if not lists_with_gpus:
        return (), readings
    # The sort is stable: among lists that are trusted alike the first one counts.
    ranked_lists = sorted(lists_with_gpus, key=lambda gpu_list: -gpu_list.trust)
    best_gpus = ranked_lists[0].gpus[:MAX_GPUS]
    gpus_of_other_lists: list[Gpu] = []
    for gpu_list in ranked_lists[1:]:
        gpus_of_other_lists.extend(gpu_list.gpus)
    is_only_gpu = len(best_gpus) == 1
    completed_gpus = []
    for gpu in best_gpus:
        same_gpus = [
            other_gpu
            for other_gpu in gpus_of_other_lists
            if _is_same(gpu, other_gpu, is_only_gpu=is_only_gpu)
        ]
        completed_gpus.append(first_known([gpu, *same_gpus]))
    return tuple(completed_gpus), readings


def _is_same(gpu: Gpu, other_gpu: Gpu, *, is_only_gpu: bool) -> bool:
    """Whether two lists speak of the same GPU."""
    if same_gpu(gpu, other_gpu) or other_gpu.name == gpu.name:
        return True
    # A GPU without a name can only be the one that the machine has.
    return is_only_gpu and other_gpu.name == UNNAMED


def choose_values(claims: Iterable[Claim]) -> tuple[Values, list[Reading]]:
    """The value of each field, and what different sources say of it.

    The most trusted claim counts, the first one among equals.
    """
    claims_by_subject: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        claims_by_subject[claim.subject].append(claim)
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    readings: list[Reading] = []
    for subject, claims_of_field in claims_by_subject.items():
        # The sort is stable: the order of the text stays among claims that are trusted alike.
        ranked_claims = sorted(claims_of_field, key=lambda claim: -claim.trust)
        part, _, name = subject.partition(".")
        values[part][name] = _value(subject, ranked_claims)
        readings.extend(_readings(subject, ranked_claims))
    return values, readings


def _value(subject: str, ranked_claims: list[Claim]) -> Any:
    """A field's value according to its most trusted claim, in the type that the snapshot has."""
    value = ranked_claims[0].value
    if subject == fields.TORCH_VERSION:
        return _with_its_build(str(value), ranked_claims)
    if subject == fields.TORCH_KERNELS:
        return tuple(str(value).split())
    return value


def _readings(subject: str, ranked_claims: list[Claim]) -> list[Reading]:
    """The different values of a field, each with the first source that gives it."""
    source_by_value: dict[str, str] = {}
    for claim in ranked_claims:
        source_by_value.setdefault(str(claim.value), claim.source)
    readings = [
        Reading(subject=subject, source=source, value=value)
        for value, source in source_by_value.items()
    ]
    return readings[:MAX_READINGS]


def _with_its_build(version: str, claims: list[Claim]) -> str:
    """The version with the build that another line of the text gives it.

    A title says "torch 2.7.0 cpu", the session below prints 2.7.0+cpu: they are one torch.

    >>> _with_its_build("2.7.0", [Claim("torch.version", "2.7.0+cpu", "line 2")])
    '2.7.0+cpu'
    """
    if "+" in version:
        return version
    for claim in claims:
        claimed_version = str(claim.value)
        release, plus, _ = claimed_version.partition("+")
        # "2.7" in a sentence is 2.7.0 or 2.7.1.
        is_same_release = release == version or release.startswith(f"{version}.")
        if plus and is_same_release:
            return claimed_version
    return version


def _environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """The variables in the order of their names, without passwords and tokens."""
    from gpusetup.readings.environment import without_credentials

    return {name: without_credentials(str(value)) for name, value in sorted(variables.items())}


# --- fields that others imply ---------------------------------------------------------------------


def with_implied_fields(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the fields that others imply: a backend by its label, a system by its tools."""
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


# The folders of CUDA's libraries, and the stubs that programs are only linked against.
CUDA_FOLDER = lazy(r"/stubs|/cuda|cudnn|nccl", re.I)


def _library_folders(snapshot: Snapshot) -> Iterator[Event]:
    """The folders of CUDA's libraries that LD_LIBRARY_PATH puts before those of torch."""
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
"""A size in torch's message about memory, as the pattern reads it, and the number that it becomes."""


def _with_meaning(event: Event, os: Os) -> Event:
    """The event with what only the whole text can tell: sizes in bytes, and an error of WSL."""
    if event.kind == "cuda-version-err":
        # In WSL `CUDA Version: ERR!` means a driver that is too old for WSL. A text that shows no
        # Linux kernel may be of WSL.
        may_be_wsl = os.wsl or (os.wsl is None and os.kernel is None)
        return replace(event, kind="wsl-driver") if may_be_wsl else event
    if event.kind == "out-of-memory":
        return replace(event, values=_with_bytes(event.values))
    return event


def _with_bytes(values: Mapping[str, str]) -> dict[str, str]:
    """The values of an out-of-memory event, its sizes as numbers of bytes."""
    from gpusetup.readings.nvidia_smi import memory

    values_in_bytes: dict[str, str] = {}
    for name, text in values.items():
        if name not in SIZE_FIELDS:
            values_in_bytes[name] = text
            continue
        size = memory(text.replace("bytes", "B"))
        # A size that cannot be read says nothing.
        if size is not None:
            values_in_bytes[SIZE_FIELDS[name]] = str(size)
    return values_in_bytes


# --- torch ----------------------------------------------------------------------------------------

# conda's name of a CPU build: `py3.12_cpu_0`.
CPU_BUILD = lazy(r"(?:^|_)cpu")


def _torch(snapshot: Snapshot) -> Torch:
    """torch, with what the list of packages and torch's own messages add."""
    from gpusetup.readings.packages import backend_of

    torch = snapshot.torch
    packages = snapshot.packages or ()
    torch_packages = [package for package in packages if package.name in ("torch", "pytorch")]
    version = _with_third_number(torch.version or _best_version(torch_packages))
    backend = backend_of(version, torch.cuda, torch.hip) or torch.backend
    if backend is None and _has_cpu_build(snapshot.events, torch_packages):
        backend = "cpu"
    installed = torch.installed
    if installed is None and version:
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


class VersionRank(NamedTuple):
    """How much a version says: one with a build's label more than one without, then the later one."""

    has_label: bool
    release: Any


def _best_version(packages: list[Package]) -> str | None:
    """The version of these packages that says most."""

    def rank(version: str) -> VersionRank:
        has_label = "+" in version
        return VersionRank(has_label, parsed(version))

    versions = [package.version for package in packages]
    return max(versions, key=rank, default=None)


def _has_cpu_build(events: Events, torch_packages: list[Package]) -> bool:
    """Whether torch says that it has no CUDA, or conda's name of the build does."""
    if any(event.kind == "torch-not-compiled-with-cuda" for event in events):
        return True
    for package in torch_packages:
        build = package.build or ""
        if CPU_BUILD.search(build):
            return True
    return False


def _with_third_number(version: str | None) -> str | None:
    """The version of a build, with the third number that people leave out: it is the first release.

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


def _os(snapshot: Snapshot) -> Os:
    """The system, with what the driver, the kernel and a Jetson imply."""
    os = snapshot.os
    driver_version = snapshot.driver.version or ""
    # Only Linux' drivers have three numbers, and only its nvidia-smi a column of persistence.
    has_linux_driver = driver_version.count(".") == 2 or snapshot.driver.persistence is not None
    family = os.family
    if family is None and (has_linux_driver or os.jetson):
        family = "linux"
    # What fails in WSL fails in its Linux, although the machine also runs Windows.
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
"""Events that say that a machine has no NVIDIA GPU, or that name another maker's."""
SHOW_NVIDIA = (
    "smi-sees-it",
    "xid",
    "gpu-fell-off-bus",
    "hybrid-gpu-off",
    "out-of-memory",
    "no-kernel-image",
    # A notebook on a rented machine may have one at another time.
    "hosted-notebook",
)
"""Events that speak of an NVIDIA GPU all the same."""


def _has_no_nvidia_gpu(snapshot: Snapshot) -> bool:
    """Whether a text says that the machine has no NVIDIA GPU, and shows nothing of one."""
    kinds = {event.kind for event in snapshot.events}
    if not kinds.intersection(DENY_NVIDIA):
        return False
    if kinds.intersection(SHOW_NVIDIA) or snapshot.torch.cuda_available:
        return False
    # WSL and a Jetson have an NVIDIA GPU if anything speaks of CUDA there.
    if snapshot.os.wsl or snapshot.os.jetson:
        return False
    if snapshot.driver.version or snapshot.driver.cuda:
        return False
    return not any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())


def _gpus(snapshot: Snapshot) -> tuple[Gpu, ...] | None:
    """The GPUs of lists, else those that messages about a capability name; () if there is none."""
    if snapshot.gpus:
        return snapshot.gpus
    gpus_in_messages = tuple(dict.fromkeys(_gpus_in_messages(snapshot.events)))
    if gpus_in_messages or _has_no_nvidia_gpu(snapshot):
        return gpus_in_messages
    # A device on the bus may be a GPU that no list names.
    return None if snapshot.pci_devices else snapshot.gpus


def _gpus_in_messages(events: Events) -> list[Gpu]:
    """The GPUs that messages name with their capability, else the one that a compiler compiled for."""
    gpus = []
    for event in events:
        if "gpu" in event.values and "capability" in event.values:
            capability = Capability.parse(event.values["capability"])
            gpus.append(Gpu(name=event.values["gpu"], compute_capability=capability))
    if gpus:
        return gpus
    for event in events:
        compiled_for = _compiled_for(event)
        if compiled_for:
            return [Gpu(name="unknown", compute_capability=compiled_for)]
    return []


def _compiled_for(event: Event) -> Capability | None:
    """The capability that a compiler or torch lacked code for; None if the event has none."""
    if event.kind not in ("jit-arch-rejected", "gpu-not-in-wheel"):
        return None
    architecture = event.values.get("capability") or event.values.get("arch", "")
    # nvcc compiles for every architecture of a list, whatever GPU the machine has.
    is_of_a_list = event.values.get("compiler") == "nvcc" and architecture.startswith("compute_")
    if is_of_a_list:
        return None
    with suppress(ValueError):
        return Capability.parse(architecture)
    return None
