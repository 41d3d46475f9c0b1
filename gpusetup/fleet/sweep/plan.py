"""Which ranks exchange with which, and in what order: matchings, planes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gpusetup.fleet.sweep.values import Stage, Unit
from gpusetup.model.frozen import Frozen

MORE_TURNS = 4
"""Matchings beside the logarithm of the number of ranks: of few ranks they are every pair."""

Group = tuple[int, ...]


class Planes(Frozen):
    """Ranks that are alike in their way to each other: the hosts' own, or one of each host."""

    stage: Stage
    members: tuple[Group, ...]

    @property
    def turns(self) -> int:
        """How many matchings name every rank."""
        return max((turns(len(group)) for group in self.members), default=0)

    def matched(self, turn: int) -> tuple[Group, ...]:
        """The pairs of one turn in all planes; no rank stands in two."""
        return tuple(pair for group in self.members for pair in matching(group, turn))


def planes(units: Iterable[Unit]) -> tuple[Planes, ...]:
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
    within, between = _of_several(hosts.values()), _of_several(rails.values())
    found = (Planes(stage="within", members=within), Planes(stage="between", members=between))
    return tuple(one for one in found if one.members and (one.stage == "within" or len(hosts) > 1))


def _of_several(groups: Iterable[Sequence[int]]) -> tuple[Group, ...]:
    return tuple(tuple(group) for group in groups if len(group) > 1)


def turns(count: int) -> int:
    """How many matchings are measured among so many ranks: O(log n).

    >>> turns(8), turns(64), turns(10_000)
    (7, 10, 18)
    """
    if count < 2:
        return 0
    return min(count - 1 + count % 2, (count - 1).bit_length() + MORE_TURNS)


def matching(members: Group, turn: int) -> tuple[Group, ...]:
    """The pairs of one turn, disjoint; over all turns no pair comes twice (the circle method).

    >>> matching((0, 1, 2, 3), 0), matching((5, 6, 7), 1)
    (((3, 0), (1, 2)), ((7, 5),))
    """
    count = turns(len(members))
    if turn >= count:
        return ()
    places = [*members, None] if len(members) % 2 else list(members)
    ring = len(places) - 1
    first = turn * ring // count
    pairs = [(places[ring], places[first])]
    pairs += [
        (places[(first + step) % ring], places[(first - step) % ring])
        for step in range(1, ring // 2 + 1)
    ]
    return tuple((a, b) for a, b in pairs if a is not None and b is not None)
