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
    engine = f"{plan.weights}, {plan.engine}"
    question = f"{plan.model} ({size}) in {engine}, on {plan.gpus} x {plan.gpu}"

    requests = plural(plan.sequences, "request")
    most_requests = plural(plan.largest_sequences, "request")
    job = f": {requests} of {plan.context:,} tokens"
    limits = {
        "longest": f"{plan.largest_context:,} tokens for {requests}",
        "most": f"{most_requests} of {plan.context:,} tokens",
    }

    lines: list[str] = [ScreenLine(question, hang=2), "", _serve_verdict(plan, job)]
    lines += facts(limits)
    lines += section("Memory per GPU (GiB)", facts(_serve_memory(plan)))
    if plan.command:
        lines += section("Start it with", [command(plan.command)])
    lines += notes(plan.notes)
    return Screen(lines)


def _serve_verdict(plan: ServePlan, job: str) -> ScreenLine:
    """The verdict line: whether the model and its cache fit."""
    if not plan.fits:
        return verdict(NO, "does not fit", job)
    if plan.uncounted:
        return verdict(BUT, f"may fit, but {'; '.join(plan.uncounted)}", job)
    # If the context is longer than the model's own limit, there is no command.
    if not plan.command:
        return verdict(BUT, "the memory is enough", job)
    return verdict(OK, "fits", job)


def _serve_memory(plan: ServePlan) -> dict[str, str]:
    """Maps labels to the parts of a GPU's memory in GiB, and to the cache per token in KiB, as
    text."""
    parts_gib = {
        "weights": plan.weights_gib,
        "cache": plan.cache_gib,
        "a pass": plan.pass_gib,
        "left": plan.free_gib,
        "capacity": plan.capacity_gib,
    }
    lines = {name: f"{gib:8.2f}" for name, gib in parts_gib.items()}
    lines["a token"] = f"{plan.token_kib:8.2f} KiB of cache"
    return lines
