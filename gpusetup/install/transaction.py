"""Changes an environment so that it can be put back: what leaves is moved aside, not deleted.

Everything that will leave or be made is written to a journal first, and every phase is noted there
before it begins. Moving aside is a rename on the same filesystem, so it costs no second copy of
gigabytes. From the journal alone `recover` brings a killed transaction to the former or to the new
state, and may itself be killed and run again.

The store, `.gpusetup` in the target's prefix:

    journal.json       an unfinished transaction
    former-1f2e3d4c/   what was moved aside
    undo.json          what `--undo` brings back from there, once the transaction is done
    conda-undo.json    in its place, where the last installation was conda's
    receipt.json       what was installed last
    lock, installer    held while somebody changes the environment (`lock.py`)
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from gpusetup import __version__
from gpusetup.errors import BadInput, Blocked
from gpusetup.install.files import (
    bring_back,
    bytes_in,
    merge,
    move_once,
    refuse_newer,
    remove,
    rename,
    sync_folder,
    write_safely,
)
from gpusetup.install.layout import (
    Distribution,
    Layout,
    covering,
    distributions,
    files_of,
    new_entries,
    those_there,
    versions,
    wheel_paths,
)
from gpusetup.value import Value, replace

STORE = ".gpusetup"
"""The folder in the target's prefix."""
JOURNAL, UNDO, RECEIPT, NEXT_RECEIPT = "journal.json", "undo.json", "receipt.json", "receipt.next"
CONDA_UNDO = "conda-undo.json"

