"""Computes the scores of a sweep's ranks, and the faults that a second series of rounds confirms.
Pure functions.

A rank's score is the median of its rates with all partners. A rank is slow if its score is below
the fleet's median by a relevant share, and by more spreads than a healthy fleet shows in 99 of 100
sweeps (`fleet/drift.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median, median_high
from typing import Literal

from gpusetup.fleet.drift import least_healthy
from gpusetup.model.frozen import Frozen

LOSS = 0.2
"""The least relative loss of speed that is reported."""
LOSS_AMONG_FEW = 1 / 3
"""The least relative loss that is reported if fewer than eight ranks are compared, because so few
do not show how much healthy ranks vary."""
LEAST_COMPARED, FEW = 3, 8

Ranks = tuple[int, ...]
Pair = tuple[int, int]
Stage = Literal["within", "between"]
"""Exchanges within one host, or between ranks at the same position on several hosts."""
Fault = Literal[
    "absent", "hung", "broken-link", "slow-link", "broken-path", "slow-path", "unmeasured"
]


class Unit(Frozen):
    """One rank of the sweep, with its host and device."""

    rank: int
    host: str
    local: int = 0
    """The rank's position among the ranks of its host."""
    device: str = ""
    """The model of the rank's device."""


class Round(Frozen):
    """The pairs of ranks that exchange data at the same time."""

    number: int
    stage: Stage
    pairs: tuple[Pair, ...]
    """The pairs that exchange data; no rank is in two pairs."""
    again: bool = False

    @property
    def asked(self) -> Ranks:
        """The ranks that take part in this round, pair by pair."""
        ranks: list[int] = []
        for pair in self.pairs:
            ranks.extend(pair)
        return tuple(ranks)


class RoundResult(Frozen):
    """The results of one round: the rate of each pair, and the ranks that did not respond."""

    round: Round
    rates: Mapping[Pair, float]
    """Bus bandwidth in bytes/s; 0 if the exchange failed or did not end in time."""
    silent: Ranks = ()
    """Ranks that did not respond before the round's time was over."""
    problem: str = ""
    """The backend's message about an exchange that failed."""


class Scores(Frozen):
    """The scores of the ranks in one stage, with the limit below which a rank counts as slow."""

    stage: Stage
    by_rank: Mapping[int, float]
    """Maps each rank to its score."""
    middle: float
    """The median of all scores, in bytes/s."""
    limit: float
    """The score that a healthy rank reaches; 0 if too few ranks are compared."""
    rates_again: Mapping[int, Sequence[float]]
    """Maps each rank to its rates in the second series."""
    partners: Mapping[int, Collection[int]]
    broken: tuple[Pair, ...]
    """Pairs of ranks that are not slow themselves, but between which no exchange succeeded."""

    @property
    def slow(self) -> Ranks:
        """The ranks whose score is below the limit."""
        slow = []
        for rank, score in self.by_rank.items():
            # A limit of 0 means that too few ranks were compared.
            if score < self.limit:
                slow.append(rank)
        return tuple(slow)

    @property
    def dead(self) -> Ranks:
        """The slow ranks that could not exchange data with any of several partners; measuring them
        again would take the whole time limit."""
        dead = []
        for rank in self.slow:
            has_failed = self.by_rank[rank] == 0
            # If a rank had only one partner, either of the two may be broken.
            has_partners = len(self.partners[rank]) > 1
            if has_failed and has_partners:
                dead.append(rank)
        return tuple(dead)

    @property
    def second_limit(self) -> float:
        """The limit for the second series of rounds, lowered if the healthy ranks were slower
        there; 0 if nothing can be compared."""
        suspects = set(self.slow)
        for pair in self.broken:
            suspects.update(pair)
        sound_rates = []
        for rank, rates in self.rates_again.items():
            # Use each rank's best rate, because some of its partners may have been suspects.
            if rank not in suspects:
                sound_rates.append(max(rates))
        if not sound_rates or not self.limit:
            return 0.0
        # If healthy ranks were faster in the second series, do not raise the limit.
        speed = median(sound_rates) / self.middle
        return self.limit * min(1.0, speed)


