"""Changes an environment so that it can be put back: what leaves is moved aside, not deleted.

Everything that will leave or be made is written to a journal first, and every phase is noted there
before it begins. Moving aside is a rename on the same filesystem, so it costs no second copy of
gigabytes. From the journal alone `recover` brings a killed transaction to the former or to the new
state, and may itself be killed and run again. What a phase relies on is on the disk before that
phase is noted, so that this holds after a power cut as well.

The store, `.gpusetup` in the target's prefix:

    journal.json       an unfinished transaction
    staging/           what is unpacked there before the switch
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

from gpusetup.errors import Blocked
from gpusetup.install.switching.durable import sync_folder, sync_folders, sync_tree
from gpusetup.install.switching.files import bring_back, bytes_in, merge, move_once, remove, rename
from gpusetup.install.switching.journal import (
    CONDA_UNDO,
    JOURNAL,
    NEXT_RECEIPT,
    RECEIPT,
    STAGING,
    STORE,
    UNDO,
    UNREADABLE,
    Journal,
    Move,
    Phase,
    Unreadable,
    read_journal,
    write_journal,
)
from gpusetup.install.switching.kept import require_as_kept
from gpusetup.install.switching.state_files import require_store
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

__all__ = [
    "CONDA_UNDO",
    "JOURNAL",
    "NEXT_RECEIPT",
    "RECEIPT",
    "STORE",
    "UNDO",
    "Journal",
    "Move",
    "Phase",
    "Unreadable",
    "read_journal",
    "write_journal",
]


def first_journal(layout: Layout, *, keep: bool, made: Journal | None = None) -> Journal:
    """The journal while the wheels are unpacked: nothing is changed yet. `made` is that of an
    environment which was made for it."""
    return Journal(
        phase="staging",
        prefix=layout.prefix,
        former=f"former-{secrets.token_hex(4)}",
        keep=keep,
        venv=made is not None,
        existed=made is None or made.existed,
    )


def prepare(
    layout: Layout, leaving: Iterable[str], coming: Iterable[str], after: Mapping[str, str]
) -> Journal:
    """The journal of replacing the distributions named in `leaving` by the files that come.
    Changes nothing.

    A file that would be overwritten although nothing that leaves owns it is moved aside too; where
    files would go behind a symbolic link, the link is.
    """
    gone, files = files_of_all(leaving, layout)
    made = frozenset(coming)
    leave, links = at_symbolic_links(files, layout.roots)
    arrive, more_links = at_symbolic_links(made, layout.roots)
    refuse_shared(links | more_links, gone, layout)
    overwritten = those_there(arrive - leave)
    away = covering_entries(leave | overwritten, layout.roots)
    return Journal(
        prefix=layout.prefix,
        former=f"former-{secrets.token_hex(4)}",
        moves=_numbered(away, ""),
        made=_not_there_after(made, away, _bytecode_ends(layout)),
        before={one.name: one.version for one in gone},
        after=dict(after),
    )


def continued(first: Journal, journal: Journal) -> Journal:
    """A journal as the next one of the transaction that `first` began."""
    return replace(
        journal,
        former=first.former,
        keep=first.keep,
        venv=first.venv,
        existed=first.existed,
    )


def _bytecode_ends(layout: Layout) -> tuple[str, ...]:
    """How an interpreter calls the bytecode of `x.py`: `x` and one of these."""
    tag = f"{layout.implementation}-{''.join(layout.version.split('.')[:2])}"
    names = (tag, f"{tag}t") if layout.free_threaded else (tag,)
    return tuple(f".{name}{level}.pyc" for name in names for level in ("", ".opt-1", ".opt-2"))


def _numbered(paths: Iterable[str], prefix: str) -> tuple[Move, ...]:
    return tuple(Move(path=path, kept=f"{prefix}{number:05d}") for number, path in enumerate(paths))


def _not_there_after(
    made: Iterable[str], away: tuple[str, ...], ends: tuple[str, ...] = ()
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


# --- the journal ---------------------------------------------------------------------------------


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
    for move in journal.moves:
        rename(Path(move.path), store / journal.former / move.kept)
    sync_folders(folders_changed(store, journal))


def folders_changed(store: Path, journal: Journal) -> set[str]:
    """The folders whose entries a transaction changes."""
    paths = (*journal.made, *(move.path for move in (*journal.moves, *journal.away)))
    return {*map(os.path.dirname, paths), str(store / journal.former)}


# --- the ends of a transaction -------------------------------------------------------------------


def put_back(store: Path, journal: Journal) -> None:
    """Bring the former state back: remove what was made, rename what was moved aside.

    May be run again after it was stopped anywhere: a thing that is in the store was moved and is
    brought back; one that is not was never moved, or is back already.
    """
    with contextlib.suppress(OSError):  # a full disk: the phase before leads here as well
        journal = enter(store, journal, "restoring")
    if journal.venv:
        remove_environment(store)
    for path in journal.made:
        remove(Path(path))
    for move in journal.moves:
        bring_back(store / journal.former / move.kept, Path(move.path))
    remove(store / NEXT_RECEIPT)
    sync_folders(folders_changed(store, journal))
    forget(store)


def remove_environment(store: Path) -> None:
    """Remove everything of an environment that is being made but the store. What no environment
    has is somebody else's."""
    for name in VENV_ENTRIES:
        remove(store.parent / name)


