"""Random numbers: how often each sampler draws from where, its seed, that no part comes again."""

from __future__ import annotations

from math import ceil, comb, exp, factorial, log2, pi
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Union

import torch

from ..judging.refusals import refuses
from ..judging.tolerance import Part, agree, holds, judged, same
from ..values import Outcome, asked

FORMATS = {"float32": 2**17, "bfloat16": 2**16, "float16": 2**16}
"""And how many numbers are drawn."""
SIGMAS = 6.5
"""A sound generator is farther off once in ten thousand million figures."""
Law = Union[Callable[[Any], Any], List[float]]
"""The share of the law below each number; or of each whole number from 0 on, as far as listed."""
Draw = Callable[[Any, Any], Any]
"""(a tensor of that format and size, generator) -> numbers."""


class Sampler(NamedTuple):
    """One way to draw random numbers."""

    draw: Draw
    law: Law
    follows_generator: bool = True
    """If not, it follows the generator of the process."""


def continuous_samplers() -> Dict[str, Sampler]:
    """Samplers of fractions, with the share of all numbers below each number."""
    ndtr = torch.special.ndtr

    def like(x: Any, generator: Any) -> Dict[str, Any]:
        return {"dtype": x.dtype, "device": x.device, "generator": generator}

    def exponential_law(values: Any) -> Any:
        return -(-values / 2).expm1()

    def gamma_law(values: Any) -> Any:
        return torch.special.gammainc(torch.full_like(values, 2.5), values)

    def uniform_law(values: Any) -> Any:
        # 1 is outside of the range, and so must be counted beyond its end.
        return values + (values >= 1)

    return {
        "rand": Sampler(lambda x, g: torch.rand(len(x), **like(x, g)), uniform_law),
        "randn": Sampler(lambda x, g: torch.randn(len(x), **like(x, g)), ndtr),
        "exponential_": Sampler(lambda x, g: x.exponential_(0.5, generator=g), exponential_law),
        "cauchy_": Sampler(lambda x, g: x.cauchy_(generator=g), lambda v: v.atan() / pi + 0.5),
        "gamma": Sampler(lambda x, g: torch._standard_gamma(x.fill_(2.5), generator=g), gamma_law),
        "normal": Sampler(lambda x, g: torch.normal(x.fill_(0), x + 1, generator=g), ndtr),
    }


def whole_samplers() -> Dict[str, Sampler]:
    """Samplers of whole numbers, with the share of each number."""

    def whole(low: int, end: int, x: Any, generator: Any) -> Any:
        drawn = torch.randint(low, end, x.shape, device=x.device, generator=generator)
        return drawn - low

    def binomial(x: Any, generator: Any) -> Any:
        return torch.binomial(x.fill_(5), torch.full_like(x, 0.5), generator)

    def multinomial(x: Any, generator: Any) -> Any:
        weights = x[:4].copy_(x.new_tensor([1, 2, 0, 1]))
        return torch.multinomial(weights, len(x), True, generator=generator)

    geometric_law = [0.0, *(0.3 * 0.7**n for n in range(20))]
    poisson_law = [exp(-3) * 3**n / factorial(n) for n in range(12)]
    binomial_law = [comb(5, n) / 32 for n in range(6)]
    return {
        "randint of many": Sampler(lambda x, g: whole(-(2**40), 2**40, x, g), lambda v: v / 2**41),
        "randint of few": Sampler(lambda x, g: whole(-3, 4, x, g), [1 / 7] * 7),
        "random_": Sampler(lambda x, g: x.to(torch.int8).random_(generator=g), [2.0**-7] * 128),
        "bernoulli_": Sampler(lambda x, g: x.bernoulli_(0.3, generator=g), [0.7, 0.3]),
        "geometric_": Sampler(lambda x, g: x.geometric_(0.3, generator=g), geometric_law),
        "poisson": Sampler(lambda x, g: torch.poisson(x.fill_(3), g), poisson_law),
        "binomial": Sampler(binomial, binomial_law),
        "multinomial": Sampler(multinomial, [0.25, 0.5, 0.0, 0.25]),
    }


