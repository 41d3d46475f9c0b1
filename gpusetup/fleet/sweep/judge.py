"""Who is slower than the others: scores of ranks, and how low a healthy one may be. Pure.

A rank's score is the middle of what it measured with its partners. A pair should do what its
slower end can; what it does otherwise is the noise of the measurement. A rank is suspected where
its score lies below the fleet's median by more of that noise than a healthy fleet shows once in a
hundred sweeps (`fleet/rates.py`), and by a share that matters; a suspicion is measured again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import comb, pi, sqrt
from statistics import median, median_high

from gpusetup.fleet.rates import FALSE_ALARMS, LEAST_SPREAD, LEAST_VALUES, TO_SIGMA, spreads
from gpusetup.fleet.sweep.values import Result, Stage
from gpusetup.model.frozen import Frozen, replace

LOSS = 0.2
"""A link or rank that is slower by a smaller share is not named."""
LOSS_AMONG_FEW = 1 / 3
"""Where fewer than five are compared, a smaller loss is nobody's."""
LEAST_COMPARED = 3
MEDIAN_OF_NORMAL = pi / 2
"""Values whose median is as certain as the mean of one, where they are normal."""
Pair = tuple[int, int]


class Scores(Frozen):
    """The ranks of one stage (or of one model of device), compared."""

    of: Mapping[int, float]
    """Rank -> its middle rate."""
    pairs: Mapping[Pair, float] = {}
    once: frozenset[int] = frozenset()
    """Ranks with one partner: of a slow pair no end can be blamed."""
    unsure: frozenset[int] = frozenset()
    """Ranks that were slow in no more rounds than the others' rounds let expect by chance."""
    middle: float = 0.0
    limit: float = 0.0
    """A healthy one reaches it; 0 where too few are compared."""

    @property
    def sees(self) -> float:
        """A rank slower than this share of the median is suspected."""
        return self.limit / self.middle if self.middle else 0.0

    @property
    def slow(self) -> tuple[int, ...]:
        out = self.once | self.unsure
        return tuple(r for r, score in self.of.items() if score < self.limit and r not in out)

    @property
    def paths(self) -> tuple[Pair, ...]:
        """Slow pairs of which neither end is slow."""
        slow = set(self.slow)
        return tuple(p for p, r in self.pairs.items() if r < self.limit and slow.isdisjoint(p))


def pair_rates(results: Iterable[Result], stage: Stage, kinds: Sequence[str]) -> dict[Pair, float]:
    """The best that each pair did: what disturbs a measurement only makes it slower."""
    best: dict[Pair, float] = {}
    for result in results:
        if result.round.stage != stage or result.round.kind not in kinds:
            continue
        for each in result.exchanged:
            if len(each.group) == 2 and not set(each.group) & set(result.silent):
                pair = (min(each.group), max(each.group))
                best[pair] = max(best.get(pair, 0.0), each.rate)
    return best


def link_scores(pairs: Mapping[Pair, float]) -> Scores:
    """Scores of the ranks by their pairs.

    >>> rates = {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.5, (0, 3): 1.0, (1, 3): 1.0, (2, 3): 0.5}
    >>> found = link_scores(rates)
    >>> found.slow, found.middle
    ((2,), 1.0)
    """
    by_rank: dict[int, list[float]] = defaultdict(list)
    for (one, other), rate in pairs.items():
        by_rank[one].append(rate)
        by_rank[other].append(rate)
    of = {rank: median_high(rates) for rank, rates in sorted(by_rank.items())}
    noise = [abs(rate - min(of[one], of[other])) for (one, other), rate in pairs.items()]
    once = frozenset(rank for rank, rates in by_rank.items() if len(rates) == 1)
    return replace(_judged(of, noise), pairs=pairs, once=once)


def compute_scores(results: Iterable[Result], ranks: Iterable[int]) -> Scores:
    """Scores of the ranks by what each computed on its own, as shares of its rounds' middles.

    What slows a whole round, as a clock that sinks does, slows all of it and leaves the shares.
    """
    rounds = list(shared_rounds(results, ranks))
    by_rank: dict[int, list[float]] = defaultdict(list)
    for _, shares in rounds:
        for rank, share in shares.items():
            by_rank[rank].append(share)
    middle = median(each for each, _ in rounds) if rounds else 0.0
    usual = {rank: median(shares) for rank, shares in sorted(by_rank.items())}
    noise = [
        abs(share - usual[rank]) * middle * sqrt(MEDIAN_OF_NORMAL / len(shares))
        for rank, shares in by_rank.items()
        for share in shares
    ]
    of = {rank: share * middle for rank, share in usual.items()}
    found = _judged(of, noise or [0.0])
    slow_in = {r: sum(s < found.sees for s in shares) for r, shares in by_rank.items()}
    return replace(found, unsure=_unsure(slow_in, {r: len(s) for r, s in by_rank.items()}))


def _unsure(slow_in: Mapping[int, int], rounds: Mapping[int, int]) -> frozenset[int]:
    """Ranks whose slow rounds may be chance, at the rate at which the other ranks have such.

    Clocks that sink for moments make some rounds of any rank slow; a rank that is slow is so in
    nearly all of its own. Binomial, over as many ranks as there are.
    """
    every, slow = sum(rounds.values()), sum(slow_in.values())
    chances = {
        rank: chance(count, slow_in[rank], (slow - slow_in[rank] + 1) / (every - count + 1))
        for rank, count in rounds.items()
        if slow_in[rank]
    }
    return frozenset(r for r, each in chances.items() if each * len(rounds) > FALSE_ALARMS)


@lru_cache(maxsize=4096)
def chance(count: int, least: int, each: float) -> float:
    """How likely at least so many of `count` rounds are slow, where each is with that chance.

    >>> chance(5, 5, 0.5), round(chance(3, 2, 0.1), 3), chance(4, 0, 0.2)
    (0.03125, 0.028, 1.0)
    """
    wanted = range(least, count + 1)
    return min(1.0, sum(comb(count, n) * each**n * (1 - each) ** (count - n) for n in wanted))


def shared_rounds(
    results: Iterable[Result], ranks: Iterable[int]
) -> Iterator[tuple[float, dict[int, float]]]:
    """Of each round in which these ranks computed: the middle rate, and each rank's share of it."""
    wanted = set(ranks)
    for result in results:
        rates = {rank: rate for rank, rate in result.computed.items() if rank in wanted}
        if rates:
            middle = median(rates.values())
            yield middle, {rank: rate / middle for rank, rate in rates.items()}


def _judged(of: Mapping[int, float], noise: Sequence[float]) -> Scores:
    values = list(of.values())
    middle = median(values) if values else 0.0
    if len(values) < LEAST_COMPARED:
        return Scores(of=of, middle=middle)
    if len(values) < LEAST_VALUES:
        return Scores(of=of, middle=middle, limit=middle * (1 - LOSS_AMONG_FEW))
    among = median(abs(value - middle) for value in values)
    spread = max(TO_SIGMA * max(median(noise), among), LEAST_SPREAD * middle)
    least = middle - spreads(max(len(noise), LEAST_VALUES)) * spread
    return Scores(of=of, middle=middle, limit=max(0.0, min(least, middle * (1 - LOSS))))
