"""The journal of a transaction: what it does to an environment, and how far it has come."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from gpusetup import __version__
from gpusetup.errors import BadInput
from gpusetup.install.switching.files import refuse_newer, write_safely
from gpusetup.install.switching.state_files import FORMER, KEPT, first_outside, read_state
from gpusetup.model.frozen import Frozen, replace

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


class Move(Frozen):
    """A path of the environment, and the name under which it is kept in the store."""

    path: str
    kept: str


class Journal(Frozen):
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
    listed: str = ""
    """The sha256 of the list of what was moved aside."""


def write_journal(store: Path, journal: Journal, name: str = JOURNAL) -> None:
    """Replace the journal in one step, on disk before this returns."""
    from gpusetup.model.codec import to_json

    write_safely(store / name, to_json(with_paths(journal, as_text), indent=1))


def read_journal(store: Path, name: str = JOURNAL) -> Journal | None:
    """The journal of an unfinished transaction; None where there is none. Every path of it lies in
    the environment: `Unreadable` where one does not."""
    from gpusetup.model.codec import from_json

    path = store / name
    raw = read_state(path)
    if raw is None:
        return None
    refuse_newer(raw, "gpusetup.journal/1", what=str(path))
    try:
        journal = with_paths(from_json(raw, Journal, what=str(path)), as_path)
        require_confined(moved_along(journal, str(store.parent)), store, path)
    except (BadInput, RecursionError, ValueError) as problem:
        said = problem.message if isinstance(problem, BadInput) else f"{path} cannot be read"
        raise Unreadable(said, hint=UNREADABLE.get(name)) from problem
    return moved_along(journal, str(store.parent))


class Unreadable(BadInput):
    """A journal that somebody has spoiled."""


UNREADABLE = {
    UNDO: "remove the file: then nothing is kept for an undo",
    JOURNAL: "copy away the folders former-* beside it, they hold what was moved aside; then "
    "remove the file, and the environment is taken as it is",
}


def require_confined(journal: Journal, store: Path, what: Path) -> None:
    """`BadInput` where a journal leads out of the environment, or is none that we write."""
    moves = (*journal.moves, *journal.away)
    kept = [move.kept for move in moves]
    if not FORMER.fullmatch(journal.former) or not all(map(KEPT.fullmatch, kept)):
        raise BadInput(f"{what} names no folder of gpusetup's: {journal.former[:80]!r}")
    if len(set(kept)) < len(kept):
        raise BadInput(f"{what} keeps two things under one name")
    former = store / journal.former
    if os.path.lexists(former) and (former.is_symlink() or not former.is_dir()):
        raise BadInput(f"{former} is no folder")
    if journal.venv and journal.phase != "keeping" and os.path.lexists(store / RECEIPT):
        raise BadInput(f"{what} is of an environment that is being made, but this one is done")
    paths = (*journal.made, *(move.path for move in moves))
    if (out := first_outside(str(store.parent), str(store), paths)) is not None:
        raise BadInput(
            f"{what} names what does not lie in the environment, or behind a symbolic link: "
            f"{out[:200]!r}"
        )


def with_paths(journal: Journal, changed: Callable[[str], str]) -> Journal:
    def all_of(moves: tuple[Move, ...]) -> tuple[Move, ...]:
        return tuple(Move(path=changed(move.path), kept=move.kept) for move in moves)

    return replace(
        journal,
        moves=all_of(journal.moves),
        away=all_of(journal.away),
        made=tuple(map(changed, journal.made)),
    )


BYTES = "bytes:"
"""Before a path that is no UTF-8, in hexadecimal; no absolute path begins so."""


def as_text(path: str) -> str:
    """A path as JSON can hold it.

    >>> as_text("/a/b"), as_path(as_text("/caf\\udce9")) == "/caf\\udce9"
    ('/a/b', True)
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return BYTES + os.fsencode(path).hex()
    return path


def as_path(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[len(BYTES) :])) if text.startswith(BYTES) else text


def moved_along(journal: Journal, prefix: str) -> Journal:
    """The journal of an environment that is called otherwise now: moved, or seen from outside
    of the container that it was made in."""
    former = journal.prefix
    if former in ("", prefix):
        return journal

    def along(path: str) -> str:
        return prefix + path[len(former) :] if path.startswith(former + os.sep) else path

    return replace(with_paths(journal, along), prefix=prefix)
