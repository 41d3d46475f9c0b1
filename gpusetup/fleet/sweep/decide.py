"""Which groups to measure next, given what was measured: the whole course of a sweep. Pure.

Matchings of pairs, O(log n) of them, with short computations between; the same again where the
measurements scatter too much to see a loss of two fifths, or are few; then a confirmation in which
whoever is suspected meets other partners.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from gpusetup.fleet.rates import LEAST_VALUES
from gpusetup.fleet.sweep.judge import (
    LOSS,
    Pair,
    Scores,
    compute_scores,
    link_scores,
    pair_rates,
)
from gpusetup.fleet.sweep.plan import Group, Planes, planes
from gpusetup.fleet.sweep.values import Kind, Result, Round, Stage, Unit
from gpusetup.model.frozen import replace

COMPUTES = 5
"""How often each rank computes on its own."""
MOST_PASSES = 3
SEES_AT_LEAST = 0.6
"""A pass that would not see a link at this share of the median is made once more."""
AGAIN = 4
"""How often what is suspected is measured once more."""
COMPUTES_AGAIN = 8
"""The same for computing: its middle holds where three of these were disturbed."""
PATH_AGAIN = 8
"""The same for a pair: of a path there is one measurement a round, of a rank's partners many."""
MOST_AGAIN = 10
"""Rounds for that, where suspected pairs share a rank and must wait for each other."""
GIVEN_UP_AFTER = 2
"""Exchanges with different partners that failed; each costs the whole limit."""


class Seen:
    """What the results of a sweep say so far."""

    def __init__(self, units: Sequence[Unit], results: Sequence[Result]) -> None:
        self.units, self.results = units, results
        self.planes = planes(units)
        self.ranks = tuple(unit.rank for unit in units)
        self.done = {(r.round.kind, r.round.stage, r.round.turn) for r in results}
        self.silent = _silent(results)
        self.back = {rank for r in results for rank in r.silent} - self.silent
        """Who was silent once, and answers again."""
        self._scores: dict[tuple[Stage, tuple[str, ...]], Scores] = {}
        self._computing: tuple[Scores, ...] | None = None

    def scores(self, stage: Stage, kinds: tuple[str, ...] = ("pairs",)) -> Scores:
        if (stage, kinds) not in self._scores:
            found = link_scores(pair_rates(self.results, stage, kinds))
            self._scores[stage, kinds] = found
        return self._scores[stage, kinds]

    def computing(self) -> tuple[Scores, ...]:
        """The scores of each model of device."""
        if self._computing is None:
            self._computing = self._compared()
        return self._computing

    def _compared(self) -> tuple[Scores, ...]:
        alike: dict[str, list[int]] = defaultdict(list)
        for unit in self.units:
            alike[unit.device].append(unit.rank)
        found = (compute_scores(self.results, ranks) for ranks in alike.values())
        return tuple(found)

    def slow_computing(self) -> tuple[int, ...]:
        return tuple(rank for scores in self.computing() for rank in scores.slow)

    def given_up(self, stage: Stage) -> set[int]:
        """Ranks whose exchanges with several partners failed, and none succeeded."""
        failed, good = defaultdict[int, int](int), set[int]()
        for pair, rate in pair_rates(self.results, stage, ("pairs",)).items():
            for rank in pair:
                failed[rank] += not rate
            good.update(pair if rate else ())
        return {r for r, n in failed.items() if n >= GIVEN_UP_AFTER and r not in good}

    def suspects(self, stage: Stage) -> tuple[int, ...]:
        """Ranks to confirm: slow, without any exchange, or silent for a while."""
        scores = self.scores(stage)
        alone = scores.once if scores.middle else scores.of
        dead = (rank for rank, score in scores.of.items() if not score and rank not in alone)
        return tuple(dict.fromkeys((*scores.slow, *dead, *sorted(self.back))))

    def open_paths(self, stage: Stage) -> tuple[Pair, ...]:
        """Slow pairs of sound ranks that are still to be confirmed."""
        scores = self.scores(stage)
        counts, best = again_counts(self.results, stage), self.scores(stage, BOTH).pairs
        found = slow_paths(scores, self.suspects(stage))
        return tuple(p for p in found if counts[p] < PATH_AGAIN and is_slow(best[p], scores.limit))


BOTH = ("pairs", "again")


def is_slow(rate: float, limit: float) -> bool:
    return rate < limit or not rate


def again_counts(results: Iterable[Result], stage: Stage) -> Counter[Pair]:
    """How often each pair was measured in the confirmation."""
    counts: Counter[Pair] = Counter()
    for result in results:
        if result.round.kind == "again" and result.round.stage == stage:
            groups = (e.group for e in result.exchanged if len(e.group) == 2)
            counts.update((min(group), max(group)) for group in groups)
    return counts


def slow_paths(scores: Scores, suspects: Collection[int]) -> tuple[Pair, ...]:
    """Slow or failing pairs of which neither end is suspected."""
    failed = (p for p, rate in scores.pairs.items() if not rate and scores.middle)
    every, bad = dict.fromkeys((*scores.paths, *failed)), set(suspects)
    return tuple(pair for pair in every if bad.isdisjoint(pair))


def _silent(results: Iterable[Result]) -> set[int]:
    """Who was silent when last asked."""
    silent: set[int] = set()
    for result in results:
        silent -= set(result.round.asked)
        silent |= set(result.silent)
    return silent


