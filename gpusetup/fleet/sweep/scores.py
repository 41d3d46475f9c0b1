"""The scores of a sweep's ranks, and the faults that a second series of rounds confirms. Pure.

A rank's score is the middle of what it measured, with all of its partners. A rank is slow if its
score is below the fleet's median by more of the scatter than a healthy fleet shows once in a
hundred sweeps (`fleet/drift.py`), and by a share that matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median, median_high
from typing import Literal

from gpusetup.fleet.drift import least_healthy
from gpusetup.model.frozen import Frozen

LOSS = 0.2
"""A link that is slower by a smaller share is not named."""
LOSS_AMONG_FEW = 1 / 3
"""The same, if fewer than eight are compared: so few show no scatter."""
LEAST_COMPARED, FEW = 3, 8

Ranks = tuple[int, ...]
Pair = tuple[int, int]
Stage = Literal["within", "between"]
"""Ranks of one host; ranks of the same place on several hosts."""
Fault = Literal[
    "absent", "hung", "broken-link", "slow-link", "broken-path", "slow-path", "unmeasured"
]


class Unit(Frozen):
    """One rank of the sweep."""

    rank: int
    host: str
    local: int = 0
    """Its place among the ranks of its host."""
    device: str = ""
    """The model of its device."""


class Round(Frozen):
    """What is measured at once."""

    number: int
    stage: Stage
    pairs: tuple[Pair, ...]
    """Who exchanges with whom: no rank is in two pairs."""
    again: bool = False

    @property
    def asked(self) -> Ranks:
        return tuple(rank for pair in self.pairs for rank in pair)


class Result(Frozen):
    """What came back of a round."""

    round: Round
    rates: Mapping[Pair, float]
    """bytes/s of bus bandwidth; 0 if it failed or did not end in time."""
    silent: Ranks = ()
    """Ranks that said nothing until the round's time was over."""
    problem: str = ""
    """What a backend said of an exchange that failed."""


class Scores(Frozen):
    """The ranks of one stage, compared."""

    stage: Stage
    by_rank: Mapping[int, float]
    """Rank -> its score."""
    middle: float
    """The median of all scores, in bytes/s."""
    limit: float
    """A healthy rank reaches it; 0 if too few are compared."""
    rates_again: Mapping[int, Sequence[float]]
    """Rank -> its rates in the second series."""
    partners: Mapping[int, Collection[int]]
    broken: tuple[Pair, ...]
    """Pairs of ranks that are not slow, of which no exchange ended."""

    @property
    def slow(self) -> Ranks:
        return tuple(rank for rank, score in self.by_rank.items() if score < self.limit)

    @property
    def dead(self) -> Ranks:
        """Ranks whose exchanges with several partners failed; each costs the whole limit."""
        return tuple(r for r in self.slow if not self.by_rank[r] and len(self.partners[r]) > 1)

    @property
    def second_limit(self) -> float:
        """The limit, at the speed of the sound ranks in the second series."""
        suspects = {*self.slow, *(rank for pair in self.broken for rank in pair)}
        now = [max(rates) for rank, rates in self.rates_again.items() if rank not in suspects]
        return self.limit * min(1.0, median(now) / self.middle) if now and self.limit else 0.0


def scores_of(results: Iterable[Result], stage: Stage, ranks: Collection[int]) -> Scores:
    """Compare ranks by what they measured in a stage.

    >>> rates = {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.5, (0, 3): 1.0, (1, 3): 1.0, (2, 3): 0.5}
    >>> asked = Round(number=0, stage="between", pairs=tuple(rates))
    >>> found = scores_of([Result(round=asked, rates=rates)], "between", range(4))
    >>> found.slow, found.middle
    ((2,), 1.0)
    """
    first: dict[int, list[float]] = defaultdict(list)
    again: dict[int, list[float]] = defaultdict(list)
    pairs: dict[Pair, float] = {}
    partners: dict[int, set[int]] = defaultdict(set)
    for result in results:
        for pair, rate in result.rates.items() if result.round.stage == stage else ():
            if not all(rank in ranks for rank in pair):
                continue
            pairs[pair] = max(rate, pairs.get(pair, 0.0))
            for rank in pair:
                (again if result.round.again else first)[rank].append(rate)
                partners[rank].update({*pair} - {rank})
    scores = {rank: median_high(rates) for rank, rates in sorted(first.items())}
    limit = _limit([*scores.values()])
    return Scores(
        stage=stage,
        by_rank=scores,
        middle=median(scores.values()) if scores else 0.0,
        limit=limit,
        rates_again=again,
        partners=partners,
        broken=tuple(
            pair
            for pair, best in pairs.items()
            if not best and all(scores[rank] >= limit for rank in pair)
        ),
    )


def _limit(scores: Sequence[float]) -> float:
    if len(scores) < LEAST_COMPARED:
        return 0.0
    if len(scores) < FEW:
        return median(scores) * (1 - LOSS_AMONG_FEW)
    return least_healthy(scores, LOSS)


class NamedFault(Frozen):
    """One thing that is wrong."""

    fault: Fault
    ranks: Ranks
    stage: Stage = "between"
    rate: float | None = None
    middle: float | None = None
    """The median of the others, in the same unit."""


def faults_in(scores: Scores) -> Iterator[NamedFault]:
    """Who is named in one stage: a rank; with a single partner the pair, for neither end can be
    blamed."""
    stage, middle = scores.stage, scores.middle
    if scores.by_rank and not middle:
        yield NamedFault(fault="unmeasured", ranks=tuple(scores.by_rank), stage=stage)
        return
    level = scores.second_limit
    found: dict[Ranks, float] = dict.fromkeys(scores.broken, 0.0)
    for rank in scores.slow:
        rates = scores.rates_again.get(rank, ())
        if rates and max(rates) < level:
            partners = scores.partners[rank]
            ranks = (rank,) if len(partners) > 1 else tuple(sorted((rank, *partners)))
            found[ranks] = max(scores.by_rank[rank], *rates)
    for ranks, rate in found.items():
        link: Fault = "slow-link" if rate else "broken-link"
        path: Fault = "slow-path" if rate else "broken-path"
        fault = link if len(ranks) == 1 else path
        yield NamedFault(fault=fault, ranks=ranks, stage=stage, rate=rate, middle=middle)
