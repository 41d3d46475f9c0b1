"""Checks of random numbers: each sampler's distribution and seed, and that no part of a draw is
repeated."""

from __future__ import annotations

from math import ceil, comb, exp, factorial, log2, pi
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
SEED_OFFSET = 41
"""A generator gets the run's seed plus this offset, so that it never draws the same numbers as the
process's own generator."""
SEED_LIMIT = 2**63
"""Seeds are taken modulo this limit, because torch takes no larger seed."""
Law = Union[Callable[[Any], Any], List[float]]
"""A distribution. For fractions: a function that returns, for each given number, the share of all
numbers below it. For whole numbers: the shares of 0, 1, 2 and so on, as far as listed."""
Draw = Callable[[Any, Any], Any]
"""Takes a tensor, which sets the format and the size, and a generator, and returns random numbers.
"""


class Sampler(NamedTuple):
    """A way to draw random numbers, with its expected distribution."""

    draw: Draw
    law: Law
    follows_generator: bool = True
    """Whether the sampler draws from the generator that is passed to it. If not, it draws from the
    process's default generator."""


def uniform_law(values: Any) -> Any:
    """The cumulative uniform distribution from 0 up to, but not including, 1."""
    # 1 is outside the range, so it must be counted beyond the end.
    beyond_end = (values >= 1).to(values.dtype)
    return values + beyond_end


def exponential_law(values: Any) -> Any:
    """The cumulative exponential distribution of rate 0.5."""
    exponents = -values / 2
    return -exponents.expm1()


def cauchy_law(values: Any) -> Any:
    """The cumulative Cauchy distribution around 0."""
    return values.atan() / pi + 0.5


def gamma_law(values: Any) -> Any:
    """The cumulative gamma distribution of shape 2.5."""
    shape = torch.full_like(values, 2.5)
    return torch.special.gammainc(shape, values)


def wide_range_law(values: Any) -> Any:
    """The cumulative uniform distribution of whole numbers below 2^41."""
    return values / 2**41


def continuous_samplers() -> Dict[str, Sampler]:
    """Samplers of fractions, each with its cumulative distribution."""
    normal_law = torch.special.ndtr

    def like(x: Any, generator: Any) -> Dict[str, Any]:
        return {
            "dtype": x.dtype,
            "device": x.device,
            "generator": generator,
        }

    def gamma(x: Any, generator: Any) -> Any:
        shape = x.fill_(2.5)
        return torch._standard_gamma(shape, generator=generator)

    def normal(x: Any, generator: Any) -> Any:
        mean = x.fill_(0)
        deviation = mean + 1
        return torch.normal(mean, deviation, generator=generator)

    return {
        "rand": Sampler(lambda x, g: torch.rand(len(x), **like(x, g)), uniform_law),
        "randn": Sampler(lambda x, g: torch.randn(len(x), **like(x, g)), normal_law),
        "exponential_": Sampler(lambda x, g: x.exponential_(0.5, generator=g), exponential_law),
        "cauchy_": Sampler(lambda x, g: x.cauchy_(generator=g), cauchy_law),
        "gamma": Sampler(gamma, gamma_law),
        "normal": Sampler(normal, normal_law),
    }


def whole_samplers() -> Dict[str, Sampler]:
    """Samplers of whole numbers, each with the expected share of each number."""

    def from_zero(low: int, end: int) -> Draw:
        def draw(x: Any, generator: Any) -> Any:
            drawn = torch.randint(low, end, x.shape, device=x.device, generator=generator)
            # The list of shares begins with the share of 0.
            return drawn - low

        return draw

    def random_bytes(x: Any, generator: Any) -> Any:
        empty_bytes = x.to(torch.int8)
        return empty_bytes.random_(generator=generator)

    def poisson(x: Any, generator: Any) -> Any:
        rates = x.fill_(3)
        return torch.poisson(rates, generator)

    def binomial(x: Any, generator: Any) -> Any:
        counts = x.fill_(5)
        probabilities = torch.full_like(x, 0.5)
        return torch.binomial(counts, probabilities, generator)

    def multinomial(x: Any, generator: Any) -> Any:
        weights = x[:4]
        weights.copy_(x.new_tensor([1, 2, 0, 1]))
        return torch.multinomial(weights, len(x), True, generator=generator)

    geometric_law = [0.0, *(0.3 * 0.7**n for n in range(20))]
    poisson_law = [exp(-3) * 3**n / factorial(n) for n in range(12)]
    binomial_law = [comb(5, n) / 32 for n in range(6)]
    return {
        "randint of many": Sampler(from_zero(-(2**40), 2**40), wide_range_law),
        "randint of few": Sampler(from_zero(-3, 4), [1 / 7] * 7),
        "random_": Sampler(random_bytes, [2.0**-7] * 128),
        "bernoulli_": Sampler(lambda x, g: x.bernoulli_(0.3, generator=g), [0.7, 0.3]),
        "geometric_": Sampler(lambda x, g: x.geometric_(0.3, generator=g), geometric_law),
        "poisson": Sampler(poisson, poisson_law),
        "binomial": Sampler(binomial, binomial_law),
        "multinomial": Sampler(multinomial, [0.25, 0.5, 0.0, 0.25]),
    }


