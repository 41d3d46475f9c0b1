"""The course of a sweep: who exchanges with whom in which round. Pure.

Each rank exchanges with O(log n) partners, first within its host, then with ranks of the same place
on other hosts. Whoever was slow meets other partners in a second series of rounds: what is slow in
both is named (`scores.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from gpusetup.fleet.sweep.scores import (
    NamedFault,
    Pair,
    Ranks,
    Result,
    Round,
    Scores,
    Stage,
    Unit,
    faults_in,
    scores_of,
)
from gpusetup.model.frozen import Frozen

LEAST_TURNS = 12
"""Rounds of exchanges at least: few ranks meet the same partners several times."""
MORE_TURNS = 4
"""Matchings in addition to the logarithm of the number of ranks."""
SECOND_TURNS = 4
"""How often a slow rank meets other partners."""


class Plane(Frozen):
    """Ranks that are alike in their way to each other: those of each host, or one of each host."""

    stage: Stage
    members: tuple[Ranks, ...]

    @property
    def turn_count(self) -> int:
        return max(LEAST_TURNS, *(turn_count(len(group)) for group in self.members))


def planes(units: Iterable[Unit]) -> tuple[Plane, ...]:
    """Within the hosts, then between them by ranks of the same place.

    >>> four = [Unit(rank=r, host="ab"[r // 2], local=r % 2) for r in range(4)]
    >>> [(each.stage, each.members) for each in planes(four)]
    [('within', ((0, 1), (2, 3))), ('between', ((0, 2), (1, 3)))]
    """
    stages: dict[Stage, dict[object, list[int]]] = {
        "within": defaultdict(list), "between": defaultdict(list)
    }  # fmt: skip
    for unit in units:
        stages["within"][unit.host].append(unit.rank)
        stages["between"][unit.local].append(unit.rank)
    found = (
        Plane(stage=stage, members=tuple(tuple(group) for group in groups.values() if group[1:]))
        for stage, groups in stages.items()
    )
    return tuple(plane for plane in found if plane.members)


def turn_count(count: int) -> int:
    """How many turn_count are measured among so many ranks: O(log n).

    >>> turn_count(8), turn_count(64), turn_count(10_000)
    (7, 10, 18)
    """
    return min(count - 1 + count % 2, (count - 1).bit_length() + MORE_TURNS)


def matching(members: Ranks, turn: int) -> tuple[Pair, ...]:
    """The pairs of one turn, disjoint; over all turns no pair comes twice (the circle method).

    >>> matching((0, 1, 2, 3), 0), matching((5, 6, 7), 1)
    (((0, 3), (1, 2)), ((5, 7),))
    """
    count = turn_count(len(members))
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
        for plane in self.planes:
            for turn in range(plane.turn_count):
                pairs = (pair for ranks in plane.members for pair in matching(ranks, turn))
                excluded = {*self.silent, *self.scores(plane.stage).dead}
                yield from self._round(plane.stage, filter(excluded.isdisjoint, pairs))
        for plane in self.planes:
            scores = self.scores(plane.stage)
            has_suspects = scores.slow or scores.broken or self.silent
            for turn in range(SECOND_TURNS if has_suspects else 0):
                meetings = self._meetings(plane, scores, turn)
                yield from self._round(plane.stage, meetings, again=True)

    def _round(self, stage: Stage, pairs: Iterable[Pair], again: bool = False) -> Iterator[Round]:
        round = Round(number=len(self.results), stage=stage, again=again, pairs=tuple(pairs))
        if round.pairs:
            yield round

    @property
    def silent(self) -> set[int]:
        """Ranks that said nothing when they were asked last."""
        silent: set[int] = set()
        for result in self.results:
            silent -= set(result.round.asked)
            silent |= set(result.silent)
        return silent

    def scores(self, stage: Stage) -> Scores:
        return scores_of(self.results, stage, {unit.rank for unit in self.units} - self.silent)

    def faults(self) -> tuple[NamedFault, ...]:
        """What is wrong, the gravest first."""
        hung = (NamedFault(fault="hung", ranks=(rank,)) for rank in sorted(self.silent))
        faults = [one for plane in self.planes for one in faults_in(self.scores(plane.stage))]
        named_ranks = {one.ranks[0] for one in faults if len(one.ranks) == 1}
        faults = [one for one in faults if len(one.ranks) != 2 or named_ranks.isdisjoint(one.ranks)]
        return (*hung, *faults)

    def _meetings(self, plane: Plane, scores: Scores, turn: int) -> Iterator[Pair]:
        """Slow ranks with others; all the rest among themselves, so that the network carries as
        much as before. In the first turn broken pairs as they are, and the silent once more."""
        silent = self.silent
        taken = set() if turn == 0 else silent
        for pair in scores.broken if turn == 0 else ():
            if taken.isdisjoint(pair):
                taken.update(pair)
                yield pair
        for members in plane.members:
            rest = [rank for rank in members if rank not in taken]
            yield from partners(rest, {*scores.slow, *silent}, turn)


def partners(ranks: Sequence[int], suspects: Collection[int], turn: int) -> Iterator[Pair]:
    """Suspects with others from the other half of the ranks, since neighbours may share a switch;
    in the second turn with each other. The rest among themselves.

    >>> list(partners((0, 1, 2, 3, 4, 5), {0, 1}, 0)), list(partners((0, 1, 2, 3), {0, 1}, 1))
    ([(0, 5), (1, 2), (3, 4)], [(0, 1), (2, 3)])
    """
    suspected = [rank for rank in ranks if rank in suspects]
    sound = [rank for rank in ranks if rank not in suspects]
    far = (ranks.index(suspected[0]) if suspected else 0) + len(ranks) // 2
    shift = (far + turn * (len(suspected) + 1)) % max(1, len(sound))
    others = suspected[1::2] if turn == 1 else [*sound[shift:], *sound[:shift]]
    pairs = [*zip(suspected[::2] if turn == 1 else suspected, others, strict=False)]
    unpaired = [rank for rank in ranks if not any(rank in pair for pair in pairs)]
    half = len(unpaired) // 2
    for one, other in (*pairs, *zip(unpaired[:half], unpaired[half:], strict=False)):
        yield min(one, other), max(one, other)
