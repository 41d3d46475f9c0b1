"""The plan of the user's own code as text: phases, what stands at the peak, the largest batch."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.documents import CodePart, CodePlan, PlanCell
from gpusetup.render.language import HEADING, Row, Screen, heading, labelled, section
from gpusetup.render.plan import plan_text

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


def code_text(plan: PlanCell) -> Screen:
    """The screen of `plan --code`: the plan, and what the trace saw."""
    code = plan.code
    assert code is not None
    parts = (_part(part) for part in code.standing if part.gib >= 0.001)
    standing = section("Memory at the peak, GiB", parts)
    return plan_text(plan) + Screen(("", *_phases(code), *standing, "", *_batch(code)))


def _batch(code: CodePlan) -> Iterable[str]:
    if code.largest_batch is None:
        yield Row(("Largest batch:", HEADING), " not found, a note says why")
    elif code.largest_batch == 0:
        yield Row(("Largest batch:", HEADING), " not even one sample a GPU fits")
    else:
        most = f" {code.largest_batch:,}"
        yield Row(("Largest batch on all GPUs together:", HEADING), most)


def _phases(code: CodePlan) -> Iterable[str]:
    yield heading(f"Most at once in each phase, GiB (torch {code.torch})")
    for phase, gib in code.phases_gib.items():
        peak = "  the peak" if phase == code.peak_phase else ""
        yield labelled(phase, f"{gib:8.3f}{peak}", LABEL)


def _part(part: CodePart) -> Row:
    return labelled(WORDS[part.kind], f"{part.gib:8.3f}  {part.module}".rstrip(), LABEL)
