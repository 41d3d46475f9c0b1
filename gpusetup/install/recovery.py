"""What an earlier installation left in a target: it is ended before another one begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from gpusetup.install.packages import torch_family
from gpusetup.install.request import InstallRequest
from gpusetup.install.switching.journal import STORE, Journal, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.transaction import recover
from gpusetup.install.target.layout import distributions_in
from gpusetup.probe.target import choose_target
from gpusetup.system.system import LiveSystem


def target_folder(request: InstallRequest) -> Path:
    """The folder of the target; one whose interpreter is not there yet is a folder all the same."""

    named = request.venv or request.python
    if request.venv and not Path(request.venv).exists():
        return Path(request.venv).absolute()
    if named and (Path(named).absolute() / STORE).is_dir():
        return Path(named).absolute()
    return Path(choose_target(LiveSystem(), named).prefix)


def recover_unfinished(folder: Path, talk: Callable[[str], None], *, dry_run: bool) -> None:
    """End what a killed installation began, before another one begins."""
    store = folder / STORE
    journal = read_journal(store)
    if journal is None:
        return
    if dry_run:
        talk(f"{_interrupted(folder, journal)}; `gpusetup install --recover` ends it.")
        return
    with locked(store, talk):  # one that still runs has the lock
        journal = read_journal(store)
        if journal is None:
            return
        talk(f"{_interrupted(folder, journal)}; recovering first ...")
        ended = recover(store)
    drop_if_made(folder, ended)
    if ended:
        talk(f"{folder} is in its {ended[1]} state again.")


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


def undo_changes(journal: Journal) -> str:
    """What an undo changes: `torch 2.5.1+cpu -> 2.4.0`, `filelock 3.20.0 goes`."""
    return ", ".join(
        f"{name} {version} -> {journal.after[name]}"
        if name in journal.after
        else f"{name} {version} goes"
        for name, version in journal.before.items()
    )


def torch_family_in(folder: Path) -> dict[str, str]:
    """The torch family of an environment by its files alone; its interpreter may not be there."""

    named = [*folder.glob("lib*/python3*/site-packages"), folder / "Lib" / "site-packages"]
    libraries = {os.path.realpath(library) for library in named}
    return torch_family(one for library in sorted(libraries) for one in distributions_in(library))
