"""`gpusetup install --recover`, `--undo`, `--forget`: what an installation left in its target."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpusetup.answers import InstallAnswer
from gpusetup.install.conda_history import read_undo
from gpusetup.install.lock import locked
from gpusetup.install.transaction import (
    STORE,
    Journal,
    family_of,
    forget_undo,
    kept_for_undo,
    read_journal,
    recover,
    undo,
    undo_journal,
    undo_known,
)
from gpusetup.render.console import Console, plain

if TYPE_CHECKING:
    from gpusetup.install.log import Log

KINDS = ("recover", "undo", "forget")


def run_kind(kind: str, options: argparse.Namespace, out: Console, log: Log) -> int:
    """One of `KINDS` on the target that the options name."""
    target = target_folder(options)
    calls: dict[str, Callable[[argparse.Namespace, Console, Log, Path], int]] = {
        "recover": _recover,
        "undo": _undo,
        "forget": _forget,
    }
    return calls[kind](options, out, log, target)


def target_folder(options: argparse.Namespace) -> Path:
    """The folder of the target; one whose interpreter is not there yet is a folder all the same."""
    from gpusetup.probe.system import LiveSystem
    from gpusetup.probe.target import choose_target

    named = options.venv or options.python
    if options.venv and not Path(options.venv).exists():
        return Path(options.venv).absolute()
    if named and (Path(named).absolute() / STORE).is_dir():
        return Path(named).absolute()
    return Path(choose_target(LiveSystem(), named).prefix)


def recover_first(folder: Path, out: Console, *, dry_run: bool) -> None:
    """End what a killed installation began, before another one begins."""
    store = folder / STORE
    journal = read_journal(store)
    if journal is None:
        return
    if dry_run:
        out.talk(plain(f"{_interrupted(folder, journal)}; `gpusetup install --recover` ends it."))
        return
    with locked(store, out.talk):  # one that still runs has the lock
        journal = read_journal(store)
        if journal is None:
            return
        out.talk(plain(f"{_interrupted(folder, journal)}; recovering first ..."))
        ended = recover(store)
    drop_if_made(folder, ended)
    if ended:
        out.talk(plain(f"{folder} is in its {ended[1]} state again."))


def _interrupted(folder: Path, journal: Journal) -> str:
    return f"An installation into {folder} was interrupted while {WHILE[journal.phase]}"


WHILE = {
    "making": "the environment was being made",
    "staging": "the new files were being unpacked beside it",
    "moving": "the former files were being moved aside",
    "installing": "the new files were being installed",
    "verifying": "the new state was being verified",
    "keeping": "the new state was being kept",
    "restoring": "the former state was being put back",
    "undoing": "it was being undone",
    "returning": "it was being undone",
}


def drop_if_made(folder: Path, ended: tuple[Journal, Literal["former", "new"]] | None) -> None:
    """The folder of an environment that was never finished goes too."""
    left = folder.is_dir() and not any(folder.iterdir())
    if left and (ended is None or (ended[0].venv and not ended[0].existed)):
        folder.rmdir()


def _recover(_options: argparse.Namespace, out: Console, log: Log, folder: Path) -> int:
    store = folder / STORE
    before = family_in(folder)
    if not store.is_dir():
        there = "" if folder.is_dir() else "There is no environment. "
        return _said(out, log, folder, "unchanged", before, f"{there}Nothing was left unfinished.")
    with locked(store, out.talk):
        ended = recover(store)
    drop_if_made(folder, ended)
    if ended is None:
        return _said(out, log, folder, "unchanged", before, "Nothing was left unfinished.")
    journal, state = ended
    log.line(f"recovered from {journal.phase}: the {state} state")
    text = f"Interrupted while {WHILE[journal.phase]}; it is in its {state} state now."
    is_new = state == "new" and journal.phase == "keeping"
    return _said(out, log, folder, "installed" if is_new else "restored", before, text)


def _undo(options: argparse.Namespace, out: Console, log: Log, folder: Path) -> int:
    from gpusetup.commands.install_parts import refused, tell_if_held
    from gpusetup.install.inuse import users_of
    from gpusetup.install.prepare import check_leaving, check_target, layout_of
    from gpusetup.install.run import undisturbed
    from gpusetup.probe.system import LiveSystem
    from gpusetup.probe.target import choose_target
    from gpusetup.render.install import in_use_lines

    recover_first(folder, out, dry_run=options.dry_run)
    if by_conda := read_undo(folder / STORE):
        from gpusetup.commands.install_conda import undo as undo_by_conda

        return undo_by_conda(options, out, log, folder, by_conda)
    system = LiveSystem()
    layout = layout_of(system, choose_target(system, str(folder)).python)
    check_target(layout)
    store = folder / STORE
    journal = undo_known(store, layout)
    lines = [f"Target   {folder}", f"Undo     {_changes(journal)}"]
    lines += in_use_lines(users_of(layout.libraries) if "torch" in journal.before else ())
    out.talk(plain("\n".join(lines)))
    check_leaving(layout, journal.before)
    tell_if_held(store, out)
    if options.dry_run:
        return _said(out, log, folder, "planned", journal.before, "", journal.after)
    if refused(options, out):
        return 1
    with locked(store, out.talk), undisturbed():
        undo(store, undo_journal(store, layout))
    log.line(f"undone: {_changes(journal)}")
    return _said(out, log, folder, "restored", journal.before, "Undone.", journal.after)


def _changes(journal: Journal) -> str:
    """What an undo changes: `torch 2.5.1+cpu -> 2.4.0`, `filelock 3.20.0 goes`."""
    return ", ".join(
        f"{name} {version} -> {journal.after[name]}"
        if name in journal.after
        else f"{name} {version} goes"
        for name, version in journal.before.items()
    )


def _forget(options: argparse.Namespace, out: Console, log: Log, folder: Path) -> int:
    from gpusetup.install.wheels import in_words

    recover_first(folder, out, dry_run=options.dry_run)
    store, before = folder / STORE, family_in(folder)
    if not store.is_dir():
        return _said(out, log, folder, "unchanged", before, "Nothing is kept.")
    if options.dry_run:
        kept = kept_for_undo(store)
        text = f"{in_words(kept[1])} would be freed." if kept else "Nothing is kept."
        return _said(out, log, folder, "planned", before, text)
    with locked(store, out.talk):
        freed = forget_undo(store)
    log.line(f"forgot what was kept: {freed} bytes")
    return _said(
        out, log, folder, "unchanged", before, f"{in_words(freed)} freed; no undo is left."
    )


def family_in(folder: Path) -> dict[str, str]:
    """The torch family of an environment by its files alone; its interpreter may not be there."""
    from gpusetup.install.layout import distributions_in

    named = [*folder.glob("lib*/python3*/site-packages"), folder / "Lib" / "site-packages"]
    libraries = {os.path.realpath(library) for library in named}
    return family_of(one for library in sorted(libraries) for one in distributions_in(library))


def _said(
    out: Console,
    log: Log,
    folder: Path,
    state: Literal["installed", "unchanged", "restored", "planned"],
    before: Mapping[str, str],
    text: str,
    after: Mapping[str, str] | None = None,
) -> int:
    answer = InstallAnswer(
        state=state,
        target=str(folder),
        before=dict(before),
        after=family_in(folder) if after is None else dict(after),
        steps=(),
        log=str(log.path),
    )
    now = ", ".join(f"{name} {version}" for name, version in answer.after.items()) or "no torch"
    out.answer(answer, plain(f"{text} {folder}: {now}".strip()) + "\n")
    return 0
