"""Which of several findings is the root: the order of their records.

Findings stand in the order of their records: the layer, the rank in it. What is only a consequence
of a cause says its layer (`SHOWS`) and its record (`explains`).
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.causes.layers import SHOWS, Layer
from gpusetup.causes.record import RECORDS, Cause
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import replace


def order_of(finding: Finding) -> tuple[int, int, str]:
    """A finding's layer and rank; after every layer if it is never a root."""
    return RECORDS[finding.id].order


def consequences(cause: Cause) -> tuple[str, ...]:
    """The findings that a cause explains: those of its layer, and those that its record names.

    >>> from gpusetup.causes import table
    >>> consequences(RECORDS["cuda-sees-no-device"])
    ('torch-sees-no-gpu', 'gpu-check-failed')
    """
    shown = SHOWS.get(cause.place[0], ()) if cause.place else ()
    after = (id for id in shown if RECORDS[id].order > cause.order)
    # What explains the cause itself is none of its consequences.
    theirs = (id for id in after if cause.id not in RECORDS[id].explains)
    return tuple(dict.fromkeys((*theirs, *cause.explains)))


def with_explanations(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Each finding with the first other one, in the order of precedence, that explains it. An
    explained finding loses its commands: they do not mend it."""
    errors = sorted((f for f in findings if f.severity is Severity.ERROR), key=order_of)
    explained: dict[str, str] = {}
    for error in errors:
        for id in consequences(RECORDS[error.id]):
            explained.setdefault(id, error.id)
    return tuple(_explained(f, explained[f.id]) if f.id in explained else f for f in findings)


def _explained(finding: Finding, by: str) -> Finding:
    place = RECORDS[by].place
    fix = finding.fix and replace(finding.fix, commands=(), alternatives=())
    if place and place[0] is Layer.NO_GPU:
        fix = None  # its text speaks of a GPU too
    return replace(finding, explained_by=by, fix=fix)


def unexplained(findings: Iterable[Finding], root: Finding | None = None) -> list[Finding]:
    """The errors beside the root that no other one explains, in their order."""
    errors = (f for f in findings if f.severity is Severity.ERROR and f is not root)
    return sorted((error for error in errors if not error.explained_by), key=order_of)


def root_of(findings: tuple[Finding, ...]) -> Finding | None:
    """The first unexplained error, else the first loss of speed: the stack works, and loses it."""
    warnings = (f for f in findings if f.severity is Severity.WARNING)
    losses = (warning for warning in warnings if order_of(warning)[0] == Layer.LOSSES)
    return next(iter(unexplained(findings)), None) or min(losses, key=order_of, default=None)


def blocks_torch(findings: tuple[Finding, ...], *, torch_stays: bool) -> Finding | None:
    """The finding that must be mended before torch can be: a root in what the process is told, the
    container, the driver or the GPU; a driver that the torch asks for, which stays all the same."""
    for finding in findings:
        record = RECORDS[finding.id]
        below = record.place and Layer.PROCESS <= record.place[0] <= Layer.READINESS
        old_driver = torch_stays and finding.fix and finding.fix.min_driver
        if finding.severity in record.before_torch or (finding.root and (below or old_driver)):
            return finding
    return None
