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
from gpusetup.fleet.sweep.judge import Pair, Scores, pair_rates, shared_rounds
from gpusetup.fleet.sweep.plan import Planes
from gpusetup.fleet.sweep.values import Options, Result, Stage, Unit
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
    options: Options | None = None,
    absent: Collection[int] = (),
) -> tuple[Named, ...]:
    """Everything that is named, the gravest first."""
    seen = Seen(units, results, options or Options())
    found = [Named(fault="absent", ranks=(rank,)) for rank in sorted(absent)]
    found += [Named(fault="hung", ranks=(rank,)) for rank in sorted(seen.silent)]
    slow = list(_computing(seen))
    found += slow
    links = [one for plane in seen.planes for one in _links(seen, plane)]
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


def _links(seen: Seen, plane: Planes) -> Iterator[Named]:
    stage = plane.stage
    first = seen.scores(stage)
    every = seen.scores(stage, BOTH)
    again = pair_rates(seen.results, stage, ("again",))
    if first.of and not first.middle:
        detail = next((e.problem for r in seen.results for e in r.exchanged if e.problem), "")
        yield Named(fault="unmeasured", ranks=tuple(first.of), stage=stage, detail=detail)
        return
    suspects = [rank for rank in seen.suspects(stage) if rank not in seen.silent]
    sound = {pair for pair in again if not set(pair) & set(suspects)}
    sound -= set(slow_paths(first, suspects))
    level = _level(first, [again[pair] for pair in sound])
    apart = _apart(suspects, again, level)
    for rank in suspects:
        if rank not in apart:
            yield from _link(rank, suspects, again, level, every, stage)
    if apart:
        rate = median(every.of[rank] for rank in apart)
        yield Named(fault="apart", ranks=apart, stage=stage, rate=rate, middle=every.middle)
    yield from _paths(seen, stage, again, level, every)


def _level(first: Scores, sound: Sequence[float]) -> float:
    """The limit, at the speed that sound pairs had during the confirmation."""
    now = median(sound) if sound else first.middle
    return first.sees * min(now, first.middle)


def _with_others(
    rank: int, suspects: Collection[int], again: dict[Pair, float], *, sound: bool
) -> list[float]:
    """What a rank did in the confirmation with partners that are sound, or suspected too."""
    found = []
    for pair, rate in again.items():
        if rank in pair:
            other = pair[0] if pair[1] == rank else pair[1]
            found += [rate] if (other not in suspects) == sound else []
    return found


def _apart(suspects: Sequence[int], again: dict[Pair, float], level: float) -> tuple[int, ...]:
    """Suspects that are fast among themselves: what is slow lies between them and the others."""
    found = []
    for rank in suspects:
        inside = _with_others(rank, suspects, again, sound=False)
        outside = _with_others(rank, suspects, again, sound=True)
        if outside and median(outside) < level and max(inside, default=0.0) >= level > 0:
            found.append(rank)
    return tuple(found)


def _link(
    rank: int,
    suspects: Sequence[int],
    again: dict[Pair, float],
    level: float,
    every: Scores,
    stage: Stage,
) -> Iterator[Named]:
    told = _with_others(rank, suspects, again, sound=True)
    told = told or _with_others(rank, suspects, again, sound=False)
    if told and (max(told) < level or not any(told)):
        rate = every.of[rank]
        fault: Fault = "slow-link" if rate else "broken-link"
        yield Named(fault=fault, ranks=(rank,), stage=stage, rate=rate, middle=every.middle)


def _paths(
    seen: Seen, stage: Stage, again: dict[Pair, float], level: float, every: Scores
) -> Iterator[Named]:
    first, counts = seen.scores(stage), again_counts(seen.results, stage)
    candidates = slow_paths(first, (*seen.suspects(stage), *seen.silent))
    found = [p for p in candidates if counts[p] >= PATH_AGAIN and is_slow(every.pairs[p], level)]
    if len(found) > max(FEW_PATHS, SHARE_OF_PATHS * len(first.pairs)):
        ranks = tuple(sorted({rank for pair in found for rank in pair}))
        rate = median(first.pairs[pair] for pair in found)
        yield Named(fault="uneven", ranks=ranks, stage=stage, rate=rate, middle=first.middle)
        return
    for pair in found:
        rate = every.pairs[pair]
        fault: Fault = "slow-path" if rate else "broken-path"
        yield Named(fault=fault, ranks=pair, stage=stage, rate=rate, middle=every.middle)
