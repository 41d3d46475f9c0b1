"""What a sweep asks for and what comes back: plain values between its decision and its edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.frozen import Frozen

Kind = Literal["compute", "pairs", "again"]
"""`compute`: each rank by itself; `pairs`: matchings; `again`: what was suspected, once
more."""

Stage = Literal["", "within", "between"]
"""Ranks of one host among themselves, or hosts by ranks of the same place; empty for compute."""


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
    kind: Kind
    stage: Stage = ""
    turn: int = 0
    """The how many-th of its kind in its stage."""
    ranks: tuple[int, ...] = ()
    """Who computes; empty for exchanges."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Who exchanges with whom: no rank is in two groups."""

    @property
    def asked(self) -> tuple[int, ...]:
        return self.ranks or tuple(rank for group in self.groups for rank in group)


class Exchanged(Frozen):
    """What one group of a round measured."""

    group: tuple[int, ...]
    rate: float
    """Bus bandwidth in bytes/s; 0 where the exchange did not end in its time."""
    problem: str = ""


class Result(Frozen):
    """What came back of a round."""

    round: Round
    exchanged: tuple[Exchanged, ...] = ()
    computed: Mapping[int, float] = {}
    """Rank -> runs of the computation per second."""
    silent: tuple[int, ...] = ()
    """Ranks that said nothing until the round's time was over."""
    seconds: float = 0.0
