"""Changes an environment so that it can be put back: each file that leaves is moved aside.

Everything that will leave or come is written to a journal first, and every phase is noted there
before it begins. Moving a file aside is a rename on the same filesystem, so it costs no second copy
of gigabytes. From the journal alone `recover` brings a killed change to the previous or to the new
state, and may itself be killed and run again. What a phase relies on is on the disk before that
phase is noted, so that this holds after a power cut as well. Folders are only made, and removed
when they are empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.durable import sync_folder, sync_folders, sync_tree
from gpusetup.install.switching.files import link_hard, remove
from gpusetup.install.switching.journal import (
    JOURNAL,
    NEXT_RECEIPT,
    RECEIPT,
    STAGING,
    STORE,
    UNDO,
    Journal,
    Phase,
    read_journal,
    require_inside,
    text_of,
    write_journal,
)
from gpusetup.install.target.layout import Layout, distributions, versions
from gpusetup.install.target.owned import files_of_all
from gpusetup.model.frozen import replace
from gpusetup.system.refused import READ_ONLY, blocked_by_files

LIBRARIES = ("site-packages", "dist-packages")
"""Folders that stay if they are empty."""


def prepared(
    journal: Journal, layout: Layout, coming: Iterable[str], after: Mapping[str, str]
) -> Journal:
    """The journal with all files that are moved aside and made, if files come in place of the
    distributions that `after` names, and of those that the journal takes out. Changes nothing.

    A file that would be overwritten although nothing that leaves owns it is moved aside too.
    `Blocked` if a file lies outside, or if a folder is in its place.
    """
    gone, files = files_of_all({*after, *journal.before}, layout)
    made = frozenset(coming)
    away = {path for path in files | made if os.path.lexists(path) and not _is_folder(path)}
    away |= bytecode_of(away)
    for path in filter(_is_folder, made):
        raise Blocked(
            f"{path} is a folder, and a file would come in its place",
            hint="nothing was changed; move it away, then run this again",
        )
    require_inside(Path(layout.prefix, STORE), (*away, *made))
    return replace(
        journal,
        moves=tuple(text_of(path, layout.prefix) for path in sorted(away)),
        made=tuple(text_of(path, layout.prefix) for path in sorted(made - away)),
        before={one.name: one.version for one in gone},
        after=dict(after),
    )


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def bytecode_of(paths: Iterable[str]) -> set[str]:
    """The bytecode that is there of some sources."""
    sources = {os.path.splitext(path)[0] for path in paths if path.endswith(".py")}
    found = set()
    for folder in {os.path.dirname(path) for path in sources}:
        cache = os.path.join(folder, "__pycache__")
        for name in os.listdir(cache) if os.path.isdir(cache) and not os.path.islink(cache) else ():
            if os.path.join(folder, name.partition(".")[0]) in sources:
                found.add(os.path.join(cache, name))
    return found


def remove_empty(files: Iterable[str]) -> None:
    """The folders in which these files were, and those above, as far as nothing is in them."""
    for folder in sorted({os.path.dirname(path) for path in files}, reverse=True):
        with contextlib.suppress(OSError):
            while os.path.basename(folder) not in LIBRARIES:
                os.rmdir(folder)
                folder = os.path.dirname(folder)


# --- the phases -----------------------------------------------------------------------------------


def begin(store: Path, journal: Journal) -> None:
    """Make the store and write the journal, before anything is changed."""
    with blocked_by_files(f"{store} cannot be written", READ_ONLY):
        (store / journal.former).mkdir(parents=True, exist_ok=True)
        write_journal(store, journal)
        sync_folder(store.parent)


def enter(store: Path, journal: Journal, phase: Phase) -> Journal:
    """Note in the journal that a phase begins."""
    entered = replace(journal, phase=phase)
    write_journal(store, entered)
    return entered


def move_aside(store: Path, journal: Journal) -> None:
    """Move everything that leaves into the store. A folder of metadata without a list would say of
    a package that it is there."""
    for path, kept in journal.aside(store):
        os.rename(path, kept)
    moved = (path for path, _ in journal.aside(store))
    remove_empty(path for path in moved if f"-info{os.sep}" in path)
    sync_folders(_folders_changed(store, journal))


def _folders_changed(store: Path, journal: Journal) -> set[str]:
    paths = (*journal.made_in(store), *(path for path, _ in journal.aside(store)))
    return {*map(os.path.dirname, paths), str(store / journal.former)}


def put_back(store: Path, journal: Journal) -> None:
    """Bring the previous state back: remove what was made, rename what was moved aside.

    May be run again after it was stopped anywhere: a file that is in the store was moved and is
    brought back; one that is not was never moved, or is back already.
    """
    for name in VENV_ENTRIES if journal.venv else ():
        remove(store.parent / name)
    aside = dict(journal.aside(store))
    made = {*journal.made_in(store)}
    made |= bytecode_of(made | aside.keys()) - aside.keys()
    for path in made:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
    for path, kept in aside.items():
        if os.path.lexists(kept):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).unlink(missing_ok=True)
            os.rename(kept, path)
    remove_empty(made)
    remove(store / NEXT_RECEIPT)
    sync_folders(_folders_changed(store, journal))
    _forget(store)


VENV_ENTRIES = (
    *("bin", "lib", "lib64", "include", "share", "Scripts", "Lib", "Include", "Library"),
    *("pyvenv.cfg", ".lock", ".gitignore", "CACHEDIR.TAG"),
)
"""What uv, venv and virtualenv make in the folder of an environment: only these go with one that is
being made."""


def keep(store: Path, journal: Journal) -> None:
    """The new state stays; what was moved aside is kept for one undo, or dropped."""
    sync_tree(store)
    journal = enter(store, journal, "keeping")
    fresh, receipt = store / NEXT_RECEIPT, store / RECEIPT
    if fresh.exists():
        fresh.replace(receipt)
    elif journal.undoes:
        receipt.unlink(missing_ok=True)
    if journal.keep:
        write_journal(store, replace(journal, kept=_files_in(store, journal)), UNDO)
    else:
        (store / UNDO).unlink(missing_ok=True)
    remove_empty(path for path, _ in journal.aside(store))
    sync_folder(store)
    _forget(store)


def _forget(store: Path) -> None:
    """End a change. The journal goes first: without it the rest is only left-overs."""
    (store / JOURNAL).unlink(missing_ok=True)
    if store.is_dir():
        sync_folder(store)
    drop_leftovers(store)


def drop_leftovers(store: Path) -> None:
    """Delete what no journal names; the store itself if nothing is left in it."""
    undo = read_journal(store, UNDO)
    for folder in store.glob("former*"):
        if undo is None or folder.name != undo.former:
            remove(folder)
    remove(store / STAGING)
    for left in store.glob("*.new"):
        remove(left)
    with contextlib.suppress(OSError):
        store.rmdir()


def forget_undo(store: Path) -> None:
    """Drop what is kept for an undo."""
    (store / UNDO).unlink(missing_ok=True)
    drop_leftovers(store)


def recover(store: Path) -> Journal | None:
    """End what a killed change began, in the new state if it was about to be kept, else in the
    previous one; its journal, None if nothing was left unfinished."""
    journal = read_journal(store)
    if journal is not None:
        hint = "fix that, then run this again; nothing is lost until then"
        with blocked_by_files("Cannot finish the interrupted change", hint):
            (keep if journal.phase == "keeping" else put_back)(store, journal)
    return journal


# --- undo -----------------------------------------------------------------------------------------


def _files_in(store: Path, journal: Journal) -> dict[str, tuple[int, int]]:
    """Every file and link that is kept: its size, and the second of its last change."""
    with os.scandir(store / journal.former) as kept:
        rows = {one.name: one.stat(follow_symlinks=False) for one in kept}
    return {name: (row.st_size, int(row.st_mtime)) for name, row in rows.items()}


def undo_known(store: Path, layout: Layout) -> Journal:
    """What an undo would bring back. `Blocked` if there is nothing, if others have changed these
    packages since, or if what was kept is have changed."""
    undo = read_journal(store, UNDO)
    if undo is None:
        raise Blocked(
            f"{layout.prefix} keeps nothing to undo",
            hint="one installation is kept, until the next; none in an image build",
        )
    hint = "nothing was changed; `gpusetup install --torch VERSION` installs another"
    installed = versions(distributions(layout))
    other = {n: installed.get(n) for n, v in undo.after.items() if installed.get(n) != v}
    if other:
        now = ", ".join(f"{name} is {version or 'gone'}" for name, version in other.items())
        raise Blocked(f"{layout.prefix} was changed by another program since: {now}", hint=hint)
    found = _files_in(store, undo)
    for name in sorted(found.keys() | undo.kept.keys()):
        if found.get(name) != undo.kept.get(name):
            said = "was changed" if name in found else "is gone"
            raise Blocked(
                f"The files kept for the undo have changed: {store / undo.former / name} {said}",
                hint=hint,
            )
    return undo


def linked(store: Path, undo: Journal) -> dict[str, str]:
    """What is kept, once more in the staging folder, by hard links if the disk has them: each file,
    and where it goes."""
    targets = {}
    for path, kept in undo.aside(store):
        copy = str(store / STAGING / os.path.basename(kept))
        link_hard(kept, copy)
        targets[copy] = path
    return targets
