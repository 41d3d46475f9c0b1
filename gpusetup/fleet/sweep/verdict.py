"""Who is named, and for what: only what a second measurement showed again. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Literal

from gpusetup.fleet.sweep.decide import (
    BOTH,
    PATH_AGAIN,
    Seen,
    again_counts,
    is_slow,
    slow_paths,
)
from gpusetup.fleet.sweep.judge import pair_rates, shared_rounds
from gpusetup.fleet.sweep.values import Result, Stage, Unit
from gpusetup.model.frozen import Frozen

Fault = Literal[
    "absent",
    "hung",
    "slow-compute",
    "broken-link",
    "slow-link",
    "broken-path",
    "slow-path",
    "apart",
    "uneven",
    "unmeasured",
]
NOTES = ("apart", "uneven")
"""What may be how the network is built: it is said, and nobody is blamed."""
FEW_PATHS, SHARE_OF_PATHS = 3, 0.05
"""More slow pairs than these are no single paths: the network is uneven."""
LINKS, PATHS = ("slow-link", "broken-link"), ("slow-path", "broken-path")
EXPLAINED = 0.1
"""A rank that computes slowly may exchange slowly by as much, and so much more."""


class Named(Frozen):
    """One thing that is wrong."""

    fault: Fault
    ranks: tuple[int, ...]
    stage: Stage = ""
    rate: float | None = None
    """bytes/s of a link; runs per second of the computation."""
    middle: float | None = None
    """The median of the others, in the same unit."""
    detail: str = ""

    @property
    def share(self) -> float | None:
        return self.rate / self.middle if self.rate is not None and self.middle else None


def verdict(
    units: Sequence[Unit],
    results: Sequence[Result],
    absent: Collection[int] = (),
) -> tuple[Named, ...]:
    """Everything that is named, the gravest first."""
    seen = Seen(units, results)
    found = [Named(fault="absent", ranks=(rank,)) for rank in sorted(absent)]
    found += [Named(fault="hung", ranks=(rank,)) for rank in sorted(seen.silent)]
    slow = list(_computing(seen))
    found += slow
    links = [one for plane in seen.planes for one in Links(seen, plane.stage).named()]
    ends = {one.ranks[0] for one in links if one.fault in LINKS}
    links = [one for one in links if one.fault not in PATHS or ends.isdisjoint(one.ranks)]
    return (*found, *(one for one in links if not _explained(one, slow)))


def _explained(link: Named, slow: Sequence[Named]) -> bool:
    """Whether a slow link is no slower than its rank computes."""
    if link.fault != "slow-link":
        return False
    share = link.share or 0.0
    return any(link.ranks == one.ranks and share + EXPLAINED >= (one.share or 0) for one in slow)


def _computing(seen: Seen) -> Iterator[Named]:
    """Who is slow over all rounds, and over those of the confirmation."""
    again = [result for result in seen.results if result.round.kind == "again"]
    for scores in seen.computing():
        shares: dict[int, list[float]] = defaultdict(list)
        for _, of_round in shared_rounds(again, scores.of):
            for rank, share in of_round.items():
                shares[rank].append(share)
        for rank in scores.slow:
            told = rank in shares and rank not in seen.silent
            if told and median(shares[rank]) < scores.sees:
                yield Named(
                    fault="slow-compute", ranks=(rank,), rate=scores.of[rank], middle=scores.middle
                )


# --- links and paths -----------------------------------------------------------------------------


class Links:
    """The exchanges of one stage, and what the confirmation made of them."""

    def __init__(self, seen: Seen, stage: Stage) -> None:
        self.seen, self.stage = seen, stage
        self.first, self.every = seen.scores(stage), seen.scores(stage, BOTH)
        self.again = pair_rates(seen.results, stage, ("again",))
        self.suspects = [rank for rank in seen.suspects(stage) if rank not in seen.silent]
        sound = {pair for pair in self.again if not set(pair) & set(self.suspects)}
        sound -= set(slow_paths(self.first, self.suspects))
        now = median(self.again[pair] for pair in sound) if sound else self.first.middle
        self.level = self.first.sees * min(now, self.first.middle)
        """The limit, at the speed that sound pairs had during the confirmation."""

    def named(self) -> Iterator[Named]:
        if self.first.of and not self.first.middle:
            said = (e.problem for r in self.seen.results for e in r.exchanged if e.problem)
            ranks = tuple(self.first.of)
            yield Named(fault="unmeasured", ranks=ranks, stage=self.stage, detail=next(said, ""))
            return
        apart = tuple(rank for rank in self.suspects if self._is_apart(rank))
        for rank in self.suspects:
            told = self._with(rank, sound=True) or self._with(rank, sound=False)
            if rank not in apart and told and (max(told) < self.level or not any(told)):
                rate = self.every.of[rank]
                yield self._named("slow-link" if rate else "broken-link", (rank,), rate)
        if apart:
            yield self._named("apart", apart, median(self.every.of[rank] for rank in apart))
        yield from self._paths()

    def _named(self, fault: Fault, ranks: tuple[int, ...], rate: float) -> Named:
        return Named(
            fault=fault, ranks=ranks, stage=self.stage, rate=rate, middle=self.every.middle
        )

    def _with(self, rank: int, *, sound: bool) -> list[float]:
        """What a rank did in the confirmation with partners that are sound, or suspected too."""
        pairs = [pair for pair in self.again if rank in pair]
        return [
            self.again[pair] for pair in pairs
            if (pair[pair[0] == rank] not in self.suspects) == sound
        ]  # fmt: skip

    def _is_apart(self, rank: int) -> bool:
        """Fast among the suspects: what is slow lies between them and the others."""
        inside, outside = self._with(rank, sound=False), self._with(rank, sound=True)
        far = bool(outside) and median(outside) < self.level
        return far and max(inside, default=0.0) >= self.level > 0

    def _paths(self) -> Iterator[Named]:
        rates, counts = self.every.pairs, again_counts(self.seen.results, self.stage)
        found = [
            pair
            for pair in slow_paths(self.first, (*self.seen.suspects(self.stage), *self.seen.silent))
            if counts[pair] >= PATH_AGAIN and is_slow(rates[pair], self.level)
        ]
        if len(found) > max(FEW_PATHS, SHARE_OF_PATHS * len(self.first.pairs)):
            ranks = tuple(sorted({rank for pair in found for rank in pair}))
            yield self._named("uneven", ranks, median(self.first.pairs[pair] for pair in found))
            return
        for pair in found:
            yield self._named("slow-path" if rates[pair] else "broken-path", pair, rates[pair])
