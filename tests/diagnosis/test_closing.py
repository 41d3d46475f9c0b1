"""The advice holds: pasted into a simulated machine, a fix ends its cause and leaves no other."""

from __future__ import annotations

from pathlib import Path

from closing.rounds import IN_WORDS, OUTSIDE, Outcome, alternatives_hold, closing, moved_again
from closing.world import World, world_of
from each_row import each
from machines_named import FOLDERS, snapshot_of


@each("folder", FOLDERS)
def test_the_fix_of_every_recorded_machine_closes(folder: Path) -> None:
    assert complaints(world_of(snapshot_of(folder))) == []


def complaints(world: World) -> list[str]:
    """What speaks against the advice for one machine: its way, its other ways, where it ends."""
    outcome = closing(world)
    said = [outcome.failure] if outcome.failure else []
    again = moved_again(outcome.world) if outcome.ends == "ok" and outcome.world else []
    return [*said, *where_it_ends(outcome), *alternatives_hold(world), *again]


def where_it_ends(outcome: Outcome) -> list[str]:
    if outcome.failure or outcome.ends in ("ok", *OUTSIDE, *IN_WORDS):
        return []
    return [f"ends in words: {outcome.ends}"]
