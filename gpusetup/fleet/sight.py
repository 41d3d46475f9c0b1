"""Which faults a record would contain if its node had them.

Only a record that looked for a fault can show that the fault is gone.
"""

from __future__ import annotations

from typing import get_args

from gpusetup.fleet.node_finding import NodeFinding, Source
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.readings.sources import bus_key

EVERYTHING: tuple[Source, ...] = get_args(Source)


class Sight(Frozen):
    """Which findings a record would contain if its node had the faults: by source, by GPU and by
    fact."""

    sources: tuple[Source, ...] = EVERYTHING
    gpus: tuple[str, ...] | None = None
    """The PCI addresses of the GPUs that responded; None if they are unknown."""
    facts: tuple[str, ...] | None = None
    """The facts that were compared with a profile; None if they are unknown."""

    def covers(self, source: Source, about: str) -> bool:
        """Whether the record would contain a finding from this source about this GPU or fact if the
        node had such a fault."""
        if source not in self.sources:
            return False
        if source == "profile":
            fact = about.partition(":")[0]
            return self.facts is None or fact in self.facts
        is_address = ":" in about
        # Require that the GPU is listed, because a GPU that is no longer listed was not examined.
        return not is_address or self.gpus is None or about in self.gpus

    def covers_all(self, finding: NodeFinding) -> bool:
        """Whether the record would have seen the finding on every GPU (or in every fact) that it is
        about."""
        # A finding about the whole node lists no GPUs.
        subjects = finding.about or ("",)
        return all(self.covers(finding.source, subject) for subject in subjects)


def sources_read(snapshot: Snapshot) -> tuple[Source, ...]:
    """The sources that a snapshot could read: `driver` if the driver responded for all GPUs, and
    `kernel log`."""
    sources: list[Source] = []
    answered = {reading.subject for reading in snapshot.readings if reading.problem is None}
    failed = {reading.subject for reading in snapshot.readings if reading.problem is not None}
    # A driver may report its version first and hang later, so the version alone proves nothing.
    if snapshot.gpus and snapshot.driver.nvml_code == 0 and "driver" not in failed:
        sources.append("driver")
    if "events" in answered:
        sources.append("kernel log")
    return tuple(sources)


def addresses(snapshot: Snapshot) -> tuple[str, ...] | None:
    """The PCI addresses of the GPUs in a snapshot, except for lost GPUs; None if a GPU has no
    address."""
    keys = []
    for gpu in snapshot.gpus or ():
        key = bus_key(gpu.pci_bus_id)
        if key is None:
            return None
        # Leave out lost GPUs, which are still listed but report nothing.
        if not gpu.lost:
            keys.append(key)
    return tuple(keys)
