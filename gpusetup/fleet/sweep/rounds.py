"""Plans a sweep: which ranks exchange data in which round. Pure functions.

Each rank exchanges with O(log n) partners, first within its host, then with the ranks at the same
position on other hosts. A slow rank gets other partners in a second series of rounds. If it is slow
in both, it is reported (`scores.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from gpusetup.fleet.sweep.scores import (
    NamedFault,
    Pair,
    Ranks,
    Round,
    RoundResult,
    Scores,
    Stage,
    Unit,
    faults_in,
    scores_of,
)
from gpusetup.model.frozen import Frozen

LEAST_TURNS = 12
"""The least number of rounds; if there are few ranks, they get the same partners several times."""
MORE_TURNS = 4
"""How many matchings are measured in addition to the logarithm of the number of ranks."""
SECOND_TURNS = 4
"""The number of rounds in the second series, in which a slow rank gets other partners."""


class Plane(Frozen):
    """Groups of ranks that are connected in the same way: the ranks on each host, or one rank from
    each host."""

    stage: Stage
    members: tuple[Ranks, ...]

    @property
    def turn_count(self) -> int:
        """The number of rounds in which the ranks exchange data, each time with another partner if
        possible."""
        sizes = [len(group) for group in self.members]
        # All groups measure at the same time, so the largest group determines the number of rounds.
        turns_of_largest = turn_count(max(sizes))
        return max(LEAST_TURNS, turns_of_largest)


def planes(units: Iterable[Unit]) -> tuple[Plane, ...]:
    """The groups of ranks to measure: first the ranks within each host, then the ranks at the same
    position on different hosts.

    >>> four = [Unit(rank=r, host="ab"[r // 2], local=r % 2) for r in range(4)]
    >>> [(each.stage, each.members) for each in planes(four)]
    [('within', ((0, 1), (2, 3))), ('between', ((0, 2), (1, 3)))]
    """
    by_host: dict[object, list[int]] = defaultdict(list)
    by_place: dict[object, list[int]] = defaultdict(list)
    for unit in units:
        by_host[unit.host].append(unit.rank)
        by_place[unit.local].append(unit.rank)
    stages: dict[Stage, dict[object, list[int]]] = {"within": by_host, "between": by_place}
    planes_of_stages = []
    for stage, groups in stages.items():
        # Leave out groups of a single rank, which has no partner.
        members = [tuple(group) for group in groups.values() if len(group) > 1]
        if members:
            plane = Plane(stage=stage, members=tuple(members))
            planes_of_stages.append(plane)
    return tuple(planes_of_stages)


def turn_count(count: int) -> int:
    """The number of matchings to measure for this many ranks, which grows with the logarithm of
    their number.

    >>> turn_count(8), turn_count(64), turn_count(10_000)
    (7, 10, 18)
    """
    # If the number of ranks is even, all of them exchange in each turn. If the number is odd, one
    # rank rests in each turn, so covering all pairs takes one turn more.
    is_odd = count % 2 == 1
    turns_for_all_pairs = count if is_odd else count - 1
    logarithm = (count - 1).bit_length()
    enough_turns = logarithm + MORE_TURNS
    return min(turns_for_all_pairs, enough_turns)


def matching(members: Ranks, turn: int) -> tuple[Pair, ...]:
    """The pairs of one turn, in which each rank occurs at most once. No pair repeats over the turns
    (circle method).

    >>> matching((0, 1, 2, 3), 0), matching((5, 6, 7), 1)
    (((0, 3), (1, 2)), ((5, 7),))
    """
    count = turn_count(len(members))
    # With an odd number of ranks, the rank that is paired with None rests.
    places: list[int | None] = [*members]
    if len(members) % 2:
        places.append(None)
    # The last rank keeps its place, and the others form a ring that rotates; pairs are opposite
    # each other.
    ring = len(places) - 1
    # If not all turns are measured, distribute them evenly over the ring.
    first = turn % count * ring // count
    meetings = [(places[ring], places[first])]
    half_ring = ring // 2
    for step in range(1, half_ring + 1):
        ahead = (first + step) % ring
        behind = (first - step) % ring
        meetings.append((places[ahead], places[behind]))
    pairs = []
    for rank, partner in meetings:
        if rank is not None and partner is not None:
            pairs.append(pair_of(rank, partner))
    return tuple(pairs)


def pair_of(rank: int, partner: int) -> Pair:
    """Two ranks as a pair with the smaller one first, so that equal pairs compare equal."""
    low = min(rank, partner)
    high = max(rank, partner)
    return low, high


def _pairs_in(plane: Plane, turn: int) -> Iterator[Pair]:
    """The pairs of one turn, from all groups of a plane."""
    for ranks in plane.members:
        yield from matching(ranks, turn)


class Sweep:
    """The rounds of a sweep. Each round is planned only when it is needed, from the results so
    far."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.planes = planes(units)
        # The caller appends each round's result.
        self.results: list[RoundResult] = []

    def rounds(self) -> Iterator[Round]:
        """Yields the rounds in order. The caller must append each result to `results` before it
        requests the next round."""
        for plane in self.planes:
            for turn in range(plane.turn_count):
                # Leave out dead ranks, because each would use up a round's whole time limit.
                dead = self.scores(plane.stage).dead
                excluded = {*self.silent, *dead}
                all_pairs = _pairs_in(plane, turn)
                pairs = [pair for pair in all_pairs if excluded.isdisjoint(pair)]
                yield from self._round(plane.stage, pairs)
        for plane in self.planes:
            scores = self.scores(plane.stage)
            has_suspects = bool(scores.slow or scores.broken or self.silent)
            if not has_suspects:
                continue
            for turn in range(SECOND_TURNS):
                meetings = self._meetings(plane, scores, turn)
                yield from self._round(plane.stage, meetings, again=True)

    def _round(self, stage: Stage, pairs: Iterable[Pair], again: bool = False) -> Iterator[Round]:
        """Yields one round with these pairs; nothing if there are no pairs."""
        number = len(self.results)
        all_pairs = tuple(pairs)
        # If all ranks of this plane are dead or silent, there are no pairs.
        if all_pairs:
            yield Round(number=number, stage=stage, again=again, pairs=all_pairs)

    @property
    def silent(self) -> set[int]:
        """The ranks that did not respond in the last round in which they took part."""
        silent: set[int] = set()
        for result in self.results:
            asked = set(result.round.asked)
            # A rank that responds again is no longer silent.
            silent -= asked
            silent |= set(result.silent)
        return silent

    def scores(self, stage: Stage) -> Scores:
        """The scores of the ranks in one stage, from the measurements so far."""
        ranks = {unit.rank for unit in self.units}
        # Leave out silent ranks, which say nothing about their partners' speed.
        talking = ranks - self.silent
        return scores_of(self.results, stage, talking)

    def faults(self) -> tuple[NamedFault, ...]:
        """All faults that the sweep found: hung ranks first, then the faults of each stage."""
        hung = [NamedFault(fault="hung", ranks=(rank,)) for rank in sorted(self.silent)]
        faults: list[NamedFault] = []
        for plane in self.planes:
            scores = self.scores(plane.stage)
            faults += faults_in(scores)
        bad_ranks = {fault.ranks[0] for fault in faults if len(fault.ranks) == 1}
        independent_faults = []
        for fault in faults:
            is_path = len(fault.ranks) == 2
            # If a rank is faulty, that already explains why its path is bad.
            is_explained = is_path and not bad_ranks.isdisjoint(fault.ranks)
            if not is_explained:
                independent_faults.append(fault)
        return (*hung, *independent_faults)

    def _meetings(self, plane: Plane, scores: Scores, turn: int) -> Iterator[Pair]:
        """The pairs for a repeated round: suspects with healthy ranks, and all others among
        themselves. The first turn also repeats broken pairs and tries silent ranks again."""
        silent = self.silent
        is_first_turn = turn == 0
        # The first turn tries the silent ranks once more.
        busy: set[int] = set() if is_first_turn else set(silent)
        broken_pairs = scores.broken if is_first_turn else ()
        for pair in broken_pairs:
            if busy.isdisjoint(pair):
                busy.update(pair)
                yield pair
        suspects = {*scores.slow, *silent}
        for members in plane.members:
            free_ranks = [rank for rank in members if rank not in busy]
            yield from partners(free_ranks, suspects, turn)


def partners(ranks: Sequence[int], suspects: Collection[int], turn: int) -> Iterator[Pair]:
    """Pairs each suspect with a rank from the other half, because neighbours may share a switch. In
    turn 1, suspects are paired with each other. The other ranks form pairs too.

    >>> list(partners((0, 1, 2, 3, 4, 5), {0, 1}, 0)), list(partners((0, 1, 2, 3), {0, 1}, 1))
    ([(0, 5), (1, 2), (3, 4)], [(0, 1), (2, 3)])
    """
    suspected = [rank for rank in ranks if rank in suspects]
    sound = [rank for rank in ranks if rank not in suspects]
    if turn == 1:
        first_ones = suspected[::2]
        second_ones = suspected[1::2]
        pairs = [*zip(first_ones, second_ones, strict=False)]
    else:
        first_place = ranks.index(suspected[0]) if suspected else 0
        other_half = first_place + len(ranks) // 2
        # Each turn uses another partner.
        start = other_half + turn * (len(suspected) + 1)
        shift = start % len(sound) if sound else 0
        far_first = [*sound[shift:], *sound[:shift]]
        pairs = [*zip(suspected, far_first, strict=False)]
    paired: set[int] = set()
    for pair in pairs:
        paired.update(pair)
    # The other ranks exchange data too, so that the network load stays the same as in the first
    # series.
    unpaired = [rank for rank in ranks if rank not in paired]
    half = len(unpaired) // 2
    pairs += zip(unpaired[:half], unpaired[half:], strict=False)
    for rank, partner in pairs:
        yield pair_of(rank, partner)