def dropout_samplers() -> Dict[str, Sampler]:
    """Dropout, with the expected shares of dropped elements (0) and kept ones (1)."""
    functional = torch.nn.functional
    law = [0.75, 0.25]

    def dropout(x: Any, _: Any) -> Any:
        # Dropout with p=0.75 multiplies the elements that it keeps by four.
        dropped = functional.dropout(x.fill_(1), 0.75)
        return dropped / 4

    def dropout_of_channels(x: Any, _: Any) -> Any:
        ones = x.fill_(1)
        channels = ones[None, :, None]
        dropped = functional.dropout1d(channels, 0.75)
        return dropped.flatten() / 4

    return {
        "dropout": Sampler(dropout, law, follows_generator=False),
        "dropout of channels": Sampler(dropout_of_channels, law, follows_generator=False),
    }


def chance(device: str) -> Outcome:
    """Check that each sampler follows its distribution and its generator.

    It catches numbers that are drawn too often or never, a seed that has no effect, and a draw that
    repeats part of an earlier draw.
    """
    samplers = {**continuous_samplers(), **whole_samplers(), **dropout_samplers()}
    parts: List[Part] = list(permutations_are_mixed(device))
    for label, sampler in samplers.items():
        # A device may be unable to draw in some formats.
        for name, count in FORMATS.items():
            try:
                empty = torch.empty(count, device=device).to(getattr(torch, name))
                parts += sampler_parts(empty, name, f"{label} of {name}", sampler)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return judged(parts, "what chance gives")


def sampler_parts(empty: Any, name: str, label: str, sampler: Sampler) -> Iterator[Part]:
    """Draw twice with a sampler. Compare both draws with a repetition from the same seed and with
    the sampler's distribution."""
    generator_seed = (asked().seed + SEED_OFFSET) % SEED_LIMIT
    draws = []
    for turn in range(2):
        generator = torch.Generator(device=empty.device).manual_seed(generator_seed)
        process_seed = asked().seed
        if sampler.follows_generator:
            # A sampler with its own generator must ignore the process's generator. In the second
            # turn the process's generator has a different seed, so the draws are equal only if the
            # sampler ignores it.
            process_seed += turn
        torch.manual_seed(process_seed % SEED_LIMIT)
        # Draw twice in a row: the second draw continues where the first ended.
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
    """The cell of the distribution that each number falls into, with each cell's expected share."""

    cells: Any
    shares: Any
    """The expected share of all numbers, for each cell."""
    is_possible: Any
    """Whether each number is one that the distribution can produce."""


def cells_of_fractions(values: Any, law: Callable[[Any], Any], coarse: float) -> Cells:
    """32 cells with equal shares. For formats with enough precision, the cells at both ends are
    divided further."""
    shares_below = law(values)
    tails = []
    # In a coarse format, no number lies that far out in the tails.
    if coarse < 1e-6:
        tails = [2.0**-k for k in range(13, 5, -1)]
    upper_tails = [1 - share for share in reversed(tails)]
    middle = [n / 32 for n in range(1, 32)]
    edges = torch.tensor([0.0, *tails, *middle, *upper_tails, 1.0], dtype=torch.float64)
    inner_edges = edges[1:-1].contiguous()
    cells = torch.bucketize(shares_below, inner_edges, right=True)
    is_possible = (shares_below >= 0) & (shares_below <= 1)
    return Cells(cells, edges.diff(), is_possible)


def cells_of_whole_numbers(values: Any, law: List[float]) -> Cells:
    """One cell for each number of the distribution, and one for all others."""
    last_cell = len(law)
    cells = values.clamp(0, last_cell).long()
    share_of_others = max(0.0, 1 - sum(law))
    shares = torch.tensor([*law, share_of_others], dtype=torch.float64)
    # If the shares add up to 1, the remainder is only roundoff.
    shares[shares < 1e-9] = 0.0
    is_whole = (values >= 0) & (values == values.round())
    has_share = shares[cells] > 0
    return Cells(cells, shares, is_whole & has_share)


