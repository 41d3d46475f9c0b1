"""Checks random numbers: each sampler's distribution, its seed, and that no draw comes twice."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Union

import torch

from ..judging.refusals import refuses
from ..judging.tolerance import Part, agree, holds, judged, same
from ..values import Outcome, asked

FORMATS = {"float32": 2**17, "bfloat16": 2**16, "float16": 2**16}
"""Number format -> how many numbers to draw in that format."""
SIGMAS = 6.5
"""The largest deviation allowed in a figure, in standard deviations. A correct generator exceeds it
about once in ten billion figures."""
CELLS = 32
"""The number of cells with equal shares that the fractions of a distribution are counted in."""
SEED_LIMIT = 2**63
"""Seeds are taken modulo this limit, because torch takes no larger seed."""
Law = Union[Callable[[Any], Any], List[float]]
"""A distribution. For fractions: a function that returns, for each given number, the share of all
numbers below it. For whole numbers: the shares of 0, 1, 2 and so on."""


class Sampler(NamedTuple):
    """A way to draw random numbers, with its expected distribution."""

    draw: Callable[[Any, Any], Any]
    """Takes a tensor, which sets the format and the size, and a generator."""
    law: Law


SAMPLERS: Dict[str, Sampler] = {
    "rand": Sampler(
        lambda x, g: torch.rand(len(x), dtype=x.dtype, device=x.device, generator=g),
        lambda values: values,
    ),
    "randn": Sampler(lambda x, g: x.normal_(generator=g), torch.special.ndtr),
    "exponential_": Sampler(
        lambda x, g: x.exponential_(0.5, generator=g), lambda values: -(-values / 2).expm1()
    ),
    # The law begins with the share of 0.
    "randint": Sampler(
        lambda x, g: torch.randint(-3, 4, x.shape, device=x.device, generator=g) + 3, [1 / 7] * 7
    ),
    "bernoulli_": Sampler(lambda x, g: x.bernoulli_(0.3, generator=g), [0.7, 0.3]),
    "multinomial": Sampler(
        lambda x, g: torch.multinomial(x.new_tensor([1, 2, 0, 1]), len(x), True, generator=g),
        [0.25, 0.5, 0.0, 0.25],
    ),
}


def chance(device: str) -> Outcome:
    """Each sampler follows its distribution and its generator: no number comes too often or never,
    the seed counts, and no draw repeats an earlier one."""
    parts: List[Part] = []
    for label, sampler in SAMPLERS.items():
        for name, count in FORMATS.items():
            # A device may be unable to draw in some formats.
            try:
                empty = torch.empty(count, device=device, dtype=getattr(torch, name))
                parts += sampler_parts(empty, f"{label} of {name}", sampler)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return judged(parts, "what chance gives")


def sampler_parts(empty: Any, label: str, sampler: Sampler) -> Iterator[Part]:
    """Draw twice, and compare with the same seed once more and with the distribution."""
    draws = []
    for turn in range(2):
        generator = torch.Generator(device=empty.device).manual_seed(asked().seed % SEED_LIMIT)
        # A sampler with its own generator must ignore the process's.
        torch.manual_seed((asked().seed + turn) % SEED_LIMIT)
        # The second draw continues where the first one ended.
        draws += [sampler.draw(empty.clone(), generator).cpu() for _ in range(2)]
    first, second, first_again, second_again = draws
    both = torch.cat([first, second])
    yield same(f"{label}, the same seed", torch.cat([first_again, second_again]), both)
    yield holds(f"{label}, the next draw", not torch.equal(first, second), "it is drawn twice")
    yield from counts_keep_to_law(label, both, sampler.law)


def counts_keep_to_law(label: str, drawn: Any, law: Law) -> Iterator[Part]:
    """Check that the count in each cell agrees with the distribution, and that the distribution can
    produce every number."""
    values = drawn.double()
    coarse = torch.finfo(drawn.dtype).eps if callable(law) else 0.0
    if callable(law):
        below = law(values)
        cells = (below * CELLS).long().clamp(max=CELLS - 1)
        shares = torch.full((CELLS,), 1 / CELLS, dtype=torch.float64)
        is_possible = (below >= 0) & (below <= 1)
    else:
        shares = torch.tensor([*law, max(0.0, 1 - sum(law))], dtype=torch.float64)
        # If the shares add up to 1, the remainder is only roundoff.
        shares[shares < 1e-9] = 0.0
        cells = values.clamp(0, len(law)).long()
        is_possible = (values >= 0) & (values == values.round()) & (shares[cells] > 0)
    all_possible = bool(is_possible.all())
    yield holds(f"{label}, ends", all_possible, "a number outside of the allowed range")
    counts = torch.bincount(cells, minlength=len(shares)).double()
    # The square root of a count has nearly the same variance for all counts (Anscombe).
    root = (shares * len(values) + 0.375).sqrt()
    # Rounding moves some numbers into the neighboring cell. And a sampler may start from uniform
    # numbers of the same format, of which there are about 1 / coarse: torch 2.11 on a CPU draws
    # 0.5 % zeros for `randn` in bfloat16.
    coarseness = torch.maximum(8 * coarse * root, coarse * len(values) / (2 * root))
    yield agree(f"{label}, counts", (counts + 0.375).sqrt(), root, SIGMAS / 2 + coarseness)
