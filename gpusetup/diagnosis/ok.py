"""When `ok` may be said: the one place that decides it.

It needs a proof, and nothing that speaks against it. A machine that was read itself was asked all
there is to ask. A text must show no complaint, no failure and no `False` of torch's: most texts
with a healthy `nvidia-smi` are of people whose program does not work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.diagnosis.proof import shown_healthy
from gpusetup.evidence.context import is_report, readings
from gpusetup.model.failing import COMPLAINT

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Snapshot


def may_be_ok(context: RuleContext) -> bool:
    """Whether a working stack is shown, and a text complains of nothing."""
    # No order: somebody who complains is asked; a machine that is read itself was asked already.
    complains = is_report(context) and bool(readings(context, COMPLAINT))
    return shown_healthy(context) and not complains and not says_false(context.snapshot)


def says_false(machine: Snapshot) -> bool:
    """Whether torch answered a text `False` somewhere, whatever it answered elsewhere."""
    answers = (one for one in machine.readings if one.subject == "torch.cuda_available")
    return machine.origin == "report" and any(one.value == "False" for one in answers)