def dropout_samplers() -> Dict[str, Sampler]:
    """Dropout, with the shares of dropped numbers and of kept ones (as 0 and 1)."""
    functional = torch.nn.functional
    law = [0.75, 0.25]

    def dropout(x: Any, _: Any) -> Any:
        # What is kept is made four times as great.
        return functional.dropout(x.fill_(1), 0.75) / 4

    def dropout_of_channels(x: Any, _: Any) -> Any:
        channels = x.fill_(1)[None, :, None]
        return functional.dropout1d(channels, 0.75).flatten() / 4

    return {
        "dropout": Sampler(dropout, law, follows_generator=False),
        "dropout of channels": Sampler(dropout_of_channels, law, follows_generator=False),
    }


def chance(device: str) -> Outcome:
    """Each sampler keeps to its law, follows its generator, and no part of a draw or of the next
    one comes again."""
    samplers = {**continuous_samplers(), **whole_samplers(), **dropout_samplers()}
    parts: List[Part] = list(permutations_are_mixed(device))
    for label, sampler in samplers.items():
        for name, count in FORMATS.items():
            try:
                empty = torch.empty(count, device=device).to(getattr(torch, name))
                parts += sampled(empty, name, f"{label} of {name}", sampler)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return judged(parts, "what chance gives")


def sampled(empty: Any, name: str, label: str, sampler: Sampler) -> Iterator[Part]:
    """Two draws of a sampler, and the same two again from the same seed."""
    draws = []
    for turn in range(2):
        seed = (asked().seed + 41) % 2**63
        generator = torch.Generator(device=empty.device).manual_seed(seed)
        # What follows a generator must not follow that of the process: it gets another seed.
        process_seed = asked().seed + turn if sampler.follows_generator else asked().seed
        torch.manual_seed(process_seed % 2**63)
        for _ in range(2):
            draws.append(sampler.draw(empty.clone(), generator).cpu())
    first, second, first_again, second_again = draws
    both = torch.cat([first, second])
    yield same(f"{label}, the same seed", torch.cat([first_again, second_again]), both)
    yield holds(f"{label}, the next draw", not torch.equal(first, second), "it is drawn twice")
    yield from counts_keep_to_law(label, both, sampler.law)
    if name == "float32":
        yield from no_part_twice(label, first, second)


class Cells(NamedTuple):
    """Into which cell of its law each number falls."""

    cells: Any
    shares: Any
    """Of all numbers, for each cell."""
    is_possible: Any
    """Whether each number is one that the law can give."""


def cells_of_fractions(values: Any, law: Callable[[Any], Any], coarse: float) -> Cells:
    """32 cells of like shares; the tails of an exact format are cut finer."""
    shares_below = law(values)
    tails = []
    if coarse < 1e-6:
        tails = [2.0**-k for k in range(13, 5, -1)]
    upper_tails = [1 - share for share in tails[::-1]]
    edges = [0.0, *tails, *(n / 32 for n in range(1, 32)), *upper_tails, 1.0]
    inner_edges = torch.tensor(edges[1:-1], dtype=torch.float64)
    cells = torch.bucketize(shares_below, inner_edges, right=True)
    shares = torch.tensor(edges, dtype=torch.float64).diff()
    return Cells(cells, shares, (shares_below >= 0) & (shares_below <= 1))


def cells_of_whole_numbers(values: Any, law: List[float]) -> Cells:
    """A cell for each number of the law, and one for all others."""
    cells = values.clamp(0, len(law)).long()
    share_of_others = max(0.0, 1 - sum(law))
    shares = torch.tensor([*law, share_of_others], dtype=torch.float64)
    # What is left of a sum that is 1 is its roundoff.
    shares[shares < 1e-9] = 0.0
    is_whole = (values >= 0) & (values == values.round())
    return Cells(cells, shares, is_whole & (shares[cells] > 0))