Phase = Literal[
    "making", "moving", "installing", "verifying", "keeping", "restoring", "undoing", "returning"
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


def prepare(
    layout: Layout, leaving: Iterable[str], wheels: Iterable[Path], after: Mapping[str, str]
) -> Journal:
    """The journal of replacing the distributions named in `leaving` by wheels. Changes nothing.

    A file that a wheel would overwrite although nothing that leaves owns it is moved aside too.
    """
    gone = tuple(one for one in distributions(layout) if one.name in set(leaving))
    files = frozenset[str]().union(*(files_of(one, layout) for one in gone))
    made = frozenset[str]().union(*(wheel_paths(wheel, layout) for wheel in wheels))
    overwritten = those_there(made - files)
    away = covering(files | overwritten, layout.roots)
    return Journal(
        prefix=layout.prefix,
        former=f"former-{secrets.token_hex(4)}",
        moves=_numbered(away, ""),
        made=_not_there_after(made, away),
        before={one.name: one.version for one in gone},
        after=dict(after),
    )


def _numbered(paths: Iterable[str], prefix: str) -> tuple[Move, ...]:
    return tuple(Move(path=path, kept=f"{prefix}{number:05d}") for number, path in enumerate(paths))


def _not_there_after(made: Iterable[str], away: tuple[str, ...]) -> tuple[str, ...]:
    """The topmost new entries once `away` has been moved; bytecode of new files among them."""
    leaving = set(away)
    fresh = [path for path in made if not _inside(path, leaving)]
    sources = {os.path.dirname(path) for path in fresh if path.endswith(".py")}
    caches = {os.path.join(folder, "__pycache__") for folder in sources}
    return new_entries({*fresh, *(caches - those_there(caches))})


def _inside(path: str, folders: set[str]) -> bool:
    while path not in folders:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


# --- the journal ---------------------------------------------------------------------------------


def begin(store: Path, journal: Journal) -> None:
    """Make the store and write the journal, before anything is changed."""
    try:
        (store / journal.former).mkdir(parents=True, exist_ok=True)
        write_journal(store, journal)
        sync_folder(store.parent)
    except OSError as problem:
        raise Blocked(
            f"{store} cannot be written: {problem.strerror}",
            hint="nothing was changed; make it writable, or use another environment: `--venv DIR`",
        ) from problem


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


def enter(store: Path, journal: Journal, phase: Phase) -> Journal:
    """Note in the journal that a phase begins."""
    entered = replace(journal, phase=phase)
    write_journal(store, entered)
    return entered


def move_aside(store: Path, journal: Journal) -> None:
    """Move everything that leaves into the store."""
    for move in journal.moves:
        rename(Path(move.path), store / journal.former / move.kept)


# --- the ends of a transaction -------------------------------------------------------------------


def put_back(store: Path, journal: Journal) -> None:
    """Bring the former state back: remove what was made, rename what was moved aside.

    May be run again after it was stopped anywhere: a thing that is in the store was moved and is
    brought back; one that is not was never moved, or is back already.
    """
    with contextlib.suppress(OSError):  # a full disk: the phase before leads here as well
        journal = enter(store, journal, "restoring")
    if journal.venv:
        take_away(store)
    for path in journal.made:
        remove(Path(path))
    for move in journal.moves:
        bring_back(store / journal.former / move.kept, Path(move.path))
    remove(store / NEXT_RECEIPT)
    forget(store)


def take_away(store: Path) -> None:
    """Remove everything of an environment but the store."""
    for entry in store.parent.iterdir():
        if entry.name != store.name:
            remove(entry)


def keep(store: Path, journal: Journal) -> None:
    """The new state stays; what was moved aside is kept for one undo, or dropped."""
    journal = enter(store, journal, "keeping")
    fresh, receipt = store / NEXT_RECEIPT, store / RECEIPT
    if fresh.exists():
        if receipt.exists():
            receipt.replace(store / journal.former / RECEIPT)
        fresh.replace(receipt)
    if journal.keep:
        write_journal(store, journal, UNDO)
    else:
        (store / UNDO).unlink(missing_ok=True)
    (store / CONDA_UNDO).unlink(missing_ok=True)
    forget(store)


def forget(store: Path) -> None:
    """End a transaction. The journal goes first: without it the rest is only left-overs."""
    (store / JOURNAL).unlink(missing_ok=True)
    if store.is_dir():
        sync_folder(store)
    drop_leftovers(store)


def drop_leftovers(store: Path) -> None:
    """Delete what no journal names; the store itself where nothing is left in it."""
    undo = read_journal(store, UNDO)
    named = {undo.former} if undo else set()
    for folder in store.glob("former*"):
        if folder.name not in named:
            remove(folder)
    for left in store.glob("*.new"):
        remove(left)
    with contextlib.suppress(OSError):
        store.rmdir()


# --- undo ----------------------------------------------------------------------------------------


def kept_for_undo(store: Path) -> tuple[Journal, int] | None:
    """What an undo would bring back, and how many bytes it keeps; None where there is nothing."""
    undo = read_journal(store, UNDO)
    return None if undo is None else (undo, bytes_in([store / undo.former]))


def undo_known(store: Path, layout: Layout) -> Journal:
    """What an undo would do. `Blocked` where there is none, or the environment has changed."""
    undo = read_journal(store, UNDO)
    if undo is None:
        raise Blocked(
            f"{layout.prefix} keeps nothing to undo",
            hint="one installation is kept, until the next or `--forget`; not with `--no-keep` "
            "nor in an image build",
        )
    installed = versions(distributions(layout))
    other = {n: installed.get(n) for n, v in undo.after.items() if installed.get(n) != v}
    if other:
        now = ", ".join(f"{name} is {version or 'gone'}" for name, version in other.items())
        raise Blocked(
            f"{layout.prefix} has been changed since by something else: {now}",
            hint="nothing was changed; `gpusetup install --torch VERSION` installs another, "
            "`gpusetup install --forget` drops what was kept",
        )
    lost = [m.path for m in undo.moves if not os.path.lexists(store / undo.former / m.kept)]
    if lost:
        raise Blocked(
            f"What was kept for the undo is not whole: {lost[0]} is not in {store / undo.former}",
            hint="nothing was changed; `gpusetup install --torch VERSION` installs another, "
            "`gpusetup install --forget` drops what was kept",
        )
    return replace(undo, phase="undoing", before=undo.after, after=undo.before)


def undo_journal(store: Path, layout: Layout) -> Journal:
    """The journal of an undo: with every path that it takes out."""
    undo = undo_known(store, layout)
    now_there = tuple(one for one in distributions(layout) if one.name in undo.before)
    files = frozenset[str]().union(*(files_of(one, layout) for one in now_there))
    return replace(undo, away=_numbered(covering(files, layout.roots), "new-"))


def undo(store: Path, journal: Journal) -> None:
    """Take out what was installed and bring back what was there. Once begun it only goes on."""
    journal = enter(store, journal, "undoing")
    for move in journal.away:
        move_once(Path(move.path), store / journal.former / move.kept)
    (store / RECEIPT).unlink(missing_ok=True)
    bring_in(store, enter(store, journal, "returning"))


def bring_in(store: Path, journal: Journal) -> None:
    """The second half of an undo."""
    for move in journal.moves:
        merge(store / journal.former / move.kept, Path(move.path))
    former = store / journal.former / RECEIPT
    if former.exists():
        former.replace(store / RECEIPT)
    (store / UNDO).unlink(missing_ok=True)
    forget(store)


def forget_undo(store: Path) -> int:
    """Drop what is kept for an undo; how many bytes that frees."""
    try:
        kept = kept_for_undo(store)
    except Unreadable:
        kept = None
    (store / UNDO).unlink(missing_ok=True)
    (store / CONDA_UNDO).unlink(missing_ok=True)
    drop_leftovers(store)
    return kept[1] if kept else 0


# --- recovery ------------------------------------------------------------------------------------

ENDINGS: dict[Phase, tuple[Callable[[Path, Journal], None], Literal["former", "new"]]] = {
    "making": (put_back, "former"),
    "moving": (put_back, "former"),
    "installing": (put_back, "former"),
    "verifying": (put_back, "former"),
    "restoring": (put_back, "former"),
    "keeping": (keep, "new"),
    "undoing": (undo, "new"),
    "returning": (bring_in, "new"),
}
"""The phase in which a transaction stopped -> how it is ended, and in which of its two states."""


def recover(store: Path) -> tuple[Journal, Literal["former", "new"]] | None:
    """End what a killed transaction began; None where nothing was left unfinished."""
    journal = read_journal(store)
    if journal is None:
        if store.is_dir():
            drop_leftovers(store)
        return None
    end, state = ENDINGS[journal.phase]
    end(store, journal)
    return journal, state


def family_of(installed: Iterable[Distribution]) -> dict[str, str]:
    """The torch family among what is installed."""
    return {one.name: one.version for one in installed if one.name in FAMILY}


FAMILY = ("torch", "torchvision", "torchaudio")
