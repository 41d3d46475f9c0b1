"""The journal of a transaction: what it does to an environment, and how far it has come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpusetup import __version__
from gpusetup.errors import BadInput
from gpusetup.install.files import refuse_newer, write_safely
from gpusetup.value import Value, replace

STORE = ".gpusetup"
"""The folder in the target's prefix."""
JOURNAL, UNDO, RECEIPT, NEXT_RECEIPT = "journal.json", "undo.json", "receipt.json", "receipt.next"
CONDA_UNDO = "conda-undo.json"
STAGING = "staging"
"""The folder of the store in which wheels are unpacked before the switch."""

Phase = Literal[
    "making",
    "staging",
    "moving",
    "installing",
    "verifying",
    "keeping",
    "restoring",
    "undoing",
    "returning",
]


class Move(Value):
    """A path of the environment, and the name under which it is kept in the store."""

    path: str
    kept: str


class Journal(Value):
    """What a transaction does to an environment; enough to end it either way."""

    schema: Literal["gpusetup.journal/1"] = "gpusetup.journal/1"
    gpusetup: str = __version__
    phase: Phase = "moving"
    prefix: str = ""
    """Where the environment was when this was written."""
    former: str = "former"
    """The folder of the store that keeps what was moved aside."""
    moves: tuple[Move, ...] = ()
    made: tuple[str, ...] = ()
    """Paths that were not there before and will be."""
    away: tuple[Move, ...] = ()
    """What an undo takes out."""
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    venv: bool = False
    """Whether the whole environment is made here, so that putting back takes it away."""
    existed: bool = True
    """Whether its folder was there, empty."""
    keep: bool = True
    """Whether what was there is kept for `--undo`."""


def write_journal(store: Path, journal: Journal, name: str = JOURNAL) -> None:
    """Replace the journal in one step, on disk before this returns."""
    from gpusetup.codec import to_json

    write_safely(store / name, to_json(journal, indent=1))


def read_journal(store: Path, name: str = JOURNAL) -> Journal | None:
    """The journal of an unfinished transaction; None where there is none."""
    from gpusetup.codec import from_json

    path = store / name
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    refuse_newer(raw, "gpusetup.journal/1", what=str(path))
    try:
        journal = from_json(raw, Journal, what=str(path))
    except BadInput as problem:
        raise Unreadable(problem.message, hint=UNREADABLE.get(name)) from problem
    return moved_along(journal, str(store.parent))


class Unreadable(BadInput):
    """A journal that somebody has spoiled."""


UNREADABLE = {
    UNDO: "`gpusetup install --forget` drops what was kept",
    JOURNAL: "copy away the folders former-* beside it, they hold what was moved aside; then "
    "remove the file, and the environment is taken as it is",
}


def moved_along(journal: Journal, prefix: str) -> Journal:
    """The journal of an environment that is called otherwise now: moved, or seen from outside
    of the container that it was made in."""
    former = journal.prefix
    if former in ("", prefix):
        return journal

    def along(path: str) -> str:
        return prefix + path[len(former) :] if path.startswith(former + os.sep) else path

    def all_of(moves: tuple[Move, ...]) -> tuple[Move, ...]:
        return tuple(Move(path=along(move.path), kept=move.kept) for move in moves)

    return replace(
        journal,
        prefix=prefix,
        moves=all_of(journal.moves),
        away=all_of(journal.away),
        made=tuple(map(along, journal.made)),
    )
