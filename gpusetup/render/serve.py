"""Shows the plan of an inference server as text: whether it fits, and how to start it."""

from __future__ import annotations

from gpusetup.model.documents import ServePlan
from gpusetup.render.screen import (
    BUT,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    notes,
    plural,
    section,
    verdict,
)


def serve_text(plan: ServePlan) -> Screen:
    """The screen of a serving plan: the verdict, the limits, where the memory goes, and the
    command."""
    size = f"{plan.parameters / 1e9:.3g}B parameters"
    question = f"{plan.model} ({size}) in {plan.weights}, on {plan.gpus} x {plan.gpu}"
    requests = plural(plan.sequences, "request")
    job = f": {requests} of {plan.context:,} tokens"
    if not plan.fits:
        answer = verdict(NO, "does not fit", job)
    elif plan.uncounted:
        answer = verdict(BUT, f"may fit, but {'; '.join(plan.uncounted)}", job)
    elif not plan.command:
        # The context is longer than the model's own limit.
        answer = verdict(BUT, "the memory is enough", job)
    else:
        answer = verdict(OK, "fits", job)
    limits = {
        "longest": f"{plan.largest_context:,} tokens for {requests}",
        "most": f"{plural(plan.largest_sequences, 'request')} of {plan.context:,} tokens",
    }
    parts_gib = {
        "weights": plan.weights_gib,
        "cache": plan.cache_gib,
        "a pass": plan.pass_gib,
        "left": plan.free_gib,
        "capacity": plan.capacity_gib,
    }
    memory = {name: f"{gib:8.2f}" for name, gib in parts_gib.items()}
    memory["a token"] = f"{plan.token_kib:8.2f} KiB of cache"
    lines: list[str] = [ScreenLine(question, hang=2), "", answer, *facts(limits)]
    lines += section("Memory per GPU (GiB)", facts(memory))
    if plan.command:
        lines += section("Start it with", [command(plan.command)])
    lines += notes(plan.notes)
    return Screen(lines)
