"""Changes an environment so that it can be put back: what leaves is moved aside, not deleted.

Everything that will leave or be made is written to a journal first, and every phase is noted there
before it begins. Moving aside is a rename on the same filesystem, so it costs no second copy of
gigabytes. From the journal alone `recover` brings a killed change to the previous or to the new
state, and may itself be killed and run again. What a phase relies on is on the disk before that
phase is noted, so that this holds after a power cut as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.durable import sync_folder, sync_folders, sync_tree
from gpusetup.install.switching.files import bring_back, files_below, link_hard, remove, rename
from gpusetup.install.switching.journal import (
    CONDA_UNDO,
    JOURNAL,
    NEXT_RECEIPT,
    RECEIPT,
    STAGING,
    STORE,
    UNDO,
    Journal,
    Phase,
    first_outside,
    outside,
    paths_in,
    read_journal,
    text_of,
    write_journal,
)
from gpusetup.install.target.layout import (
    Layout,
    covering_entries,
    distributions,
    new_entries,
    those_there,
    versions,
)
from gpusetup.install.target.owned import at_symbolic_links, files_of_all, refuse_shared
from gpusetup.model.frozen import replace
from gpusetup.system.refused import READ_ONLY, blocked_by_files


def prepared(
    journal: Journal, layout: Layout, coming: Iterable[str], after: Mapping[str, str]
) -> Journal:
    """The journal with all that is moved aside and made, where files come in place of the
    distributions that `after` names, and of those that the journal takes out. Changes nothing.

    A file that would be overwritten although nothing that leaves owns it is moved aside too; where
    files would go behind a symbolic link, the link is. `Blocked` where any lies outside.
    """
    gone, files = files_of_all({*after, *journal.before}, layout)
    made = frozenset(coming)
    leave, links = at_symbolic_links(files, layout.roots)
    arrive, more_links = at_symbolic_links(made, layout.roots)
    refuse_shared(links | more_links, gone, layout)
    away = covering_entries(leave | those_there(arrive - leave), layout.roots)
    fresh = _not_there_after(made, away, _bytecode_ends(layout))
    found = replace(
        journal,
        moves=tuple(text_of(path, layout.prefix) for path in away),
        made=tuple(text_of(path, layout.prefix) for path in fresh),
        before={one.name: one.version for one in gone},
        after=dict(after),
    )
    store = Path(layout.prefix, STORE)
    if (out := first_outside(store, paths_in(store, (*found.moves, *found.made)))) is not None:
        raise outside(out, layout.prefix)
    return found


def _bytecode_ends(layout: Layout) -> tuple[str, ...]:
    """How an interpreter calls the bytecode of `x.py`: `x` and one of these."""
    tag = f"{layout.implementation}-{''.join(layout.version.split('.')[:2])}"
    names = (tag, f"{tag}t") if layout.free_threaded else (tag,)
    return tuple(f".{name}{level}.pyc" for name in names for level in ("", ".opt-1", ".opt-2"))


def _not_there_after(
    made: Iterable[str], away: tuple[str, ...], ends: tuple[str, ...]
) -> tuple[str, ...]:
    """The topmost new entries once `away` has been moved; bytecode of new files among them."""
    leaving = set(away)
    fresh = [path for path in made if not _inside(path, leaving)]
    sources = [path for path in fresh if path.endswith(".py")]
    caches = {os.path.join(os.path.dirname(path), "__pycache__") for path in sources}
    there = those_there(caches)
    bytecode = {
        os.path.join(folder, "__pycache__", f"{name.removesuffix('.py')}{end}")
        for folder, name in map(os.path.split, sources)
        if os.path.join(folder, "__pycache__") in there
        for end in ends
    }
    return new_entries({*fresh, *(caches - there), *(bytecode - those_there(bytecode))})


def _inside(path: str, folders: set[str]) -> bool:
    while path not in folders:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


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
    """Move everything that leaves into the store."""
    for path, kept in journal.aside(store):
        rename(path, kept)
    sync_folders(_folders_changed(store, journal))


def _folders_changed(store: Path, journal: Journal) -> set[str]:
    paths = paths_in(store, (*journal.made, *journal.moves))
    return {*map(os.path.dirname, paths), str(store / journal.former)}


def put_back(store: Path, journal: Journal) -> None:
    """Bring the previous state back: remove what was made, rename what was moved aside.

    May be run again after it was stopped anywhere: a thing that is in the store was moved and is
    brought back; one that is not was never moved, or is back already.
    """
    for name in VENV_ENTRIES if journal.venv else ():
        remove(store.parent / name)
    for path in paths_in(store, journal.made):
        remove(path)
    for path, kept in journal.aside(store):
        bring_back(kept, path)
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
    (store / CONDA_UNDO).unlink(missing_ok=True)
    sync_folder(store)
    _forget(store)


def _forget(store: Path) -> None:
    """End a change. The journal goes first: without it the rest is only left-overs."""
    (store / JOURNAL).unlink(missing_ok=True)
    if store.is_dir():
        sync_folder(store)
    drop_leftovers(store)


def drop_leftovers(store: Path) -> None:
    """Delete what no journal names; the store itself where nothing is left in it."""
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
    (store / CONDA_UNDO).unlink(missing_ok=True)
    drop_leftovers(store)


def recover(store: Path) -> Journal | None:
    """End what a killed change began, in the new state if it was about to be kept, else in the
    previous one; its journal, None where nothing was left unfinished."""
    journal = read_journal(store)
    if journal is not None:
        hint = "fix that, then run this again; nothing is lost until then"
        with blocked_by_files("Cannot finish the interrupted change", hint):
            (keep if journal.phase == "keeping" else put_back)(store, journal)
    return journal


# --- undo -----------------------------------------------------------------------------------------


def _files_in(store: Path, journal: Journal) -> dict[str, tuple[int, int]]:
    """Every file and link that is kept: its size, and the second of its last change."""
    root = str(store / journal.former)
    rows = ((text_of(path, root), os.lstat(path)) for path in files_below(root))
    return {name: (row.st_size, int(row.st_mtime)) for name, row in rows}


def undo_known(store: Path, layout: Layout) -> Journal:
    """What an undo would bring back. `Blocked` where there is nothing, where others have changed
    these packages since, and where what was kept is not what it was."""
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
    """What is kept, once more in the staging folder, by hard links where the disk has them: each
    file, and where it goes."""
    targets = {}
    for path, kept in undo.aside(store):
        for one in files_below(str(kept)):
            below = one[len(str(kept)) :]
            copy = f"{store / STAGING / kept.name}{below}"
            link_hard(one, copy)
            targets[copy] = f"{path}{below}"
    return targets
