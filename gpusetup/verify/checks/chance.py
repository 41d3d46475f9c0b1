"""Random numbers: their law, their seed, and that no part of them comes again."""

from __future__ import annotations

from math import ceil, inf, log2, sqrt
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from ..judging.refusals import refuses
from ..judging.tolerance import Part, agree, holds, judged, same
from ..values import Outcome, asked

FORMATS = {"float32": 2**17, "bfloat16": 2**16, "float16": 2**16}
"""And how many numbers are drawn."""
SIGMAS = 6.5
"""A sound generator is farther off once in ten thousand million figures."""
Law = Tuple[Callable[[Any, Any], Any], float, float, float, float]
"""(a tensor of that format and size, generator) -> numbers; their mean, their spread, the least,
which may come, and the end, which must not."""


def _laws() -> Dict[str, Law]:
    dropout = torch.nn.functional.dropout

    def like(x: Any, made: Any) -> Dict[str, Any]:
        return {"dtype": x.dtype, "device": x.device, "generator": made}

    return {
        "rand": (lambda x, g: torch.rand(len(x), **like(x, g)), 0.5, sqrt(1 / 12), 0, 1),
        "randn": (lambda x, g: torch.randn(len(x), **like(x, g)), 0, 1, -inf, inf),
        "exponential_": (lambda x, g: x.exponential_(0.5, generator=g), 2, 2, 0, inf),
        "bernoulli_": (lambda x, g: x.bernoulli_(0.3, generator=g), 0.3, sqrt(0.21), 0, 2),
        "multinomial": (
            lambda x, g: torch.multinomial(x[:4].fill_(1), len(x), True, generator=g).to(x.dtype),
            *(1.5, sqrt(1.25), 0, 4),
        ),
        # it follows the generator of the process
        "dropout": (lambda x, g: dropout(x.fill_(1), 0.5), 1, 1, 0, 3),
    }


def chance(device: str) -> Outcome:
    """Each law has its mean and its spread, follows its generator, and no part of a draw or of the
    next one comes again."""
    parts: List[Part] = list(_orders(device))
    for label, law in _laws().items():
        for name in FORMATS:
            try:
                parts += _drawn(torch.empty(FORMATS[name], device=device), name, label, law)
            except RuntimeError as problem:
                if not refuses(problem):
                    raise
    return judged(parts, "what chance gives")


def _drawn(empty: Any, name: str, label: str, law: Law) -> Iterator[Part]:
    draw, mean, spread, low, end = law
    label, count, empty = f"{label} of {name}", len(empty), empty.to(getattr(torch, name))
    found = []
    for _ in "ab":
        made = torch.Generator(device=empty.device)
        for seeded in (torch, made):
            seeded.manual_seed((asked().seed + 41) % 2**63)
        found += [draw(empty.clone(), made).cpu() for _ in "ab"]
    first, second, *again = found
    values = first.double()
    rough = 8 * torch.finfo(first.dtype).eps * (abs(mean) + spread) + 1e-3 * spread
    good = bool(((first >= low) & (first < end)).all())
    yield same(f"{label}, the same seed", torch.cat(again), torch.cat([first, second]))
    yield holds(f"{label}, the next draw", not torch.equal(first, second), "it is drawn twice")
    yield holds(f"{label}, ends", good, f"not in [{low}, {end})")
    share = SIGMAS * spread / sqrt(count) + rough
    yield agree(f"{label}, mean", values.mean(), torch.tensor(mean), share)
    yield agree(f"{label}, spread", values.std(), torch.tensor(spread), 0.03 * spread + rough)
    if name == "float32":
        yield from anew(label, first, second)


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
        places = torch.arange(count)
        yield same(f"randperm {count}, each once", found.sort()[0], places)
        still = max(int((found == each).sum()) for each in (places, other))
        yield holds(f"randperm {count}", still <= STILL, f"{still} numbers stay where they were")
