"""Sweeps on fleets that exist on paper only: what is named, rounds and messages.

A fleet has hosts in racks behind a network that may be oversubscribed; measurements scatter with a
spread of 3 % and, one in twenty, are disturbed and up to three times slower.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpusetup.fleet.sweep.rounds import Sweep, matching, planes
from gpusetup.fleet.sweep.scores import Round, RoundResult, Unit

NODE_RATE, HOST_RATE, MESSAGES_A_RANK = 25e9, 200e9, 3
"""bytes/s between and within hosts; the question, `here`, and the answer."""
MOST_ROUNDS = 200


@dataclass
class Fleet:
    """Hosts with ranks, and what is wrong with them: shares of the sound rate."""

    hosts: int
    ranks: int = 1
    rack: int = 32
    oversubscribed: float = 1.0
    """How much slower a pair of two racks is."""
    links: dict[int, float] = field(default_factory=dict)
    paths: dict[frozenset[int], float] = field(default_factory=dict)
    hung: dict[int, int] = field(default_factory=dict)
    """Rank -> the round from which on it says nothing."""
    racks: dict[int, float] = field(default_factory=dict)
    """Rack -> what its uplink still does."""
    spread: float = 0.03
    disturbed: float = 0.05

    @property
    def units(self) -> tuple[Unit, ...]:
        numbers = range(self.hosts * self.ranks)
        return tuple(
            Unit(rank=n, host=f"n{n // self.ranks:05d}", local=n % self.ranks, device="H100")
            for n in numbers
        )

    def path(self, one: int, other: int) -> float:
        """bytes/s between two ranks without noise."""
        hosts = one // self.ranks, other // self.ranks
        rate = HOST_RATE if hosts[0] == hosts[1] else NODE_RATE
        racks = hosts[0] // self.rack, hosts[1] // self.rack
        if racks[0] != racks[1]:
            rate /= self.oversubscribed
            rate *= min(self.racks.get(rack, 1.0) for rack in racks)
        rate *= min(self.links.get(one, 1.0), self.links.get(other, 1.0))
        return rate * self.paths.get(frozenset((one, other)), 1.0)

    def noisy(self, rate: float, draw: random.Random) -> float:
        rate *= draw.lognormvariate(0, self.spread)
        return rate / draw.uniform(1, 3) if draw.random() < self.disturbed else rate

    def measured(self, asked: Round, draw: random.Random) -> RoundResult:
        late = {r for r, since in self.hung.items() if asked.number >= since}
        rates = {p: self.noisy(self.path(*p), draw) for p in asked.pairs if late.isdisjoint(p)}
        silent = tuple(rank for rank in asked.asked if rank in late)
        return RoundResult(round=asked, rates=rates, silent=silent)


def swept(fleet: Fleet, seed: int) -> Sweep:
    """Play a sweep."""
    draw, sweep = random.Random(seed), Sweep(fleet.units)
    for asked in sweep.rounds():
        sweep.results.append(fleet.measured(asked, draw))
        assert len(sweep.results) < MOST_ROUNDS, "it does not come to an end"
    return sweep


def blamed(sweep: Sweep) -> set[tuple[str, tuple[int, ...]]]:
    return {(one.fault, one.ranks) for one in sweep.faults()}


def messages(results: Sequence[RoundResult]) -> int:
    return sum(MESSAGES_A_RANK * len(result.round.asked) for result in results)


FAULTS = {
    "link at half": ("slow-link", 0.5), "link at seven tenths": ("slow-link", 0.7),
    "link down": ("broken-link", 0.0), "path down": ("broken-path", 0.0), "hung": ("hung", 0),
}  # fmt: skip


def plant(fleet: Fleet, name: str, draw: random.Random) -> tuple[str, tuple[int, ...]]:
    """A fault on a rank, or on a pair that the matchings of this fleet bring together."""
    fault, share = FAULTS[name]
    rank = draw.randrange(fleet.hosts * fleet.ranks)
    if fault.endswith("path"):
        stage = planes(fleet.units)[-1]
        turn = draw.randrange(stage.turn_count)
        pair = draw.choice([pair for group in stage.members for pair in matching(group, turn)])
        fleet.paths[frozenset(pair)] = share
        return fault, pair
    if fault == "hung":
        fleet.hung[rank] = draw.randrange(8)
    else:
        fleet.links[rank] = share
    return fault, (rank,)


FLEETS = {
    "5 hosts": Fleet(5), "8 hosts": Fleet(8), "1 host of 8": Fleet(1, ranks=8),
    "2 hosts of 8": Fleet(2, ranks=8), "17 hosts": Fleet(17), "16 hosts of 8": Fleet(16, ranks=8),
    "64 hosts, 2:1": Fleet(64, rack=16, oversubscribed=2.0),
    "100 hosts, 4:1": Fleet(100, rack=16, oversubscribed=4.0), "128 hosts": Fleet(128),
}  # fmt: skip


def count(name: str, fault: str, seeds: int) -> tuple[int, int]:
    """Of so many fleets: planted and found, with something else named."""
    found = false = 0
    for seed in range(seeds):
        draw, fleet = random.Random(f"{name} {fault} {seed}"), FLEETS[name]
        fleet = replace(fleet, links={}, paths={}, hung={})
        planted = plant(fleet, fault, draw) if fault in FAULTS else None
        told = blamed(swept(fleet, seed))
        found += planted in told
        false += bool(told - {planted})
    return found, false
