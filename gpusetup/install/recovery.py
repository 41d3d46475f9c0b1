"""Finishes an interrupted change of an environment before another change begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gpusetup.errors import GpuSetupError
from gpusetup.install.switching.change import drop_leftovers, recover
from gpusetup.install.switching.journal import STAGING, STORE, Journal, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.target import require_possible_folder
from gpusetup.probe.own_files import how_to_end, interruption
from gpusetup.probe.target import choose_target
from gpusetup.system.system import System


def target_folder(python: str | None, venv: str | None, *, is_undo: bool = False) -> Path:
    """The folder of the environment that `--python` or `--venv` names, or of the active one, even
    if it has no interpreter yet."""
    if venv:
        require_possible_folder(venv)
        return Path(venv).absolute()
    if python:
        named = Path(python).absolute()
        # A run that was killed may have left an environment without an interpreter.
        for folder in (named, named.parent.parent):
            if (folder / STORE).is_dir():
                return folder
    try:
        return Path(choose_target(System(), python).prefix)
    except GpuSetupError:
        # To restore the previous packages, no interpreter is needed.
        for name in (os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), ".venv"):
            if is_undo and name and (Path(name) / STORE).is_dir():
                return Path(name).absolute()
        raise


def recover_unfinished(
    folder: Path, talk: Callable[[str], None], *, dry_run: bool = False
) -> Journal | None:
    """Finish or roll back an interrupted change and return its journal; None if there is none. A
    dry run only reports it."""
    store = folder / STORE
    journal = read_journal(store)
    head = interruption(str(folder)) if journal else ""
    if dry_run:
        if journal:
            half_made = journal.venv and journal.phase != "keeping"
            talk(f"{head}; {how_to_end(str(folder), System().family, half_made=half_made)}.")
        return None
    # These folders remain if a run was killed after it had deleted its journal.
    leftovers = (store / STAGING, store / "installer")
    if journal is None and not any(path.exists() for path in leftovers):
        return None
    # Take the lock first, because another run may still be active and need these folders.
    with locked(store, talk):
        if read_journal(store) is None:
            drop_leftovers(store)
            return None
        talk(f"{head}; recovering first ...")
        ended = recover(store)
    # A new environment that was reverted leaves only its folder.
    if ended and ended.venv and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if ended:
        state = "new" if ended.phase == "keeping" else "previous"
        talk(f"{folder} is in its {state} state again.")
    return ended
