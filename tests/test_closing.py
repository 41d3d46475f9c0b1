"""The advice holds: pasted into a simulated machine, a fix ends its cause and leaves no other."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from closing.rounds import IN_WORDS, OUTSIDE, Outcome, alternatives_hold, closing, moved_again
from closing.variants import variants
from closing.world import World, world_of
from each_row import each
from machines_named import FOLDERS, snapshot_of

LEAST_VARIANTS = 300


@each("folder", FOLDERS)
def test_the_fix_of_every_recorded_machine_closes(folder: Path) -> None:
    assert complaints(world_of(snapshot_of(folder))) == []


PARTS = 24


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.one_in(PARTS)
def test_the_fixes_of_all_composed_variants_close(part: int) -> None:
    ends: list[str] = []
    composed = dict(variants())
    chosen = dict(islice(composed.items(), part, None, PARTS))
    open_ones = {n: said for n, world in chosen.items() if (said := complaints(world, ends))}
    print(f"{len(chosen)} composed variants, {len(open_ones)} of them do not close")
    assert len(composed) >= LEAST_VARIANTS
    assert open_ones == {}
    in_words = [end for end in ends if end in IN_WORDS]
    assert len(in_words) <= len(chosen) // 20, "advice that nobody can paste is the exception"


def complaints(world: World, ends: list[str] | None = None) -> list[str]:
    """What speaks against the advice for one machine: its way, its other ways, where it ends."""
    outcome = closing(world)
    if ends is not None:
        ends.append(outcome.ends)
    said = [outcome.failure] if outcome.failure else []
    again = moved_again(outcome.world) if outcome.ends == "ok" and outcome.world else []
    return [*said, *where_it_ends(outcome), *alternatives_hold(world), *again]


def where_it_ends(outcome: Outcome) -> list[str]:
    if outcome.failure or outcome.ends in ("ok", *OUTSIDE, *IN_WORDS):
        return []
    return [f"ends in words: {outcome.ends}"]
