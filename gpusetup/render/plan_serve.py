"""A serving plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.documents import ServePlan
from gpusetup.render.language import (
    NO,
    OK,
    Row,
    Screen,
    command,
    facts,
    heading,
    remark,
    verdict,
)


def counted(requests: int) -> str:
    """
    >>> counted(1), counted(0)
    ('1 request', '0 requests')
    """
    return f"{requests:,} request{'' if requests == 1 else 's'}"


def serve_text(plan: ServePlan) -> Screen:
    """The whole screen."""
    return Screen(_lines(plan))


def _lines(plan: ServePlan) -> Iterator[str]:
    requests, most = counted(plan.sequences), counted(plan.largest_sequences)
    size = f"{plan.parameters / 1e9:.3g}B parameters"
    engine = f"{plan.weights}, {plan.engine}"
    yield Row(f"{plan.model} ({size}) in {engine}, on {plan.gpus} x {plan.gpu}", hang=2)
    yield ""
    mark, said = (OK, "fits") if plan.fits else (NO, "does not fit")
    yield verdict(mark, said, f": {requests} of {plan.context:,} tokens, cache in {plan.cache}")
    gib = {
        "weights": plan.weights_gib,
        "cache": plan.cache_gib,
        "a pass": plan.pass_gib,
        "left": plan.free_gib,
        "capacity": plan.capacity_gib,
    }
    told = {
        "longest": f"{plan.largest_context:,} tokens for {requests}",
        "most": f"{most} of {plan.context:,} tokens",
    }
    yield from facts(told)
    yield from ("", heading("Memory of a GPU, GiB"))
    yield from facts({name: f"{value:8.2f}" for name, value in gib.items()})
    yield from facts({"a token": f"{plan.token_kib:9.2f} KiB of cache"})
    if plan.command:
        yield from ("", heading("Start it with"), command(plan.command))
    if plan.notes:
        yield from ("", *(remark("note", line) for line in plan.notes))