def next_round(units: Sequence[Unit], results: Sequence[Result]) -> Round | None:
    """What is to be measured next; None where all is known."""
    seen = Seen(units, results)
    for wanted in (_regular, _confirming):
        for kind, stage, turn, made in wanted(seen):
            if (kind, stage, turn) not in seen.done:
                found: Round = made()
                if found.asked:
                    return replace(found, number=len(results), kind=kind, stage=stage, turn=turn)
    return None


Wanted = tuple[Kind, Stage, int, Callable[[], Round]]
"""What a round is called, and how it is made once it is its turn."""


def _of(ranks: Iterable[int] = (), groups: Iterable[Group] = ()) -> Round:
    return Round(number=0, kind="pairs", ranks=tuple(ranks), groups=tuple(groups))


# --- matchings, with computations between --------------------------------------------------------


def _regular(seen: Seen) -> Iterator[Wanted]:
    computes = 0
    for plane in seen.planes:
        for turn in range(plane.turns * _passes(seen, plane)):
            if computes < COMPUTES:
                yield "compute", "", computes, partial(_of_those_there, seen)
                computes += 1
            yield "pairs", plane.stage, turn, partial(_matched, seen, plane, turn)
    for turn in range(computes, COMPUTES * _compute_passes(seen)):
        yield "compute", "", turn, partial(_of_those_there, seen)


def _of_those_there(seen: Seen) -> Round:
    return _of(ranks=(rank for rank in seen.ranks if rank not in seen.silent))


def _matched(seen: Seen, plane: Planes, turn: int) -> Round:
    out = seen.silent | seen.back | seen.given_up(plane.stage)
    pairs = plane.matched(turn % plane.turns)
    return _of(groups=(pair for pair in pairs if out.isdisjoint(pair)))


def _passes(seen: Seen, plane: Planes) -> int:
    """How often all matchings of a stage are to be measured, as far as is known."""
    done = sum(kind == "pairs" and stage == plane.stage for kind, stage, _ in seen.done)
    whole, rest = divmod(done, plane.turns)
    return _more(whole, bool(rest), seen.scores(plane.stage) if whole and not rest else None)


def _compute_passes(seen: Seen) -> int:
    whole, rest = divmod(sum(kind == "compute" for kind, _, _ in seen.done), COMPUTES)
    least = min(seen.computing(), key=lambda one: one.sees or 1.0) if whole and not rest else None
    undecided = any(_undecided(scores) for scores in seen.computing())
    return _more(whole, bool(rest), least, undecided)


def _undecided(scores: Scores) -> bool:
    """Whether a rank is slow enough to be named, and its scatter leaves open whether it is."""
    slow = (rank for rank, each in scores.of.items() if each < scores.middle * (1 - LOSS))
    return any(rank not in scores.slow for rank in slow)


def _more(whole: int, rest: bool, scores: Scores | None, undecided: bool = False) -> int:
    if not whole or rest:
        return whole + 1
    assert scores is not None
    few = len(scores.of) < LEAST_VALUES
    blind = bool(scores.middle) and (few or undecided or scores.sees < SEES_AT_LEAST)
    return whole + 1 if blind and len(scores.of) > 2 and whole < MOST_PASSES else whole


# --- confirmation --------------------------------------------------------------------------------


def _confirming(seen: Seen) -> Iterator[Wanted]:
    if seen.silent or seen.slow_computing() or ("again", "", 0) in seen.done:
        yield "again", "", 0, lambda: _of(ranks=seen.ranks)
        for turn in range(1, COMPUTES_AGAIN):
            yield "again", "", turn, partial(_of_those_there, seen)
    for plane in seen.planes:
        suspects = bool(seen.suspects(plane.stage))
        done = sum((kind, stage) == ("again", plane.stage) for kind, stage, _ in seen.done)
        paths = suspects or bool(seen.open_paths(plane.stage))
        for turn in range(max(done, AGAIN * suspects, min(MOST_AGAIN, (done + 1) * paths))):
            yield "again", plane.stage, turn, partial(_meetings, seen, plane, turn)


def _meetings(seen: Seen, plane: Planes, turn: int) -> Round:
    """Suspected paths as they are; suspects with sound partners, in the second turn with each
    other; all others among themselves, to compare with."""
    suspects, paths = set(seen.suspects(plane.stage)), seen.open_paths(plane.stage)
    taken, groups = set(seen.silent), list[Group]()
    for pair in paths:
        if taken.isdisjoint(pair):
            taken.update(pair)
            groups.append(pair)
    for members in plane.members:
        left = [rank for rank in members if rank not in taken]
        groups += _partners(left, suspects, turn)
    return _of(groups=groups)


def _partners(ranks: Sequence[int], suspects: Collection[int], turn: int) -> Iterator[Group]:
    """Partners from the other half of the members: neighbours may share a switch."""
    bad = [rank for rank in ranks if rank in suspects]
    sound = [rank for rank in ranks if rank not in suspects]
    if turn == 1 and len(bad) > 1:
        yield from zip(bad[::2], bad[1::2], strict=False)
        bad = bad[-1:] if len(bad) % 2 else []
    if bad and sound:
        shift = (ranks.index(bad[0]) + len(ranks) // 2 + turn * (len(bad) + 1)) % len(sound)
        sound = [*sound[shift:], *sound[:shift]]
    yield from zip(bad, sound, strict=False)
    rest = [*bad[len(sound) :], *sound[len(bad) :]]
    yield from zip(rest[: len(rest) // 2], rest[len(rest) // 2 :], strict=False)
