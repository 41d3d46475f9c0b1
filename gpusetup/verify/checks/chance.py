"""Random numbers: how often each sampler draws from where, its seed, that no part comes again."""

from __future__ import annotations

from math import ceil, comb, exp, factorial, log2, pi
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

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
Sampler = Tuple[Callable[[Any, Any], Any], Law]
"""(a tensor of that format and size, generator) -> numbers."""


def _samplers() -> Dict[str, Sampler]:
    ndtr, functional = torch.special.ndtr, torch.nn.functional

    dropouts = {
        "dropout": functional.dropout,
        "dropout of channels": lambda x, p: functional.dropout1d(x[None, :, None], p).flatten(),
    }

    def dropped(run: Any) -> Any:
        return lambda x, _: run(x.fill_(1), 0.75) / 4

    def like(x: Any, made: Any) -> Dict[str, Any]:
        return {"dtype": x.dtype, "device": x.device, "generator": made}

    def whole(low: int, end: int, x: Any, made: Any) -> Any:
        return torch.randint(low, end, x.shape, device=x.device, generator=made) - low

    return {
        "rand": (lambda x, g: torch.rand(len(x), **like(x, g)), lambda v: v + (v >= 1)),
        "randn": (lambda x, g: torch.randn(len(x), **like(x, g)), ndtr),
        "exponential_": (
            lambda x, g: x.exponential_(0.5, generator=g),
            lambda v: -(-v / 2).expm1(),
        ),
        "cauchy_": (lambda x, g: x.cauchy_(generator=g), lambda v: v.atan() / pi + 0.5),
        "gamma": (
            lambda x, g: torch._standard_gamma(x.fill_(2.5), generator=g),
            lambda v: torch.special.gammainc(torch.full_like(v, 2.5), v),
        ),
        "randint of many": (lambda x, g: whole(-(2**40), 2**40, x, g), lambda v: v / 2**41),
        "randint of few": (lambda x, g: whole(-3, 4, x, g), [1 / 7] * 7),
        "random_": (lambda x, g: x.to(torch.int8).random_(generator=g), [2.0**-7] * 128),
        "bernoulli_": (lambda x, g: x.bernoulli_(0.3, generator=g), [0.7, 0.3]),
        "geometric_": (
            lambda x, g: x.geometric_(0.3, generator=g),
            [0.0, *(0.3 * 0.7**n for n in range(20))],
        ),
        "poisson": (
            lambda x, g: torch.poisson(x.fill_(3), g),
            [exp(-3) * 3**n / factorial(n) for n in range(12)],
        ),
        "binomial": (
            lambda x, g: torch.binomial(x.fill_(5), torch.full_like(x, 0.5), g),
            [comb(5, n) / 32 for n in range(6)],
        ),
        "multinomial": (
            lambda x, g: torch.multinomial(
                x[:4].copy_(x.new_tensor([1, 2, 0, 1])), len(x), True, generator=g
            ),
            [0.25, 0.5, 0.0, 0.25],
        ),
        "normal": (lambda x, g: torch.normal(x.fill_(0), x + 1, generator=g), ndtr),
        **{name: (dropped(run), [0.75, 0.25]) for name, run in dropouts.items()},
    }


def chance(device: str) -> Outcome:
    """Each sampler keeps to its law, follows its generator, and no part of a draw or of the next
    one comes again."""
    parts: List[Part] = list(_orders(device))
    for label, sampler in _samplers().items():
        for name in FORMATS:
            try:
                parts += _drawn(torch.empty(FORMATS[name], device=device), name, label, sampler)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return judged(parts, "what chance gives")


def _drawn(empty: Any, name: str, label: str, sampler: Sampler) -> Iterator[Part]:
    draw, law = sampler
    label, empty = f"{label} of {name}", empty.to(getattr(torch, name))
    found = []
    for turn in range(2):
        made = torch.Generator(device=empty.device).manual_seed((asked().seed + 41) % 2**63)
        # dropout alone follows the generator of the process
        torch.manual_seed((asked().seed + turn * ("dropout" not in label)) % 2**63)
        found += [draw(empty.clone(), made).cpu() for _ in "ab"]
    first, second, *again = found
    yield same(f"{label}, the same seed", torch.cat(again), torch.cat([first, second]))
    yield holds(f"{label}, the next draw", not torch.equal(first, second), "it is drawn twice")
    yield from _counted(label, torch.cat([first, second]), law)
    if name == "float32":
        yield from anew(label, first, second)


def _counted(label: str, drawn: Any, law: Law) -> Iterator[Part]:
    """How many numbers are in each cell of the law, its tails among them."""
    values, coarse = drawn.double(), 0.0
    if drawn.is_floating_point():
        coarse = torch.finfo(drawn.dtype).eps
    if callable(law):
        below = law(values)
        tails = [2.0**-k for k in range(13, 5, -1)] if coarse < 1e-6 else []
        edges = [0.0, *tails, *(n / 32 for n in range(1, 32)), *(1 - t for t in tails[::-1]), 1.0]
        good = (below >= 0) & (below <= 1)
        cells = torch.bucketize(below, torch.tensor(edges[1:-1], dtype=torch.float64), right=True)
        shares = torch.tensor(edges, dtype=torch.float64).diff()
    else:
        good = (values >= 0) & (values == values.round())
        cells = values.clamp(0, len(law)).long()
        shares = torch.tensor([*law, max(0.0, 1 - sum(law))], dtype=torch.float64)
        shares[shares < 1e-9] = 0.0
        good &= shares[cells] > 0
    yield holds(f"{label}, ends", bool(good.all()), "a number outside of the allowed range")
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


def anew(label: str, first: Any, second: Any) -> Iterator[Part]:
    """No part of two draws comes twice, at whatever places of one or of both."""
    alike = float((first[1:] == first[:-1]).double().mean())
    steps = ceil(log2(ONCE_IN / -log2(min(max(alike, 2.0**-17), 0.99))))
    marks = []
    for drawn in (first, second):
        # for each place a number that follows from the 2^steps numbers from there on; it wraps
        found = drawn.double().view(torch.int64)
        for factor in MIXED[:2]:
            found = found * factor
            found = found ^ (found >> 31)
        for step in range(steps):
            found = found[: -(2**step)] * (MIXED[2] + 2 * step) + found[2**step :]
            found = (found ^ (found >> 29)) * MIXED[step % 2]
        marks.append(found)
    every = torch.cat(marks).sort()[0]
    twice = int((every[1:] == every[:-1]).sum())
    yield holds(label, not twice, f"{twice} parts of {2**steps} numbers come twice in two draws")


ORDERED, STILL = (1023, 70001), 18
"""Lengths of permutations, and how many numbers may stay: 1 on average, more than 18 once in
10^17."""


def _orders(device: str) -> Iterator[Part]:
    """Permutations: each number once, hardly one where it was."""
    for count in ORDERED:
        found, other = (torch.randperm(count, device=device).cpu() for _ in "ab")
        made = torch.Generator(device=device)
        first, again = (
            torch.randperm(count, device=device, generator=made.manual_seed(5)) for _ in "ab"
        )
        yield same(f"randperm {count}, the same seed", again, first)
        places = torch.arange(count)
        mixed = torch.multinomial(torch.ones(count, device=device), count).cpu()
        for drawn in (found, mixed):
            yield same(f"randperm {count}, each once", drawn.sort()[0], places)
        still = max(int((found == each).sum()) for each in (places, other))
        yield holds(f"randperm {count}", still <= STILL, f"{still} numbers stay where they were")
