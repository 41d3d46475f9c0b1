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
        scores = self.by_rank.items()
        return tuple(rank for rank, score in scores if score < self.limit)

    @property
    def dead(self) -> Ranks:
        """Ranks whose exchanges with several partners failed; each costs the whole limit."""
        silent_ranks = [rank for rank in self.slow if self.by_rank[rank] == 0]
        # With a single partner either end may be the broken one.
        return tuple(rank for rank in silent_ranks if len(self.partners[rank]) > 1)

    @property
    def second_limit(self) -> float:
        """The limit, at the speed of the sound ranks in the second series."""
        suspects = set(self.slow)
        for pair in self.broken:
            suspects.update(pair)
        sound_rates = [
            max(rates) for rank, rates in self.rates_again.items() if rank not in suspects
        ]
        if not sound_rates or not self.limit:
            return 0.0
        # A second series that is faster does not raise the limit.
        speed = median(sound_rates) / self.middle
        return self.limit * min(1.0, speed)


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
    best_rates: dict[Pair, float] = {}
    partners: dict[int, set[int]] = defaultdict(set)
    for result in results:
        if result.round.stage != stage:
            continue
        series = again if result.round.again else first
        for pair, rate in result.rates.items():
            low, high = pair
            # A rank that fell silent later is no measure of its partners.
            if low not in ranks or high not in ranks:
                continue
            best_rates[pair] = max(rate, best_rates.get(pair, 0.0))
            series[low].append(rate)
            series[high].append(rate)
            partners[low].add(high)
            partners[high].add(low)
    scores = {rank: median_high(rates) for rank, rates in sorted(first.items())}
    limit = _limit([*scores.values()])
    broken = []
    for pair, best_rate in best_rates.items():
        are_both_sound = all(scores[rank] >= limit for rank in pair)
        if best_rate == 0 and are_both_sound:
            broken.append(pair)
    return Scores(
        stage=stage,
        by_rank=scores,
        middle=median(scores.values()) if scores else 0.0,
        limit=limit,
        rates_again=again,
        partners=partners,
        broken=tuple(broken),
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
    stage = scores.stage
    middle = scores.middle
    if scores.by_rank and not middle:
        yield NamedFault(fault="unmeasured", ranks=tuple(scores.by_rank), stage=stage)
        return
    limit = scores.second_limit
    rates_of: dict[Ranks, float] = dict.fromkeys(scores.broken, 0.0)
    for rank in scores.slow:
        rates_again = scores.rates_again.get(rank, ())
        # Slow in the first series only: something disturbed the measurement.
        is_confirmed = bool(rates_again) and max(rates_again) < limit
        if is_confirmed:
            partners = scores.partners[rank]
            has_partners = len(partners) > 1
            ranks = (rank,) if has_partners else tuple(sorted((rank, *partners)))
            rates_of[ranks] = max(scores.by_rank[rank], *rates_again)
    for ranks, rate in rates_of.items():
        fault: Fault
        if len(ranks) == 1:
            fault = "slow-link" if rate else "broken-link"
        else:
            fault = "slow-path" if rate else "broken-path"
        yield NamedFault(fault=fault, ranks=ranks, stage=stage, rate=rate, middle=middle)
