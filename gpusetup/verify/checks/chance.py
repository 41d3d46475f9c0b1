"""Checks random numbers: each sampler's shares, its seed, and that no draw comes twice."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from ..judging.refusals import refuses
from ..judging.tolerance import Comparison, agree, holds, outcome_of, same
from ..values import Outcome, run_options

FORMATS = {"float32": 2**17, "bfloat16": 2**16, "float16": 2**16}
"""Number format -> how many numbers to draw in that format."""
SIGMAS = 6.5
"""The largest deviation allowed in a share, in standard deviations. A correct generator exceeds it
about once in ten billion shares."""
Shares = Dict[Tuple[float, float], float]
"""From and up to (exclusive) -> the share of the numbers in between. They add up to 1, so that no
other number may come."""


SAMPLERS: Dict[str, Tuple[Callable[[Any, Any], Any], Shares]] = {
    "rand": (
        lambda x, g: torch.rand(len(x), dtype=x.dtype, device=x.device, generator=g),
        {(0.0, 0.125): 0.125, (0.125, 0.5): 0.375, (0.5, 1.0): 0.5},
    ),
    # Below, within and above one standard deviation; so few numbers stay within nine.
    "randn": (
        lambda x, g: x.normal_(generator=g),
        {(-9.0, -1.0): 0.1586553, (-1.0, 1.0): 0.6826895, (1.0, 9.0): 0.1586553},
    ),
    "randint": (
        lambda x, g: torch.randint(-3, 4, x.shape, device=x.device, generator=g) + 3,
        {(number, number + 1): 1 / 7 for number in range(7)},
    ),
}
"""What draws random numbers (it takes a tensor, which sets the format and the size, and a
generator), and the shares that are expected."""


def chance(device: str) -> Outcome:
    """Random numbers have the right shares, follow their seed, and do not repeat."""
    parts: List[Comparison] = []
    for label, (draw, shares) in SAMPLERS.items():
        for name, count in FORMATS.items():
            # A device may be unable to draw in some formats.
            try:
                empty = torch.empty(count, device=device, dtype=getattr(torch, name))
                parts += compare_draws(empty, f"{label} of {name}", draw, shares)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return outcome_of(parts, "what chance gives")


def compare_draws(
    empty: Any, label: str, draw: Callable[[Any, Any], Any], shares: Shares
) -> Iterator[Comparison]:
    """Draw twice, and compare with the same seed once more and with the distribution."""
    draws = []
    for turn in range(2):
        generator = torch.Generator(device=empty.device).manual_seed(run_options().seed)
        # A sampler with its own generator must ignore the process's.
        torch.manual_seed((run_options().seed + turn) % 2**63)
        # The second draw continues where the first one ended.
        draws += [draw(empty.clone(), generator).cpu() for _ in range(2)]
    first, second, first_again, second_again = draws
    both = torch.cat([first, second])
    yield same(f"{label}, the same seed", torch.cat([first_again, second_again]), both)
    yield holds(f"{label}, the next draw", not torch.equal(first, second), "it is drawn twice")
    yield from compare_shares(label, both, shares)


def compare_shares(label: str, drawn: Any, shares: Shares) -> Iterator[Comparison]:
    """Each share of the numbers is as large as expected, and they add up to 1."""
    values = drawn.double()
    # Rounding moves numbers over an edge. And a sampler may start from uniform numbers of the same
    # format, of which there are about 1 / eps: torch 2.11 on a CPU draws 0.5 % zeros for `randn` in
    # bfloat16.
    coarse = 2 * torch.finfo(drawn.dtype).eps if drawn.is_floating_point() else 0.0
    others = 1.0
    for (low, high), share in shares.items():
        found = float(((values >= low) & (values < high)).double().mean())
        others -= found
        allowed = SIGMAS * (share * (1 - share) / len(values)) ** 0.5 + coarse
        yield agree(f"{label}, share from {low:g}", [found], [share], allowed)
    # In a coarse format, a uniform number may be rounded to 1. 1e-9 allows for the rounding of
    # `others` itself.
    yield holds(f"{label}, ends", others <= coarse + 1e-9, f"{others:.2%} are outside of the range")
