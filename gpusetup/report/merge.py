"""Merges facts from many lines into one snapshot: the most trusted value wins, and the others are
kept as readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpusetup.model.finding import Failing
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
from gpusetup.readings.sources import UNNAMED, first_known, gpu_readings, same_gpu
from gpusetup.report.facts import USUAL, Claim, Fact, Gpus
from gpusetup.report.implied import with_implied_fields

MAX_EVENTS = 80
"""The most different events that are kept. Even a log of thousands of lines has fewer."""
MAX_GPUS = 64
MAX_READINGS = 4
"""The most readings that are kept for one field. They show which sources disagree."""
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
"""The parts of a snapshot that are built from claims, by the first part of a subject:
`torch.version` belongs to `torch`."""

Values = Mapping[str, Mapping[str, Any]]
"""The values of fields: the name of a snapshot's part -> a field's name -> its value."""


def merge(facts: Iterable[Fact]) -> Snapshot:
    """The snapshot of the machine that these facts describe.

    >>> merge([Claim("torch.version", "2.5.1+cu124", "pip")]).torch.backend
    'cu124'
    """
    facts_by_kind: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        facts_by_kind[type(fact)].append(fact)
    events: list[Event] = facts_by_kind[Event]
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
        events=_events([*events, *_torch_only_named(claims)]),
        readings=(*field_readings, *list_readings),
    )
    return with_implied_fields(snapshot)


def _each_once(facts: list[Any]) -> tuple[Any, ...] | None:
    """Facts without duplicates, in the order of the text; None if there are none."""
    different_facts = tuple(dict.fromkeys(facts))
    return different_facts or None


def _events(events: list[Event]) -> Events:
    """The different events in the order of their last occurrence, each with the evidence of its
    first one.

    Events with the same kind and values count as the same event.
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
    """An event for torch's version if only a person names it and no program printed it."""
    version_claims = [claim for claim in claims if claim.subject == "torch.version"]
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
    """The events without those that a failed assertion in a kernel may have caused."""
    assertion_failed = any(
        event.kind == "cuda-error" and event.values.get("code") == ASSERTION_FAILED
        for event in events
    )
    if not assertion_failed:
        return events
    # Keep an out-of-memory error that names the size of the allocation, because it is an error of
    # its own.
    return tuple(
        event
        for event in events
        if event.kind not in FOLLOW_AN_ASSERTION or "asked" in event.values
    )


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, list[Reading]]:
    """The GPUs in the most trusted list, completed from the other lists, and the readings of all
    lists.

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
    # The sort is stable, so the first of several equally trusted lists counts.
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
    """Whether two lists mean the same GPU."""
    if same_gpu(gpu, other_gpu) or other_gpu.name == gpu.name:
        return True
    # If the machine has only one GPU, a GPU without a name is that one.
    return is_only_gpu and other_gpu.name == UNNAMED


def choose_values(claims: Iterable[Claim]) -> tuple[Values, list[Reading]]:
    """The value of each field, and the readings of it from different sources.

    The most trusted claim counts; among equally trusted claims, the first.
    """
    claims_by_subject: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        claims_by_subject[claim.subject].append(claim)
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    readings: list[Reading] = []
    for subject, claims_of_field in claims_by_subject.items():
        # The sort is stable, so equally trusted claims stay in the order of the text.
        ranked_claims = sorted(claims_of_field, key=lambda claim: -claim.trust)
        part, _, name = subject.partition(".")
        values[part][name] = _value(subject, ranked_claims)
        readings.extend(_readings(subject, ranked_claims))
    return values, readings


def _value(subject: str, ranked_claims: list[Claim]) -> Any:
    """The value of a field from the most trusted claim, converted to the snapshot's type."""
    value = ranked_claims[0].value
    if subject == "torch.version":
        return _with_its_build(str(value), ranked_claims)
    if subject == "torch.kernels":
        return tuple(str(value).split())
    return value


def _readings(subject: str, ranked_claims: list[Claim]) -> list[Reading]:
    """The different values of a field, each with the first source for it; at most MAX_READINGS."""
    source_by_value: dict[str, str] = {}
    for claim in ranked_claims:
        source_by_value.setdefault(str(claim.value), claim.source)
    readings = [
        Reading(subject=subject, source=source, value=value)
        for value, source in source_by_value.items()
    ]
    return readings[:MAX_READINGS]


def _with_its_build(version: str, claims: list[Claim]) -> str:
    """The version with its build label, if another claim gives the label for the same release.

    For example, a title says "torch 2.7.0 cpu" and the session below prints 2.7.0+cpu. Both mean
    the same torch.

    >>> _with_its_build("2.7.0", [Claim("torch.version", "2.7.0+cpu", "line 2")])
    '2.7.0+cpu'
    """
    if "+" in version:
        return version
    for claim in claims:
        claimed_version = str(claim.value)
        release, plus, _ = claimed_version.partition("+")
        # "2.7" in a sentence can mean 2.7.0 or 2.7.1.
        is_same_release = release == version or release.startswith(f"{version}.")
        if plus and is_same_release:
            return claimed_version
    return version


def _environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables sorted by name, with credentials removed from their values."""
    from gpusetup.readings.environment import without_credentials

    return {name: without_credentials(str(value)) for name, value in sorted(variables.items())}
