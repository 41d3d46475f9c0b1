"""A finding about a node, and the key that identifies it over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace

Source = Literal["driver", "kernel log", "profile", "snapshot", "verify"]
"""Where a finding comes from. `snapshot` means something that only doctor examines, such as torch.
"""


class NodeFinding(Frozen):
    """A finding about a node, with its GPUs, its source and its times."""

    id: str
    severity: Severity
    title: str = ""
    root: bool = False
    since: str | None = None
    """When a check first reported the finding, if the node keeps a history."""
    last_since: str | None = None
    """When the finding appeared on the last of its GPUs, if it did not appear on all GPUs at once.
    """
    about: tuple[str, ...] = ()
    """The PCI addresses of the GPUs with the finding, or the fact that differs from the profile; ()
    if the finding is about the whole node."""
    source: Source = "driver"
    taken_at: str | None = None
    """When the record that contains it was taken."""


FindingKey = tuple[str, str]
"""How a history identifies a finding: by its id, and one of the GPUs or facts that it is about."""


def keys_of(finding: NodeFinding) -> tuple[FindingKey, ...]:
    """One key for each GPU or fact that a finding is about; a single key if it is about the whole
    node.

    >>> keys_of(NodeFinding(id="hot", severity=Severity.ERROR, about=("0000:1a:00.0",)))
    (('hot', '0000:1a:00.0'),)
    """
    subjects = finding.about or ("",)
    return tuple((finding.id, subject) for subject in subjects)


def dated(
    finding: NodeFinding, since: Mapping[FindingKey, str], now: str | None = None
) -> NodeFinding:
    """The finding with the times from a node's history. Keys that are not in the history get the
    time `now`."""
    times = [since.get(key, now) for key in keys_of(finding)]
    known_times = sorted(time for time in times if time is not None)
    if not known_times:
        return finding
    first = known_times[0]
    last = known_times[-1]
    return replace(finding, since=first, last_since=None if last == first else last)


def since_words(finding: NodeFinding, now: str | None = None) -> str:
    """` (since DATE)` for a finding that an earlier check already reported; "" if it has no time or
    is new at the time `now`.

    >>> since_words(NodeFinding(id="hot", severity=Severity.ERROR, since="Monday"))
    ' (since Monday)'
    """
    if finding.since is None or finding.since == now:
        return ""
    if finding.last_since is None:
        return f" (since {finding.since})"
    return f" (since {finding.since}, the last GPU since {finding.last_since})"
