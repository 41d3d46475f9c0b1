"""Changes an environment so that it can be put back: what leaves is moved aside, not deleted.

Everything that will leave or be made is written to a journal first. Moving aside is a rename on
the same filesystem, so it costs no second copy of gigabytes. `put_back` brings the former state
back from the journal alone and may itself be stopped and run again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from gpusetup import __version__
from gpusetup.errors import Blocked
from gpusetup.install.layout import (
    Distribution,
    Layout,
    covering,
    distributions,
    files_of,
    new_entries,
    those_there,
    wheel_paths,
)
from gpusetup.value import Value, replace

STORE = ".gpusetup"
"""The folder in the target's prefix that holds the journal, what was moved aside, the receipt."""

Phase = Literal["moving", "installing", "verifying", "keeping", "restoring"]


class Move(Value):
    """A path of the environment, and the name under which it is kept in the store."""

    path: str
    kept: str


class Journal(Value):
    """What a transaction does to an environment; enough to end it either way."""

    schema: Literal["gpusetup.journal/1"] = "gpusetup.journal/1"
    gpusetup: str = __version__
    phase: Phase = "moving"
    moves: tuple[Move, ...] = ()
    made: tuple[str, ...] = ()
    """Paths that were not there before and will be."""
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}


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
    moves = tuple(Move(path=path, kept=f"{number:05d}") for number, path in enumerate(away))
    return Journal(
        moves=moves,
        made=_not_there_after(made, away),
        before={one.name: one.version for one in gone},
        after=dict(after),
    )


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


def begin(store: Path, journal: Journal) -> None:
    """Make the store and write the journal, before anything is changed."""
    try:
        (store / "former").mkdir(parents=True, exist_ok=True)
        write_journal(store, journal)
    except OSError as problem:
        raise Blocked(
            f"{store} cannot be written: {problem.strerror}",
            hint="nothing was changed; make it writable, or use another environment: `--venv DIR`",
        ) from problem


def write_journal(store: Path, journal: Journal) -> None:
    """Replace the journal in one step, on disk before this returns."""
    from gpusetup.codec import to_json

    write_safely(store / "journal.json", to_json(journal, indent=1))


def write_safely(path: Path, text: str) -> None:
    """Write a file so that after a crash it is the old one or the new one."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have a folder's entries on disk, where the system can (Windows cannot)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_journal(store: Path) -> Journal | None:
    """The journal of an unfinished transaction; None where there is none."""
    from gpusetup.codec import from_json

    path = store / "journal.json"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    return from_json(raw, Journal, what=str(path))


def move_aside(store: Path, journal: Journal) -> None:
    """Move everything that leaves into the store."""
    for move in journal.moves:
        rename(Path(move.path), store / "former" / move.kept)


def enter(store: Path, journal: Journal, phase: Phase) -> Journal:
    """Note in the journal that a phase begins."""
    entered = replace(journal, phase=phase)
    write_journal(store, entered)
    return entered


def put_back(store: Path, journal: Journal) -> None:
    """Bring the former state back: remove what was made, rename what was moved aside.

    May be run again after it was stopped anywhere: a thing that is in the store was moved and is
    brought back; one that is not was never moved, or is back already.
    """
    journal = enter(store, journal, "restoring")
    for path in journal.made:
        remove(Path(path))
    for move in journal.moves:
        kept = store / "former" / move.kept
        if os.path.lexists(kept):
            remove(Path(move.path))
            rename(kept, Path(move.path))
    forget(store)


def keep(store: Path, journal: Journal) -> None:
    """The new state stays: what was moved aside is dropped."""
    enter(store, journal, "keeping")
    forget(store)


def forget(store: Path) -> None:
    """End a transaction. The journal goes first: without it the rest is only left-overs."""
    (store / "journal.json").unlink(missing_ok=True)
    shutil.rmtree(store / "former", ignore_errors=True)
    with contextlib.suppress(OSError):
        store.rmdir()


def rename(source: Path, destination: Path) -> None:
    """Rename; across filesystems (EXDEV: a lower layer of an overlay) copy, then delete."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(destination)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        shutil.move(source, destination)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder; nothing where it is not there."""
    if not path.is_symlink() and path.is_dir():
        shutil.rmtree(path)
        return
    with contextlib.suppress(NotADirectoryError):  # a file stands where a folder would be
        path.unlink(missing_ok=True)


def family_of(installed: Iterable[Distribution]) -> dict[str, str]:
    """The torch family among what is installed."""
    return {one.name: one.version for one in installed if one.name in FAMILY}


FAMILY = ("torch", "torchvision", "torchaudio")
