"""Who is slower than the others, and who is named: what a second series of rounds shows too. Pure.

A rank's score is the middle of what it measured, with all of its partners; of computing the upper
quarter, for what disturbs a measurement makes it slower and never faster. A rank is slow if its
score is below the fleet's median by more of the scatter than a healthy fleet shows once in a
hundred sweeps (`fleet/rates.py`), and by a share that matters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal

from gpusetup.fleet.rates import least_healthy
from gpusetup.model.frozen import Frozen

LOSS = 0.2
"""A link or rank that is slower by a smaller share is not named."""
LOSS_AMONG_FEW = 1 / 3
"""The same, if fewer than eight are compared: so few show no scatter."""
LEAST_COMPARED, FEW = 3, 8
PATH_AGAIN = 4
"""How often a slow pair is measured again: a path has one measurement a round."""
FEW_PATHS, SHARE_OF_PATHS = 3, 0.05
"""More slow pairs than these are no single paths: the network is uneven."""

Group = tuple[int, ...]
Pair = tuple[int, int]
Stage = Literal["computing", "within", "between"]
"""Each rank alone; ranks of one host; ranks of the same place on several hosts."""
Fault = Literal[
    "absent",
    "hung",
    "slow-compute",
    "broken-link",
    "slow-link",
    "broken-path",
    "slow-path",
    "uneven",
    "unmeasured",
]


class Unit(Frozen):
    """One rank of the sweep."""

    rank: int
    host: str
    local: int = 0
    """Its place among the ranks of its host."""
    device: str = ""
    """The model of its device: rates of computing are compared among alike."""


class Round(Frozen):
    """What is measured at once."""

    number: int
    stage: Stage
    groups: tuple[Group, ...]
    """Who computes alone, or exchanges with whom: no rank is in two groups."""
    again: bool = False

    @property
    def asked(self) -> tuple[int, ...]:
        return tuple(rank for group in self.groups for rank in group)


class Result(Frozen):
    """What came back of a round."""

    round: Round
    rates: Mapping[Group, float]
    """bytes/s of bus bandwidth, of computing runs/s; 0 if it failed or did not end in time."""
    silent: tuple[int, ...] = ()
    """Ranks that said nothing until the round's time was over."""
    problem: str = ""
    """What a backend said of an exchange that failed."""


class Scores(Frozen):
    """The ranks of one stage (or of one model of device), compared."""

    stage: Stage
    of: Mapping[int, float]
    """Rank -> its score."""
    middle: float
    limit: float
    """A healthy rank reaches it; 0 if too few are compared."""
    again: Mapping[int, Sequence[float]]
    """Rank -> its rates in the second series."""
    pairs: Mapping[Pair, float]
    """Pair -> the best of its rates."""
    times_again: Mapping[Pair, int]
    partners: Mapping[int, Collection[Group]]
    """Rank -> its groups: if it is one pair, neither end can be blamed for it."""

    @property
    def dead(self) -> tuple[int, ...]:
        """Ranks whose exchanges with several partners failed; each costs the whole limit."""
        return tuple(r for r, score in self.of.items() if not score and len(self.partners[r]) > 1)

    @property
    def slow(self) -> tuple[int, ...]:
        least = 1 if self.stage == "computing" else 2
        slow = (rank for rank, score in self.of.items() if score < self.limit)
        return tuple(rank for rank in slow if len(self.partners[rank]) >= least)

    @property
    def slow_pairs(self) -> tuple[Pair, ...]:
        """Slow pairs of which neither end is slow."""
        slow = {*self.slow}
        return tuple(p for p, r in self.pairs.items() if r < self.limit and slow.isdisjoint(p))

    @property
    def limit_again(self) -> float:
        """The limit, at the speed of the sound ranks in the second series."""
        slow = {*self.slow, *(rank for pair in self.slow_pairs for rank in pair)}
        now = [median(rates) for rank, rates in self.again.items() if rank not in slow]
        return self.limit * min(1.0, median(now) / self.middle) if now and self.limit else 0.0


