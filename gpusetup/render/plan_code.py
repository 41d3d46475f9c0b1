"""The plan of the user's own code as text: phases, what stands at the peak, the largest batch."""

from __future__ import annotations

from gpusetup.model.documents import PlanCell
from gpusetup.render.language import HEADING, Row, Screen, labelled, section
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
    parts = (
        labelled(WORDS[part.kind], f"{part.gib:8.3f}  {part.module}".rstrip(), LABEL)
        for part in code.standing
        if part.gib >= 0.001
    )
    phases = (
        labelled(name, f"{gib:8.3f}{'  the peak' if name == code.peak_phase else ''}", LABEL)
        for name, gib in code.phases_gib.items()
    )
    batch = code.largest_batch
    most = "not found, see the note" if batch is None else f"{batch:,}"
    if batch == 0:
        most = "not even one sample a GPU fits"
    return Screen(
        (
            *plan_text(plan).lines,
            *section(f"Most at once in each phase, GiB (torch {code.torch})", phases),
            *section("At the peak, GiB", parts),
            "",
            Row(("Largest batch on all GPUs together:", HEADING), f" {most}"),
        )
    )
