"""The course of a sweep: who computes or exchanges with whom in which round. Pure.

Each rank computes alone, and exchanges with O(log n) partners, first within its host, then with
ranks of the same place on other hosts. Whoever was slow meets other partners in a second series of
rounds: what is slow in both is named (`judge.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from gpusetup.fleet.sweep.judge import (
    PATH_AGAIN,
    Group,
    Named,
    Pair,
    Result,
    Round,
    Scores,
    Stage,
    Unit,
    named_in,
    scores_of,
)
from gpusetup.model.frozen import Frozen

COMPUTES = 8
"""How often each rank computes alone; and again, if one is slow."""
LEAST_TURNS = 12
"""Rounds of exchanges at least: few ranks meet the same partners several times."""
MORE_TURNS = 4
"""Matchings in addition to the logarithm of the number of ranks."""
AGAIN = 4
"""How often a slow rank meets other partners."""
MOST_AGAIN = 8
"""Rounds for that, if slow pairs share a rank and must wait for each other."""


class Plane(Frozen):
    """Ranks that are alike in their way to each other: those of each host, or one of each host."""

    stage: Stage
    members: tuple[Group, ...]

    @property
    def turns(self) -> int:
        return max(LEAST_TURNS, *(turns(len(group)) for group in self.members))


def planes(units: Iterable[Unit]) -> tuple[Plane, ...]:
    """Within the hosts, then between them by ranks of the same place.

    >>> four = [Unit(rank=r, host="ab"[r // 2], local=r % 2) for r in range(4)]
    >>> [(each.stage, each.members) for each in planes(four)]
    [('within', ((0, 1), (2, 3))), ('between', ((0, 2), (1, 3)))]
    """
    hosts: dict[object, list[int]] = defaultdict(list)
    rails: dict[object, list[int]] = defaultdict(list)
    for unit in units:
        hosts[unit.host].append(unit.rank)
        rails[unit.local].append(unit.rank)
    within = Plane(stage="within", members=_of_several(hosts.values()))
    between = Plane(stage="between", members=_of_several(rails.values() if len(hosts) > 1 else ()))
    return tuple(one for one in (within, between) if one.members)


def _of_several(groups: Iterable[Sequence[int]]) -> tuple[Group, ...]:
    return tuple(tuple(group) for group in groups if len(group) > 1)


def turns(count: int) -> int:
    """How many matchings are measured among so many ranks: O(log n).

    >>> turns(8), turns(64), turns(10_000)
    (7, 10, 18)
    """
    return min(count - 1 + count % 2, (count - 1).bit_length() + MORE_TURNS)


def matching(members: Group, turn: int) -> tuple[Pair, ...]:
    """The pairs of one turn, disjoint; over all turns no pair comes twice (the circle method).

    >>> matching((0, 1, 2, 3), 0), matching((5, 6, 7), 1)
    (((0, 3), (1, 2)), ((5, 7),))
    """
    count = turns(len(members))
    places = [*members, None] if len(members) % 2 else list(members)
    ring = len(places) - 1
    first = turn % count * ring // count
    ends = [(places[ring], places[first])]
    for step in range(1, ring // 2 + 1):
        ends.append((places[(first + step) % ring], places[(first - step) % ring]))
    return tuple((min(a, b), max(a, b)) for a, b in ends if a is not None and b is not None)


class Sweep:
    """The rounds of a sweep. Each is made when it is asked for, from the results so far."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.planes = planes(units)
        self.results: list[Result] = []

    def rounds(self) -> Iterator[Round]:
        """Every round, in order; the caller appends its result before it asks for the next."""
        computed = 0
        for plane in self.planes:
            for turn in range(plane.turns):
                if computed < COMPUTES:
                    yield from self._round("computing", self._alone())
                    computed += 1
                pairs = (p for group in plane.members for p in matching(group, turn))
                out = {*self.silent, *self.scores(plane.stage).dead}
                yield from self._round(plane.stage, filter(out.isdisjoint, pairs))
        yield from self._again()

    def _again(self) -> Iterator[Round]:
        """What was slow or silent, once more."""
        if self.silent or any(scores.slow for scores in self.computing()):
            yield from self._round("computing", ((unit.rank,) for unit in self.units), again=True)
            for _ in range(1, COMPUTES):
                yield from self._round("computing", self._alone(), again=True)
        for plane in self.planes:
            suspects = self.scores(plane.stage).slow
            for turn in range(MOST_AGAIN):
                paths = self._open_paths(plane.stage)
                if not paths and (turn >= AGAIN or not suspects):
                    break
                meetings = self._meetings(plane, (suspects, paths), turn)
                yield from self._round(plane.stage, meetings, again=True)

    def _round(self, stage: Stage, groups: Iterable[Group], again: bool = False) -> Iterator[Round]:
        found = Round(number=len(self.results), stage=stage, again=again, groups=tuple(groups))
        if found.groups:
            yield found

    def _alone(self) -> Iterator[Group]:
        silent = self.silent
        return ((unit.rank,) for unit in self.units if unit.rank not in silent)

    @property
    def silent(self) -> set[int]:
        """Ranks that said nothing when they were asked last."""
        silent: set[int] = set()
        for result in self.results:
            silent -= set(result.round.asked)
            silent |= set(result.silent)
        return silent

    def computing(self) -> tuple[Scores, ...]:
        """The scores of each model of device."""
        alike: dict[str, set[int]] = defaultdict(set)
        for unit in self.units:
            alike[unit.device].add(unit.rank)
        return tuple(scores_of(self.results, "computing", ranks) for ranks in alike.values())

    def scores(self, stage: Stage) -> Scores:
        return scores_of(self.results, stage, {unit.rank for unit in self.units} - self.silent)

    def named(self) -> tuple[Named, ...]:
        """What is wrong, the gravest first."""
        hung = [Named(fault="hung", ranks=(rank,)) for rank in sorted(self.silent)]
        slow = [one for scores in self.computing() for one in named_in(scores)]
        slow = [one for one in slow if one.ranks[0] not in self.silent]
        links = [one for plane in self.planes for one in named_in(self.scores(plane.stage))]
        ends = {one.ranks[0] for one in links if len(one.ranks) == 1}
        known = {one.ranks for one in slow}
        links = [one for one in links if len(one.ranks) != 2 or ends.isdisjoint(one.ranks)]
        return (*hung, *slow, *(one for one in links if one.ranks not in known))

    def _open_paths(self, stage: Stage) -> list[Pair]:
        """Slow pairs of ranks that are not slow, until they were measured often enough."""
        scores = self.scores(stage)
        rates = {pair: scores.pairs[pair] for pair in scores.slow_pairs}
        again = scores.times_again
        return [p for p, rate in rates.items() if rate < scores.limit and again[p] < PATH_AGAIN]

    def _meetings(
        self, plane: Plane, slow: tuple[Collection[int], Sequence[Pair]], turn: int
    ) -> Iterator[Group]:
        """Slow pairs as they are; slow ranks with others; all the rest among themselves, so that
        the network carries as much as before."""
        suspects, paths = slow
        taken = self.silent
        for pair in paths:
            if taken.isdisjoint(pair):
                taken.update(pair)
                yield pair
        for members in plane.members:
            yield from partners([rank for rank in members if rank not in taken], suspects, turn)


def partners(ranks: Sequence[int], suspects: Collection[int], turn: int) -> Iterator[Pair]:
    """Suspects with others from the other half of the ranks, since neighbours may share a switch;
    in the second turn with each other.

    >>> list(partners((0, 1, 2, 3, 4, 5), {0, 1}, 0))
    [(0, 5), (1, 2), (3, 4)]
    """
    bad = [rank for rank in ranks if rank in suspects]
    sound = [rank for rank in ranks if rank not in suspects]
    if turn == 1 and len(bad) > 1:
        yield from zip(bad[::2], bad[1::2], strict=False)
        bad = bad[-1:] if len(bad) % 2 else []
    if bad and sound:
        shift = (ranks.index(bad[0]) + len(ranks) // 2 + turn * (len(bad) + 1)) % len(sound)
        sound = [*sound[shift:], *sound[:shift]]
    rest = [*bad[len(sound) :], *sound[len(bad) :]]
    half = len(rest) // 2
    for one, other in (
        *zip(bad, sound, strict=False),
        *zip(rest[:half], rest[half:], strict=False),
    ):
        yield min(one, other), max(one, other)
