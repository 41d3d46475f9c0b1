"""When `ok` may be said: the one place that decides it.

Of a machine that was read itself, where its stack is shown to work. Of somebody's text only where
nothing is left that `ok` would hide: most texts with a healthy `nvidia-smi` are of people whose
program does not work, and what they complain of is then `unknown`, not well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.diagnosis.failing import REPORTED
from gpusetup.diagnosis.proof import shown_healthy
from gpusetup.evidence.context import is_report, readings
from gpusetup.model.failing import COMPLAINT
from gpusetup.model.finding import Finding

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


def may_be_ok(context: RuleContext, findings: tuple[Finding, ...], elsewhere: str | None) -> bool:
    """Whether a program is named that failed outside the GPU's stack (`elsewhere`), or a working
    stack is shown and a text complains of nothing but of what a program did on it."""
    if elsewhere is not None:
        return True
    if not shown_healthy(context):
        return False
    # No order: somebody who complains is asked; a machine that is read itself was asked already.
    return not is_report(context) or _is_named(findings) or not readings(context, COMPLAINT)


OF_THE_DRIVERS_SIDE = r"(?:c10|ATen)[/\\]{1,2}cuda[/\\]"
"""torch's files that call the driver: an assertion of theirs is no program's work that failed."""


def _is_named(findings: tuple[Finding, ...]) -> bool:
    """Whether the text reports a failure of a program that ran on the GPU."""
    return any(finding.id in REPORTED and not _asks_the_driver(finding) for finding in findings)


def _asks_the_driver(finding: Finding) -> bool:
    return finding.id == "torch-internal-error" and any(
        re.search(OF_THE_DRIVERS_SIDE, one.text) for one in finding.evidence
    )