def counts_keep_to_law(label: str, drawn: Any, law: Law) -> Iterator[Part]:
    """How many numbers are in each cell of the law, its tails among them."""
    values, coarse = drawn.double(), 0.0
    if drawn.is_floating_point():
        coarse = torch.finfo(drawn.dtype).eps
    if callable(law):
        cells, shares, is_possible = cells_of_fractions(values, law, coarse)
    else:
        cells, shares, is_possible = cells_of_whole_numbers(values, law)
    all_possible = bool(is_possible.all())
    yield holds(f"{label}, ends", all_possible, "a number outside of the allowed range")
    counts = torch.bincount(cells, minlength=len(shares)).double()
    # The root of a count is spread alike whatever its size (Anscombe).
    root = (shares * len(values) + 0.375).sqrt()
    # Rounding moves some numbers into the next cell.
    coarseness = 8 * coarse * root
    if callable(law):
        # A sampler may start from uniform numbers of the same format, of which there are about
        # 1 / coarse: so large a share of all numbers may fall into one cell. torch 2.11 on a CPU
        # draws 0.5 % zeros for `randn` in bfloat16, and 25 % too many in the cell beside zero.
        coarseness = torch.maximum(coarseness, coarse * len(values) / (2 * root))
    allowed = SIGMAS / 2 + coarseness
    yield agree(f"{label}, counts", (counts + 0.375).sqrt(), root, allowed)


ONCE_IN = 100
"""Bits: so long is a part of a draw that another one like it comes by chance once in 2^100."""
MIXED = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
"""Odd numbers without a pattern: each bit of what they multiply reaches higher ones."""


def no_part_twice(label: str, first: Any, second: Any) -> Iterator[Part]:
    """No part of two draws comes twice, at whatever places of one or of both."""
    # The more often neighbours are equal, the longer a part must be.
    equal_neighbours = float((first[1:] == first[:-1]).double().mean())
    bits_of_number = -log2(min(max(equal_neighbours, 2.0**-17), 0.99))
    doublings = ceil(log2(ONCE_IN / bits_of_number))
    marks = torch.cat([marks_of_parts(drawn, doublings) for drawn in (first, second)])
    in_order = marks.sort()[0]
    twice = int((in_order[1:] == in_order[:-1]).sum())
    problem = f"{twice} parts of {2**doublings} numbers come twice in two draws"
    yield holds(label, not twice, problem)


def marks_of_parts(drawn: Any, doublings: int) -> Any:
    """For each place a number that follows from the 2^doublings numbers from there on; it wraps."""
    marks = drawn.double().view(torch.int64)
    for factor in MIXED[:2]:
        marks = marks * factor
        marks = marks ^ (marks >> 31)
    for doubling in range(doublings):
        # The mark of twice as many numbers: of those here, and of those that follow them.
        length = 2**doubling
        marks = marks[:-length] * (MIXED[2] + 2 * doubling) + marks[length:]
        marks = (marks ^ (marks >> 29)) * MIXED[doubling % 2]
    return marks


ORDERED, STILL = (1023, 70001), 18
"""Lengths of permutations, and how many numbers may stay: 1 on average, more than 18 once in
10^17."""


def permutations_are_mixed(device: str) -> Iterator[Part]:
    """Permutations: each number once, hardly one where it was."""
    for count in ORDERED:
        drawn = torch.randperm(count, device=device).cpu()
        next_drawn = torch.randperm(count, device=device).cpu()
        generator = torch.Generator(device=device)
        generator.manual_seed(5)
        first = torch.randperm(count, device=device, generator=generator)
        generator.manual_seed(5)
        again = torch.randperm(count, device=device, generator=generator)
        yield same(f"randperm {count}, the same seed", again, first)
        places = torch.arange(count)
        # Drawn without putting back, it is a permutation, too.
        sampled_places = torch.multinomial(torch.ones(count, device=device), count).cpu()
        for permutation in (drawn, sampled_places):
            yield same(f"randperm {count}, each once", permutation.sort()[0], places)
        unmoved = int((drawn == places).sum())
        unmoved_again = int((drawn == next_drawn).sum())
        still = max(unmoved, unmoved_again)
        yield holds(f"randperm {count}", still <= STILL, f"{still} numbers stay where they were")