VENV_ENTRIES = (
    *("bin", "lib", "lib64", "include", "share", "Scripts", "Lib", "Include", "Library"),
    *("pyvenv.cfg", ".lock", ".gitignore", "CACHEDIR.TAG"),
)
"""What uv, venv and virtualenv make in the folder of an environment."""


def keep(store: Path, journal: Journal) -> None:
    """The new state stays; what was moved aside is kept for one undo, or dropped."""
    sync_tree(store)
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
    sync_folders((str(store), str(store / journal.former)))
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
    remove(store / STAGING)
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
            hint="one installation is kept, until the next; none in an image build",
        )
    installed = versions(distributions(layout))
    hint = "nothing was changed; `gpusetup install --torch VERSION` installs another"
    other = {n: installed.get(n) for n, v in undo.after.items() if installed.get(n) != v}
    if other:
        now = ", ".join(f"{name} is {version or 'gone'}" for name, version in other.items())
        raise Blocked(
            f"{layout.prefix} has been changed since by something else: {now}",
            hint=hint,
        )
    lost = [m.path for m in undo.moves if not os.path.lexists(store / undo.former / m.kept)]
    if lost:
        raise Blocked(
            f"What was kept for the undo is not whole: {lost[0]} is not in {store / undo.former}",
            hint=hint,
        )
    require_as_kept(store, undo, hint, whole=True)
    return replace(undo, phase="undoing", before=undo.after, after=undo.before)


def undo_journal(store: Path, layout: Layout) -> Journal:
    """The journal of an undo: with every path that it takes out."""
    undo = undo_known(store, layout)
    gone, files = files_of_all(undo.before, layout)
    leave, links = at_symbolic_links(files, layout.roots)
    refuse_shared(links, gone, layout)
    return replace(undo, away=_numbered(covering_entries(leave, layout.roots), "new-"))


def undo(store: Path, journal: Journal) -> None:
    """Take out what was installed and bring back what was there. Once begun it only goes on."""
    journal = enter(store, journal, "undoing")
    for move in journal.away:
        move_once(Path(move.path), store / journal.former / move.kept)
    (store / RECEIPT).unlink(missing_ok=True)
    sync_folders((*folders_changed(store, journal), str(store)))
    finish_undo(store, enter(store, journal, "returning"))


def finish_undo(store: Path, journal: Journal) -> None:
    """The second half of an undo."""
    for move in journal.moves:
        merge(store / journal.former / move.kept, Path(move.path))
    former = store / journal.former / RECEIPT
    if former.exists():
        former.replace(store / RECEIPT)
    sync_folders((*folders_changed(store, journal), str(store)))
    (store / UNDO).unlink(missing_ok=True)
    forget(store)


def forget_undo(store: Path) -> None:
    """Drop what is kept for an undo."""
    (store / UNDO).unlink(missing_ok=True)
    (store / CONDA_UNDO).unlink(missing_ok=True)
    drop_leftovers(store)


# --- recovery ------------------------------------------------------------------------------------

ENDINGS: dict[Phase, tuple[Callable[[Path, Journal], None], Literal["former", "new"]]] = {
    "making": (put_back, "former"),
    "staging": (put_back, "former"),
    "moving": (put_back, "former"),
    "installing": (put_back, "former"),
    "verifying": (put_back, "former"),
    "restoring": (put_back, "former"),
    "keeping": (keep, "new"),
    "undoing": (undo, "new"),
    "returning": (finish_undo, "new"),
}
"""The phase in which a transaction stopped -> how it is ended, and in which of its two states."""


def recover(store: Path) -> tuple[Journal, Literal["former", "new"]] | None:
    """End what a killed transaction began; None where nothing was left unfinished."""
    journal = read_journal(store)
    if journal is None:
        if require_store(store):
            drop_leftovers(store)
        return None
    end, state = ENDINGS[journal.phase]
    if journal.phase != "keeping":
        hint = f"nothing was changed; put it back as it was, or else {UNREADABLE[JOURNAL]}"
        require_as_kept(store, journal, hint, whole=False)
    hint = "mend that, then run this again; nothing is lost until then"
    with blocked_by_files("What was interrupted cannot be ended", hint):
        end(store, journal)
    return journal, state
