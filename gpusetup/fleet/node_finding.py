"""A finding about a node, and what tells it from others over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

Source = Literal["driver", "kernel log", "profile", "snapshot", "verify"]
"""Where a finding comes from: `snapshot` has what only doctor looks at, such as torch."""


class NodeFinding(Frozen):
    """A finding about a node."""

    id: str
    severity: Severity
    title: str = ""
    root: bool = False
    since: str | None = None
    """When a check had it for the first time, if the node keeps a history."""
    about: tuple[str, ...] = ()
    """The PCI addresses of its GPUs, or the fact that is unlike the profile; () for the node."""
    source: Source = "driver"
    taken_at: str | None = None
    """When the record was taken that has it."""


FindingKey = tuple[str, str]
"""What a history knows a finding by: its id, and one of the GPUs or facts that it is about."""


def keys_of(finding: NodeFinding) -> tuple[FindingKey, ...]:
    """A key for each GPU of a finding; one key if it is about the whole node.

    >>> keys_of(NodeFinding(id="hot", severity=Severity.ERROR, about=("0000:1a:00.0",)))
    (('hot', '0000:1a:00.0'),)
    """
    subjects = finding.about or ("",)
    return tuple((finding.id, subject) for subject in subjects)


def first_seen(finding: NodeFinding, since: Mapping[FindingKey, str]) -> str | None:
    """Since when a node has a finding: of several GPUs the first counts; None if it is new."""
    times = [since[key] for key in keys_of(finding) if key in since]
    return min(times, default=None)
