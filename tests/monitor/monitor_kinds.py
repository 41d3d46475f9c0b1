"""Kinds of runs, each with the verdict and the next steps that are right for it.

The labels were written before any of them was judged, each for what happens in the run and not for
what a rule makes of it. A kind is composed several times, with other cards, lengths and noise.
"""

from __future__ import annotations

import random

import monitor_kinds_cards
import monitor_kinds_exchange
import monitor_kinds_input
import monitor_kinds_quiet
from monitor_composer import KINDS, Run

for portion in (
    monitor_kinds_cards,
    monitor_kinds_exchange,
    monitor_kinds_input,
    monitor_kinds_quiet,
):
    assert portion.__doc__, "its kinds are in KINDS"

__all__ = ["KINDS", "SEEDS", "composed"]
SEEDS = range(4)


def composed(name: str, seed: int) -> Run:
    return KINDS[name].make(random.Random(f"{name} {seed}"))
