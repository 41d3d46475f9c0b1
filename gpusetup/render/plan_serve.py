"""A serving plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.documents import ServePlan

LABEL = 15


def serve_text(plan: ServePlan) -> str:
    """The whole screen."""
    return "\n".join(_lines(plan)) + "\n"


def counted(requests: int) -> str:
    """
    >>> counted(1), counted(0)
    ('1 request', '0 requests')
    """
    return f"{requests:,} request{'' if requests == 1 else 's'}"


def _lines(plan: ServePlan) -> Iterator[str]:
    requests, most = counted(plan.sequences), counted(plan.largest_sequences)
    yield (
        f"{plan.model} ({plan.parameters / 1e9:.3g}B parameters) in {plan.weights}, {plan.engine}, "
        f"on {plan.gpus} x {plan.gpu}"
    )
    yield ""
    verdict = "fits" if plan.fits else "does not fit"
    yield f"{verdict}: {requests} of {plan.context:,} tokens, cache in {plan.cache}"
    yield f"  {'longest':{LABEL}}{plan.largest_context:,} tokens for {requests}"
    yield f"  {'most':{LABEL}}{most} of {plan.context:,} tokens"
    yield ""
    yield "Memory of a GPU, GiB:"
    for name, value in (
        ("weights", plan.weights_gib),
        ("cache", plan.cache_gib),
        ("a pass", plan.pass_gib),
        ("left", plan.free_gib),
    ):
        yield f"  {name:{LABEL}}{value:8.2f}"
    yield f"  {'capacity':{LABEL}}{plan.capacity_gib:8.2f}"
    yield f"  {'a token':{LABEL}}{plan.token_kib:8.2f} KiB of cache"
    if plan.command:
        yield from ("", "Start it with:", f"  {plan.command}")
    if plan.notes:
        yield from ("", *(f"note: {line}" for line in plan.notes))