class RateTable:
    """Collects the measurements of one stage, by rank and by pair."""

    def __init__(self) -> None:
        self.first: dict[int, list[float]] = defaultdict(list)
        self.again: dict[int, list[float]] = defaultdict(list)
        """`first` and `again` map each rank to its rates in the first and in the second series."""
        self.best_rates: dict[Pair, float] = {}
        self.partners: dict[int, set[int]] = defaultdict(set)

    def add(self, pair: Pair, rate: float, *, again: bool) -> None:
        """Record a pair's rate in bytes per second; `again` means that it belongs to the second
        series."""
        earlier_best = self.best_rates.get(pair, 0.0)
        self.best_rates[pair] = max(rate, earlier_best)
        series = self.again if again else self.first
        low, high = pair
        # The rate counts equally for both ranks.
        series[low].append(rate)
        series[high].append(rate)
        self.partners[low].add(high)
        self.partners[high].add(low)


def scores_of(results: Iterable[RoundResult], stage: Stage, ranks: Collection[int]) -> Scores:
    """The scores of ranks from the measurements of one stage.

    >>> rates = {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.5, (0, 3): 1.0, (1, 3): 1.0, (2, 3): 0.5}
    >>> asked = Round(number=0, stage="between", pairs=tuple(rates))
    >>> found = scores_of([RoundResult(round=asked, rates=rates)], "between", range(4))
    >>> found.slow, found.middle
    ((2,), 1.0)
    """
    table = RateTable()
    for result in results:
        if result.round.stage != stage:
            continue
        for pair, rate in result.rates.items():
            low, high = pair
            # A rank that later stopped responding says nothing about its partners' speed.
            if low in ranks and high in ranks:
                table.add(pair, rate, again=result.round.again)
    scores = {rank: median_high(rates) for rank, rates in sorted(table.first.items())}
    limit = _limit([*scores.values()])
    broken = []
    for pair, best_rate in table.best_rates.items():
        are_both_sound = all(scores[rank] >= limit for rank in pair)
        never_ended = best_rate == 0
        if never_ended and are_both_sound:
            broken.append(pair)
    middle = median(scores.values()) if scores else 0.0
    return Scores(
        stage=stage,
        by_rank=scores,
        middle=middle,
        limit=limit,
        rates_again=table.again,
        partners=table.partners,
        broken=tuple(broken),
    )


def _limit(scores: Sequence[float]) -> float:
    """The lowest score that a healthy rank may have; 0 if there are too few ranks to compare."""
    count = len(scores)
    if count < LEAST_COMPARED:
        return 0.0
    if count < FEW:
        # A few ranks do not show how much healthy ranks vary, so only a large loss is certain.
        share = 1 - LOSS_AMONG_FEW
        return median(scores) * share
    return least_healthy(scores, LOSS)


class NamedFault(Frozen):
    """A fault with the ranks that it affects: one rank, the two ends of a path, or all ranks of a
    stage."""

    fault: Fault
    ranks: Ranks
    stage: Stage = "between"
    rate: float | None = None
    middle: float | None = None
    """The median of the other ranks, in the same unit."""


def faults_in(scores: Scores) -> Iterator[NamedFault]:
    """The confirmed faults of one stage. If a slow rank had only one partner, the pair is reported,
    because either of the two may be at fault."""
    stage = scores.stage
    middle = scores.middle
    if scores.by_rank and not middle:
        yield NamedFault(fault="unmeasured", ranks=tuple(scores.by_rank), stage=stage)
        return
    limit = scores.second_limit
    rates_of: dict[Ranks, float] = dict.fromkeys(scores.broken, 0.0)
    for rank in scores.slow:
        rates_again = scores.rates_again.get(rank, ())
        # If the rank was slow in the first series only, something disturbed that measurement.
        is_confirmed = bool(rates_again) and max(rates_again) < limit
        if not is_confirmed:
            continue
        ranks: Ranks = (rank,)
        partners = scores.partners[rank]
        if len(partners) == 1:
            ranks = tuple(sorted((rank, *partners)))
        rates_of[ranks] = max(scores.by_rank[rank], *rates_again)
    for ranks, rate in rates_of.items():
        fault = _fault_of(ranks, rate)
        yield NamedFault(fault=fault, ranks=ranks, stage=stage, rate=rate, middle=middle)


def _fault_of(ranks: Ranks, rate: float) -> Fault:
    """The name of the fault for a slow rank or pair; a rate of 0 means that the link or path is
    broken."""
    is_one_rank = len(ranks) == 1
    # A rate of 0 means that no exchange succeeded.
    if not rate:
        return "broken-link" if is_one_rank else "broken-path"
    return "slow-link" if is_one_rank else "slow-path"
