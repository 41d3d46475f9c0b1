"""Merges facts from many lines into one snapshot: the most trusted value wins, and the others are
kept as readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from gpusetup.model.finding import Failing
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import (
    DeviceNode,
    Event,
    Events,
    Gpu,
    GpuLink,
    Package,
    PciDevice,
    Reading,
    Snapshot,
)
from gpusetup.readings.sources import UNNAMED, first_known, gpu_readings, same_gpu
from gpusetup.report.facts import Claim, Fact, Gpus
from gpusetup.report.implied import with_implied_fields

MAX_EVENTS = 80
"""The most different events that are kept. Even a log of thousands of lines has fewer."""
MAX_GPUS = 64
"""The most GPUs that are kept. NVIDIA's largest machine, the DGX-2, has 16."""
MAX_READINGS = 4
"""The most readings that are kept for one field. They show which sources disagree."""
PARTS = ("os", "python", "driver", "cuda_api", "torch", "container", "toolkit", "memory", "wanted")
"""The parts of a snapshot that are built from claims, by the first part of a subject:
`torch.version` belongs to `torch`."""
EMPTY = Snapshot(origin="report")

LISTED_KINDS = {
    "gpu_links": GpuLink,
    "pci_devices": PciDevice,
    "packages": Package,
    "devices": DeviceNode,
}


def merge(facts: Iterable[Fact]) -> Snapshot:
    """The snapshot of the machine that these facts describe.

    >>> merge([Claim("torch.version", "2.5.1+cu124", "pip")]).torch.backend
    'cu124'
    """
    by_kind: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        by_kind[type(fact)].append(fact)
    ranked = claims_by_trust(by_kind[Claim])
    values = values_of(ranked)
    gpus, list_readings = choose_gpus(by_kind[Gpus])
    # Facts without duplicates, in the order of the text; None if there are none.
    listed: dict[str, Any] = {
        name: tuple(dict.fromkeys(by_kind[kind])) or None for name, kind in LISTED_KINDS.items()
    }
    snapshot = replace(
        EMPTY,
        **{name: replace(getattr(EMPTY, name), **values[name]) for name in PARTS},
        **listed,
        gpus=gpus,
        environment={
            name: without_logins(str(value))
            for name, value in sorted(values["environment"].items())
        },
        failing=next(iter(by_kind[Failing]), Failing()),
        events=_events(by_kind[Event]),
        readings=(*readings_of_fields(ranked), *list_readings),
    )
    return with_implied_fields(snapshot)


def _events(events: list[Event]) -> Events:
    """The different events in the order of their last occurrence, each with the evidence of its
    first one.

    Events with the same kind and values count as the same event.
    """
    different: dict[tuple[Any, ...], Event] = {}
    # An event that replaces a later one keeps that one's place in the dict.
    for event in reversed(events):
        key = (event.kind, *sorted(event.values.items()))
        different[key] = event
    return tuple(reversed(different.values()))[:MAX_EVENTS]


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, list[Reading]]:
    """The GPUs in the most trusted list, completed from the other lists, and the readings of all
    lists.

    None if the text has no list; () if its lists say that there is no GPU.
    """
    readings: list[Reading] = []
    for listed in lists[:MAX_READINGS]:
        readings += gpu_readings(listed.source, listed.gpus)
    if not lists:
        return None, readings
    not_empty = [listed for listed in lists if listed.gpus]
    # The sort is stable, so the first of several equally trusted lists counts.
    ranked = sorted(not_empty, key=lambda listed: -listed.trust)
    if not ranked:
        return (), readings
    best = ranked[0].gpus[:MAX_GPUS]
    others = [gpu for listed in ranked[1:] for gpu in listed.gpus]

    def is_same(gpu: Gpu, other: Gpu) -> bool:
        """Whether two lists mean the same GPU. One without a name may be a machine's only GPU."""
        is_only_gpu = len(best) == 1 and other.name == UNNAMED
        return same_gpu(gpu, other) or other.name == gpu.name or is_only_gpu

    completed = []
    for gpu in best:
        same = [other for other in others if is_same(gpu, other)]
        completed.append(first_known([gpu, *same]))
    return tuple(completed), readings


def claims_by_trust(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims about each field, by its subject; the most trusted first, and equally trusted ones
    in the order of the text."""
    by_subject: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_subject[claim.subject].append(claim)
    return {
        subject: sorted(of_field, key=lambda claim: -claim.trust)
        for subject, of_field in by_subject.items()
    }


def values_of(ranked: Mapping[str, list[Claim]]) -> dict[str, dict[str, Any]]:
    """The value of each field from its best claim, by the part of the snapshot and the field's
    name: `{"torch": {"version": "2.5.1"}}`."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for subject, (best, *_) in ranked.items():
        part, _, name = subject.partition(".")
        values[part][name] = best.value
    # The only field of several values. A claim joins them by spaces.
    if "kernels" in values["torch"]:
        values["torch"]["kernels"] = tuple(values["torch"]["kernels"].split())
    return values


def readings_of_fields(ranked: Mapping[str, list[Claim]]) -> Iterator[Reading]:
    """A reading for each different value that is claimed for a field, with its best source."""
    for subject, of_field in ranked.items():
        sources: dict[str, str] = {}
        for claim in of_field:
            sources.setdefault(str(claim.value), claim.source)
        for value, source in islice(sources.items(), MAX_READINGS):
            yield Reading(subject=subject, source=source, value=value)
