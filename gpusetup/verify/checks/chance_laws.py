"""Laws of chance with parameters on either side of where generators change their way: each has its
mean and its spread, which follow from the parameters."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, Iterator, NamedTuple, Tuple

from ..judging.refusals import refuses
from ..judging.tolerance import Part, agree
from ..values import asked

DRAWS = 2**16
SIGMAS = 6.5
"""A sound generator is farther off once in ten thousand million figures; of the skew laws among
these (a gamma law of 0.2) once in four thousand million."""
SPREAD = 0.15
"""The spread of 65,536 draws of the widest of these laws is 1.1 % off, as a deviation."""


class Law(NamedTuple):
    draw: Callable[[Any, Any], Any]
    """(torch, one for each draw) -> as many numbers."""
    mean: float
    variance: float


def _gamma(shape: float) -> Law:
    return Law(lambda t, one: t._standard_gamma(shape * one), shape, shape)


def _beta(a: float, b: float) -> Law:
    """As torch.distributions draws it: the first of two shares."""

    def draw(t: Any, one: Any) -> Any:
        both = t.stack([a * one, b * one], -1)
        return t._sample_dirichlet(both)[..., 0]

    return Law(draw, a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1)))


def _poisson(rate: float) -> Law:
    return Law(lambda t, one: t.poisson(rate * one), rate, rate)


def _binomial(count: int, share: float) -> Law:
    mean = count * share
    return Law(lambda t, one: t.binomial(count * one, share * one), mean, mean * (1 - share))


def _flags(share: float) -> Law:
    return Law(lambda t, one: t.bernoulli(share * one), share, share * (1 - share))


def _trials(share: float) -> Law:
    """How many trials it takes to the first success."""
    return Law(
        lambda t, one: t.empty_like(one).geometric_(share), 1 / share, (1 - share) / share**2
    )


def _waits(rate: float) -> Law:
    return Law(lambda t, one: t.empty_like(one).exponential_(rate), 1 / rate, 1 / rate**2)


def _wholes(most: int) -> Law:
    def draw(t: Any, one: Any) -> Any:
        return t.randint(0, most, one.shape, device=one.device).double()

    return Law(draw, (most - 1) / 2, (most**2 - 1) / 12)


LAWS: Dict[str, Law] = {
    **{f"gamma {shape}": _gamma(shape) for shape in (0.2, 0.7, 1.0, 50.0)},
    **{f"beta {a} {b}": _beta(a, b) for a, b in ((0.3, 0.3), (2.0, 0.5), (5.0, 20.0))},
    **{f"poisson {rate}": _poisson(rate) for rate in (0.3, 9.5, 30.0, 2000.0)},
    **{
        f"binomial {count} {share}": _binomial(count, share)
        for count, share in ((3, 0.2), (40, 0.9), (500, 0.01), (1000, 0.5))
    },
    **{f"bernoulli {share}": _flags(share) for share in (0.02, 0.97)},
    **{f"geometric {share}": _trials(share) for share in (0.05, 0.9)},
    **{f"exponential {rate}": _waits(rate) for rate in (0.01, 20.0)},
    **{f"randint below {most}": _wholes(most) for most in (3, 2**31 - 1, 2**40)},
}


def laws(torch: Any, device: str) -> Iterator[Part]:
    torch.manual_seed((asked().seed + 47) % 2**63)
    one = torch.ones(DRAWS, device=device)
    for name, law in LAWS.items():
        try:
            found = law.draw(torch, one).double().cpu()
        except RuntimeError as problem:
            if not refuses(problem):
                raise
            continue
        yield from _judged(torch, name, found, law.mean, sqrt(law.variance))


def _judged(torch: Any, name: str, found: Any, mean: float, spread: float) -> Tuple[Part, Part]:
    near = SIGMAS * spread / sqrt(DRAWS) + 1e-4 * (abs(mean) + spread)
    return (
        agree(f"{name}, mean", found.mean(), torch.tensor(mean).double(), near),
        agree(f"{name}, spread", found.std(), torch.tensor(spread).double(), SPREAD * spread),
    )
