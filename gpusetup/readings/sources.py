"""What different sources report about a machine, and how their reports are merged.

Every source returns the part of a `Snapshot` that it knows. Merging takes each field from the first
source that knows it. The readings of all sources are kept, so a disagreement stays visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from gpusetup.model.frozen import defaults, replace
from gpusetup.model.machine import Gpu, Reading, Snapshot

T = TypeVar("T")
Snapshots = Sequence[Snapshot]
"""The partial snapshots from several sources."""
UNNAMED = "unknown"
"""The name for a GPU whose name the source does not know."""


def missing(subject: str, source: str, problem: str) -> Snapshot:
    """A snapshot that only records that a source has no answer, and why."""
    return Snapshot(readings=(Reading(subject=subject, source=source, problem=problem),))


def first_known(values: Iterable[T]) -> T:
    """Merge frozen values of one class: each field comes from the first value that has it.

    >>> from gpusetup.model.machine import Driver
    >>> first_known([Driver(version="580.95.05"), Driver(version="570.86", cuda="13.0")]).cuda
    '13.0'
    """
    answers = list(values)
    fields: dict[str, Any] = {}
    for name, default in defaults(answers[0]):
        for answer in answers:
            value = getattr(answer, name)
            # A default tells nothing about the machine. That of a mapping is listed as a function
            # that creates `{}`.
            if value not in (None, UNNAMED, default, {}):
                fields[name] = value
                break
    return replace(answers[0], **fields)


def merged_snapshots(parts: Snapshots) -> Snapshot:
    """One snapshot merged from several, with the events and readings of all."""
    return replace(
        first_known(parts),
        events=tuple(event for part in parts for event in part.events),
        readings=tuple(reading for part in parts for reading in part.readings),
    )


def readings_of(subject: str, source: str, value: Any) -> tuple[Reading, ...]:
    """One reading for each field of a record that the source knows.

    >>> from gpusetup.model.machine import Driver
    >>> readings_of("driver", "/proc", Driver(version="580.95.05"))[0].subject
    'driver.version'
    """
    return tuple(
        Reading(subject=f"{subject}.{name}", source=source, value=str(field_value))
        for name in value.__struct_fields__
        if (field_value := getattr(value, name)) is not None
    )


def gpu_readings(source: str, gpus: Sequence[Gpu]) -> tuple[Reading, ...]:
    """A reading with the GPUs that a source sees."""
    value = "; ".join(map(gpu_line, gpus)) or "none"
    return (Reading(subject="gpus", source=source, value=value),)


def gpu_line(gpu: Gpu) -> str:
    """A GPU in one line, for use as evidence.

    >>> gpu_line(Gpu(name="NVIDIA L40S", nvml_index=0, pci_bus_id="00000000:17:00.0", lost=True))
    '0: NVIDIA L40S, 00000000:17:00.0, lost'
    """
    index = gpu.nvml_index if gpu.nvml_index is not None else gpu.cuda_index
    lost = "lost" if gpu.lost else None
    parts = (gpu.name, gpu.compute_capability, gpu.pci_bus_id, gpu.uuid, lost)
    line = ", ".join(str(part) for part in parts if part is not None)
    return line if index is None else f"{index}: {line}"


def bus_key(bus_id: str | None) -> str | None:
    """A PCI address in one notation: lower case, with a domain of four digits; None if it is not an
    address.

    >>> bus_key("00000000:3B:00.0"), bus_key("0000:3b:00.0"), bus_key("3B:00.0")
    ('0000:3b:00.0', '0000:3b:00.0', '0000:3b:00.0')
    """
    if not bus_id or ":" not in bus_id:
        return None
    # An address without a domain belongs to domain 0.
    domain, bus, device = ("0", *bus_id.strip().lower().split(":"))[-3:]
    return f"{domain.lstrip('0').rjust(4, '0')}:{bus}:{device}"


def same_gpu(gpu: Gpu, other: Gpu) -> bool:
    """Whether two GPUs are the same: by UUID if both have one, else by PCI address, else by NVML
    index."""
    for identifier, of_other in zip(_identifiers(gpu), _identifiers(other), strict=True):
        if identifier is not None and of_other is not None:
            return identifier == of_other
    return False


def _identifiers(gpu: Gpu) -> tuple[str | None, str | None, int | None]:
    """What identifies a GPU, most reliable first: UUID, PCI address, NVML index. The UUID of a MIG
    instance is left out, because it does not tell which GPU the instance belongs to."""
    uuid = (gpu.uuid or "").lower()
    is_of_gpu = uuid and not uuid.startswith("mig-")
    return uuid if is_of_gpu else None, bus_key(gpu.pci_bus_id), gpu.nvml_index


def merged_gpus(base: Sequence[Gpu], others: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs, completed with values from other sources, followed by GPUs that only other sources
    have."""
    merged = list(base)
    for other in others:
        # A GPU without any identifier is the same as another only if all its values are.
        if other in base:
            continue
        positions = [position for position, gpu in enumerate(merged) if same_gpu(gpu, other)]
        for position in positions:
            merged[position] = first_known((merged[position], other))
        if not positions:
            merged.append(other)
    return tuple(merged)
