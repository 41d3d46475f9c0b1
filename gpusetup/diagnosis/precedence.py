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
    of_layer = SHOWS.get(cause.layer, ()) if cause.layer else ()
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
    explanations: dict[str, str] = {}
    for error in _errors_in_order(findings):
        for explained in consequences(RECORDS[error.id]):
            explanations.setdefault(explained, error.id)
    return tuple(
        _explained(finding, explanations[finding.id]) if finding.id in explanations else finding
        for finding in findings
    )


def _explained(finding: Finding, cause: str) -> Finding:
    """The finding as a consequence of a cause, with the text of its fix alone."""
    fix = finding.fix
    # Without a GPU, even the text of the fix is wrong, because it assumes one.
    if fix is None or RECORDS[cause].layer is Layer.NO_GPU:
        return replace(finding, explained_by=cause, fix=None)
    text_alone = replace(fix, commands=(), alternatives=())
    return replace(finding, explained_by=cause, fix=text_alone)


def _errors_in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The errors, in the order of their records."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return sorted(errors, key=order_of)


def unexplained(findings: Iterable[Finding], root: Finding | None = None) -> list[Finding]:
    """The errors other than the root that no finding explains, in their order."""
    errors = _errors_in_order(findings)
    return [error for error in errors if error is not root and not error.explained_by]


def root_of(findings: tuple[Finding, ...]) -> Finding | None:
    """The first unexplained error, or else the first warning about lost speed; None if neither."""
    if errors := unexplained(findings):
        return errors[0]
    losses = (
        finding
        for finding in findings
        if finding.severity is Severity.WARNING and RECORDS[finding.id].layer is Layer.LOSSES
    )
    return min(losses, key=order_of, default=None)


def blocks_torch(findings: tuple[Finding, ...], *, torch_stays: bool) -> Finding | None:
    """The finding that must be fixed before torch is changed, or, if `torch_stays`, before it can
    run; None if there is none.

    This is a root cause below torch (in the process's settings, the container, the driver or the
    GPU), or a finding whose record asks for it (`before_torch`). A driver that is too old for the
    torch that stays must be fixed too; another torch may run on it.
    """
    for finding in findings:
        record, fix = RECORDS[finding.id], finding.fix
        if finding.severity in record.before_torch:
            return finding
        is_below_torch = record.layer and Layer.PROCESS <= record.layer <= Layer.READINESS
        needs_newer_driver = torch_stays and fix and fix.min_driver
        if finding.root and (is_below_torch or needs_newer_driver):
            return finding
    return None