def counts_keep_to_law(label: str, drawn: Any, law: Law) -> Iterator[Part]:
    """Check that the count in each cell agrees with the distribution, and that the distribution can
    produce every number."""
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
    # The square root of a count has nearly the same variance for all counts (Anscombe).
    root = (shares * len(values) + 0.375).sqrt()
    # Rounding moves some numbers into the neighboring cell.
    coarseness = 8 * coarse * root
    if callable(law):
        # A sampler may start from uniform numbers of the same format. There are about 1 / coarse of
        # those, so a share of up to `coarse` may land in one cell. torch 2.11 on a CPU draws 0.5 %
        # zeros for `randn` in bfloat16, and 25 % too many numbers in the cell next to zero.
        coarseness = torch.maximum(coarseness, coarse * len(values) / (2 * root))
    allowed = SIGMAS / 2 + coarseness
    yield agree(f"{label}, counts", (counts + 0.375).sqrt(), root, allowed)


BITS_OF_PART = 100
"""The length of a compared part, in random bits. Two parts are equal by chance once in 2^100."""
HASH_FACTORS = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
"""Odd numbers without a pattern. Multiplying by one of them makes each bit of a number change
higher bits."""


def no_part_twice(label: str, first: Any, second: Any) -> Iterator[Part]:
    """Check that no part of two draws occurs twice, at any position in either draw."""
    # The more often neighboring numbers are equal, the fewer random bits a number has, and the
    # longer a part must be.
    is_like_next = first[1:] == first[:-1]
    share_of_equal = float(is_like_next.double().mean())
    share_of_equal = min(max(share_of_equal, 2.0**-17), 0.99)
    bits_of_number = -log2(share_of_equal)
    doublings = ceil(log2(BITS_OF_PART / bits_of_number))
    marks_of_first = marks_of_parts(first, doublings)
    marks_of_second = marks_of_parts(second, doublings)
    in_order, _ = torch.cat([marks_of_first, marks_of_second]).sort()
    twice = int((in_order[1:] == in_order[:-1]).sum())
    problem = f"{twice} parts of {2**doublings} numbers come twice in two draws"
    yield holds(label, not twice, problem)


def marks_of_parts(drawn: Any, doublings: int) -> Any:
    """A hash for each position, computed from the 2^doublings numbers that start there."""
    # Read the bits of each number as a whole number.
    marks = drawn.double().view(torch.int64)
    for factor in HASH_FACTORS[:2]:
        marks = marks * factor
        marks = marks ^ (marks >> 31)
    for doubling in range(doublings):
        # The hash of twice as many numbers is computed from the hashes of the first and the second
        # half.
        length = 2**doubling
        factor = HASH_FACTORS[2] + 2 * doubling
        marks = marks[:-length] * factor + marks[length:]
        marks = marks ^ (marks >> 29)
        marks = marks * HASH_FACTORS[doubling % 2]
    return marks


PERMUTATION_LENGTHS = (1023, 70001)
MOST_UNMOVED = 18
"""The most numbers that a permutation may leave in place. A random permutation leaves 1 on average,
and more than 18 once in 10^17 times."""


def permutations_are_mixed(device: str) -> Iterator[Part]:
    """Check that permutations contain each number once, and leave few of them in place."""
    for count in PERMUTATION_LENGTHS:
        drawn = torch.randperm(count, device=device).cpu()
        next_drawn = torch.randperm(count, device=device).cpu()
        generator = torch.Generator(device=device)
        generator.manual_seed(5)
        first = torch.randperm(count, device=device, generator=generator)
        generator.manual_seed(5)
        again = torch.randperm(count, device=device, generator=generator)
        yield same(f"randperm {count}, the same seed", again, first)
        in_order = torch.arange(count)
        # Drawing all numbers without replacement also gives a permutation.
        weights = torch.ones(count, device=device)
        sampled_order = torch.multinomial(weights, count).cpu()
        for permutation in (drawn, sampled_order):
            yield same(f"randperm {count}, each once", permutation.sort()[0], in_order)
        unmoved = int((drawn == in_order).sum())
        unmoved_again = int((drawn == next_drawn).sum())
        most = max(unmoved, unmoved_again)
        is_mixed = most <= MOST_UNMOVED
        yield holds(f"randperm {count}", is_mixed, f"{most} numbers stay where they were")