def scores_of(results: Iterable[Result], stage: Stage, ranks: Collection[int]) -> Scores:
    """Compare ranks by what they measured in a stage.

    >>> rates = {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.5, (0, 3): 1.0, (1, 3): 1.0, (2, 3): 0.5}
    >>> asked = Round(number=0, stage="between", groups=tuple(rates))
    >>> found = scores_of([Result(round=asked, rates=rates)], "between", range(4))
    >>> found.slow, found.middle
    ((2,), 1.0)
    """
    first: dict[int, list[float]] = defaultdict(list)
    again: dict[int, list[float]] = defaultdict(list)
    met: dict[int, set[Group]] = defaultdict(set)
    pairs, times = dict[Pair, float](), Counter[Pair]()
    for result in results:
        for group, rate in result.rates.items() if result.round.stage == stage else ():
            if not all(rank in ranks for rank in group):
                continue
            for rank in group:
                (again if result.round.again else first)[rank].append(rate)
                met[rank].add(group)
            if len(group) == 2:
                pairs[group] = max(rate, pairs.get(group, 0.0))
                times[group] += result.round.again
    of = {rank: (upper if stage == "computing" else middle)(first[rank]) for rank in sorted(first)}
    return Scores(
        stage=stage, of=of, middle=median(of.values()) if of else 0.0, limit=_limit([*of.values()]),
        again=again, pairs=pairs, times_again=times, partners=met,
    )  # fmt: skip


def middle(rates: Sequence[float]) -> float:
    return sorted(rates)[len(rates) // 2]


def upper(rates: Sequence[float]) -> float:
    return sorted(rates)[len(rates) * 3 // 4]


def _limit(scores: Sequence[float]) -> float:
    if len(scores) < LEAST_COMPARED:
        return 0.0
    if len(scores) < FEW:
        return median(scores) * (1 - LOSS_AMONG_FEW)
    return least_healthy(scores, LOSS)


# --- who is named ---------------------------------------------------------------------------------


class Named(Frozen):
    """One thing that is wrong, or a note."""

    fault: Fault
    ranks: tuple[int, ...]
    stage: Stage = "computing"
    rate: float | None = None
    middle: float | None = None
    """The median of the others, in the same unit."""


def named_in(scores: Scores) -> Iterator[Named]:
    """Who is named in one stage."""
    if scores.of and not scores.middle:
        yield Named(fault="unmeasured", ranks=tuple(scores.of), stage=scores.stage)
        return
    level, told = scores.limit_again, {r: scores.again[r] for r in scores.slow if r in scores.again}
    slow = [rank for rank, rates in told.items() if upper(rates) < level]
    for rank in slow:
        yield _named(scores, (rank,), max(scores.of[rank], upper(told[rank])))
    some = tuple(r for r, rates in told.items() if r not in slow and median(rates) < level)
    if scores.stage != "computing" and some:
        yield _uneven(scores, some)
    paths = [
        pair
        for pair in scores.slow_pairs
        if scores.times_again[pair] >= PATH_AGAIN and scores.pairs[pair] < level
    ]
    if len(paths) > max(FEW_PATHS, SHARE_OF_PATHS * len(scores.pairs)):
        yield _uneven(scores, tuple(sorted({rank for pair in paths for rank in pair})))
        return
    for pair in paths:
        yield _named(scores, pair, scores.pairs[pair])


def _named(scores: Scores, ranks: Group, rate: float) -> Named:
    fault: Fault = "slow-compute"
    if scores.stage != "computing":
        link: Fault = "slow-link" if rate else "broken-link"
        path: Fault = "slow-path" if rate else "broken-path"
        fault = link if len(ranks) == 1 else path
    return Named(fault=fault, ranks=ranks, stage=scores.stage, rate=rate, middle=scores.middle)


def _uneven(scores: Scores, ranks: Group) -> Named:
    rate = median(scores.of[rank] for rank in ranks)
    return Named(fault="uneven", ranks=ranks, stage=scores.stage, rate=rate, middle=scores.middle)
