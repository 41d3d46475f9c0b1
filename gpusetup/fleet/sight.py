"""What a record could have seen of its node: only a record that looked for a fault can show that
the fault is gone."""

from __future__ import annotations

from typing import get_args

from gpusetup.fleet.node_finding import NodeFinding, Source
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.readings.sources import bus_key

EVERYTHING: tuple[Source, ...] = get_args(Source)


class Sight(Frozen):
    """Which findings a record would contain if its node had the fault: by source, by GPU and by
    fact."""

    sources: tuple[Source, ...] = EVERYTHING
    gpus: tuple[str, ...] | None = None
    """The PCI addresses of the GPUs that answered; None if they are not known."""
    facts: tuple[str, ...] | None = None
    """The facts that were compared with a profile; None if they are not known."""

    def covers(self, source: Source, about: str) -> bool:
        """Whether the record would contain a finding from this source about this GPU or fact, if
        the node had it."""
        if source not in self.sources:
            return False
        if source == "profile":
            fact = about.partition(":")[0]
            return self.facts is None or fact in self.facts
        is_address = ":" in about
        # A GPU that is gone from the list was not looked at.
        return not is_address or self.gpus is None or about in self.gpus

    def covers_all(self, finding: NodeFinding) -> bool:
        """Whether the record would have seen a finding on every GPU (or in every fact) that it is
        about."""
        # A finding about the whole node names no GPU.
        subjects = finding.about or ("",)
        return all(self.covers(finding.source, subject) for subject in subjects)


def sources_read(snapshot: Snapshot) -> tuple[Source, ...]:
    """The sources that a snapshot could read: `driver` if it answered for all GPUs, and `kernel
    log`."""
    sources: list[Source] = []
    answered = {reading.subject for reading in snapshot.readings if reading.problem is None}
    failed = {reading.subject for reading in snapshot.readings if reading.problem is not None}
    # A driver that hangs in the middle has told its version before.
    if snapshot.gpus and snapshot.driver.nvml_code == 0 and "driver" not in failed:
        sources.append("driver")
    if "events" in answered:
        sources.append("kernel log")
    return tuple(sources)


def addresses(snapshot: Snapshot) -> tuple[str, ...] | None:
    """The PCI addresses of the GPUs in a snapshot, without lost ones; None if one has no
    address."""
    keys = []
    for gpu in snapshot.gpus or ():
        key = bus_key(gpu.pci_bus_id)
        if key is None:
            return None
        # A lost GPU is listed, and tells nothing.
        if not gpu.lost:
            keys.append(key)
    return tuple(keys)
