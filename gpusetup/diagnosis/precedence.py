"""Which of several findings is the root, by the order of their records.

Findings are sorted like their records: by layer, then by rank in the layer. A cause's layer
(`SHOWS`) and record (`explains`) list its consequences.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.causes.layers import SHOWS, Layer
from gpusetup.causes.record import RECORDS, Cause
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import replace


def order_of(finding: Finding) -> tuple[int, int, str]:
    """A finding's layer and rank; findings that are never the root come last."""
    return RECORDS[finding.id].order


def consequences(cause: Cause) -> tuple[str, ...]:
    """The ids of findings that a cause explains: by its layer, and by name in its record.

    >>> from gpusetup.causes import table
    >>> consequences(RECORDS["cuda-sees-no-device"])
    ('torch-sees-no-gpu', 'gpu-check-failed')
    """
    of_layer = SHOWS.get(cause.place[0], ()) if cause.place else ()
    explained = [
        id
        for id in of_layer
        # A layer lists the same findings for all of its causes. Those that come before this cause,
        # or explain it, are not its consequences.
        if RECORDS[id].order > cause.order and cause.id not in RECORDS[id].explains
    ]
    # Both the layer and the record may list the same finding.
    return tuple(dict.fromkeys((*explained, *cause.explains)))


def with_explanations(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Each finding with the first other finding that explains it, in the order of precedence.

    An explained finding loses its commands, because they would not fix it.
    """
    explanation: dict[str, str] = {}
    for error in _errors_in_order(findings):
        for finding_id in consequences(RECORDS[error.id]):
            explanation.setdefault(finding_id, error.id)
    explained = []
    for finding in findings:
        if cause := explanation.get(finding.id):
            fix, place = finding.fix, RECORDS[cause].place
            # Without a GPU, even the text of the fix is wrong, because it assumes one.
            is_wrong = place is not None and place[0] is Layer.NO_GPU
            text_alone = fix and replace(fix, commands=(), alternatives=())
            fix = None if is_wrong else text_alone
            finding = replace(finding, explained_by=cause, fix=fix)
        explained.append(finding)
    return tuple(explained)


def _errors_in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The errors, in the order of their records."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return sorted(errors, key=order_of)


def unexplained(findings: Iterable[Finding], root: Finding | None = None) -> list[Finding]:
    """The errors other than the root that no finding explains, in their order."""
    errors = _errors_in_order(findings)
    return [error for error in errors if error is not root and not error.explained_by]


def root_of(findings: tuple[Finding, ...]) -> Finding | None:
    """The first unexplained error; without one, the first warning about lost speed."""
    losses = [
        finding
        for finding in findings
        if finding.severity is Severity.WARNING and order_of(finding)[0] == Layer.LOSSES
    ]
    return next(iter(unexplained(findings)), min(losses, key=order_of, default=None))


def blocks_torch(findings: tuple[Finding, ...], *, torch_stays: bool) -> Finding | None:
    """The finding that must be fixed before torch can be; None if there is none.

    This is a root in the process's settings, the container, the driver or the GPU. If torch stays
    as it is, it is also the driver that torch needs.
    """
    for finding in findings:
        record = RECORDS[finding.id]
        if finding.severity in record.before_torch:
            return finding
        if not finding.root:
            continue
        is_below_torch = record.place and Layer.PROCESS <= record.place[0] <= Layer.READINESS
        asks_for_newer_driver = finding.fix and finding.fix.min_driver
        if is_below_torch or (torch_stays and asks_for_newer_driver):
            return finding
    return None
