"""A verdict with its cause, evidence and next steps."""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.monitor.documents import Verdict


class Judgement(NamedTuple):
    verdict: Verdict | None
    cause: str
    evidence: str
    steps: tuple[str, ...] = ()
    """Ids of next steps (`steps.STEPS`), with the best first."""
