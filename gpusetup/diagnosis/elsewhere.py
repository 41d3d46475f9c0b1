"""Whether the trouble of a machine lies elsewhere than in torch: then `install` cures nothing."""

from __future__ import annotations

from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS
from gpusetup.model.finding import Finding


def trouble_elsewhere(findings: tuple[Finding, ...], *, torch_stays: bool) -> Finding | None:
    """The finding that must be mended before torch can be: a root in what the process is told, the
    container, the driver or the GPU; a driver that the torch asks for, which stays all the same."""
    for one in findings:
        record = RECORDS[one.id]
        below = record.place and Layer.PROCESS <= record.place[0] <= Layer.READINESS
        old_driver = torch_stays and one.fix and one.fix.min_driver
        if one.severity in record.before_torch or (one.root and (below or old_driver)):
            return one
    return None
