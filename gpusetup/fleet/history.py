"""Records how long a node has had each of its findings, in a small file that `fleet check
--history` updates.

The file is in a folder of records, so `fleet show` reads it like any other record. It contains only
each finding's id, source, severity, title and times, and the GPU or fact that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Literal

from gpusetup.errors import BadInput
from gpusetup.fleet.gpu_words import gpus_of
from gpusetup.fleet.node_finding import FindingKey, NodeFinding, Source, keys_of
from gpusetup.fleet.nodes import SAFE
from gpusetup.fleet.sight import Sight
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace

MOST_BYTES = 1 << 20
"""A history has only a few kilobytes, so a larger file was not written by gpusetup."""
MOST_PAST_FINDINGS = 100
"""How many past findings are kept; on an unhealthy node, they cover months."""


class FindingHistory(Frozen):
    """A finding about one GPU or the whole node, with the times of the first and the last check
    that reported it."""

    id: str
    about: str | None = None
    """The GPU's PCI address, or the fact; "" for the whole node. None in older files."""
    source: Source = "driver"
    severity: Severity
    title: str
    """The title in the last check that reported the finding."""
    first_seen: str
    last_seen: str
    is_over: bool = False
    """Whether a later check looked for the finding and did not find it."""

    @property
    def key(self) -> FindingKey:
        return self.id, self.about or ""


class NodeHistory(Frozen):
    """The findings of one node over time; current ones come first."""

    schema: Literal["gpusetup.history/1"] = "gpusetup.history/1"
    checked_at: str | None = None
    findings: tuple[FindingHistory, ...] = ()

    def since(self) -> Mapping[FindingKey, str]:
        """Maps the key of each current finding to the time of the first check that reported it."""
        began: dict[FindingKey, str] = {}
        for finding in self.findings:
            if not finding.is_over:
                began[finding.key] = finding.first_seen
        return began


def file_name(node: str) -> str:
    """The file name for a node's history; a node name that is not safe in a file name becomes
    `node`.

    >>> file_name("gpu07"), file_name("../gpu07")
    ('gpu07.history.json', 'node.history.json')
    """
    # A host can have any name, but the file name must not lead out of the folder.
    is_safe = SAFE.fullmatch(node) is not None
    name = node if is_safe else "node"
    return f"{name}.history.json"


def read_history(text: str, what: str, now: str) -> NodeHistory:
    """The history in a file's text. Raises BadInput if gpusetup did not write the file.

    Times that cannot be read, or that are later than `now`, become `now`, because a node's clock
    may have been wrong or a user may have edited the file.
    """
    history = from_json(text, NodeHistory, what=what)
    present = moment(now)
    if present is None:
        raise BadInput(f"{now!r} is not a time")
    findings = []
    for finding in history.findings:
        first_seen = moment(finding.first_seen)
        is_plausible = first_seen is not None and first_seen <= present
        if not is_plausible:
            finding = replace(finding, first_seen=now)
        # Older files name the GPUs only in the title.
        subjects = gpus_of(finding.title) if finding.about is None else ()
        for subject in subjects or (finding.about or "",):
            findings.append(replace(finding, about=subject))
    return NodeHistory(checked_at=history.checked_at, findings=tuple(findings))


def updated(
    history: NodeHistory, findings: Iterable[NodeFinding], now: str, sight: Sight
) -> NodeHistory:
    """The history after a check at the time `now` that reported these findings.

    A finding ends only if the check could have seen it (`sight`); for example, memory errors do not
    end while the driver hangs. If a finding ends and comes back later, it is dated from its return.
    """
    since = history.since()
    current: dict[FindingKey, FindingHistory] = {}
    for finding in findings:
        for key in keys_of(finding):
            id, about = key
            # Findings with the same key, such as two messages, count as one; the first one gives
            # the title.
            row = FindingHistory(
                id=id,
                about=about,
                source=finding.source,
                severity=finding.severity,
                title=finding.title,
                first_seen=since.get(key, now),
                last_seen=now,
            )
            current.setdefault(key, row)
    unseen = []
    past = []
    for earlier in history.findings:
        if earlier.is_over:
            past.append(earlier)
        elif earlier.key in current:
            continue
        elif sight.covers(earlier.source, earlier.about or ""):
            past.append(replace(earlier, is_over=True))
        else:
            unseen.append(earlier)
    # The newest findings are the most useful, so the oldest are dropped.
    for rows in (unseen, past):
        rows.sort(key=lambda finding: finding.last_seen, reverse=True)
    kept = (*current.values(), *unseen[:MOST_PAST_FINDINGS], *past[:MOST_PAST_FINDINGS])
    return NodeHistory(checked_at=now, findings=kept)


def moment(text: str | None) -> datetime | None:
    """The time in a text, in UTC; None if the text is not an ISO 8601 time.

    >>> str(moment("2026-11-19T03:00:00Z")), moment("yesterday"), moment(None)
    ('2026-11-19 03:00:00+00:00', None, None)
    """
    if text is None:
        return None
    # Replace the `Z` at the end of our times, which Python 3.10 cannot read.
    with_offset = f"{text[:-1]}+00:00" if text.endswith("Z") else text
    try:
        time = datetime.fromisoformat(with_offset)
        if time.tzinfo is None:
            return time.replace(tzinfo=timezone.utc)
        return time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
