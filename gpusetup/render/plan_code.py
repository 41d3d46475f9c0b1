"""The plan of the user's own code as text: phases, what stands at the peak, the largest batch."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.documents import CodePart, CodePlan, PlanCell
from gpusetup.render.plan import WIDTH, plan_text

WORDS = {
    "parameters": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "gathered": "gathered weights",
    "batch": "the batch",
    "activations": "activations",
    "backward": "backward, passing",
    "step": "optimizer, passing",
    "other": "other",
}
"""Kind -> how the screen calls it."""
LABEL = 20


def code_text(plan: PlanCell, width: int = WIDTH) -> str:
    """The screen of `plan --code`: the plan, and what the trace saw."""
    code = plan.code
    assert code is not None
    lines = ["", *_phases(code), "", "What stands at the peak, GiB:"]
    lines += [_part(part) for part in code.standing if part.gib >= 0.001]
    lines += ["", *_batch(code)]
    return plan_text(plan, width) + "\n".join(lines) + "\n"


def _batch(code: CodePlan) -> Iterable[str]:
    if code.largest_batch is None:
        yield "Largest batch: not found, a note says why"
    elif code.largest_batch == 0:
        yield "Largest batch: not even one sample a GPU fits"
    else:
        yield f"Largest batch on all GPUs together: {code.largest_batch:,}"


def _phases(code: CodePlan) -> Iterable[str]:
    yield f"Most at once in each phase, GiB (torch {code.torch}):"
    for phase, gib in code.phases_gib.items():
        peak = "  the peak" if phase == code.peak_phase else ""
        yield f"  {phase:{LABEL}}{gib:8.3f}{peak}"


def _part(part: CodePart) -> str:
    return f"  {WORDS[part.kind]:{LABEL}}{part.gib:8.3f}  {part.module}".rstrip()
