"""`gpusetup install --recover`, `--undo`: what an installation left in its target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpusetup.commands.install_asking import is_refused, talk_of, tell_if_held
from gpusetup.commands.install_conda import undo as undo_by_conda
from gpusetup.install.conda.history import read_undo
from gpusetup.install.log import Log
from gpusetup.install.recovery import (
    drop_if_made,
    recover_unfinished,
    state_after,
    target_folder,
    torch_family_in,
    undo_changes,
)
from gpusetup.install.request import InstallRequest
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.transaction import (
    STORE,
    recover,
    undo,
    undo_journal,
    undo_known,
)
from gpusetup.install.target.find import check_leaving, check_target, layout_of
from gpusetup.install.target.in_use import users_of
from gpusetup.model.documents import InstallAnswer
from gpusetup.probe.target import choose_target
from gpusetup.probe.unfinished import WHILE
from gpusetup.render.console import Console
from gpusetup.render.install import undo_text
from gpusetup.render.language import plain
from gpusetup.system.signals import uninterrupted
from gpusetup.system.system import System


def run_kind(kind: str, request: InstallRequest, out: Console, log: Log) -> int:
    """`recover` or `undo` on the target that the request names."""
    return (_recover if kind == "recover" else _undo)(request, out, log, target_folder(request))


def _recover(_request: InstallRequest, out: Console, log: Log, folder: Path) -> int:
    store = folder / STORE
    before = torch_family_in(folder)
    if not store.is_dir():
        there = "" if folder.is_dir() else "There is no environment. "
        return _show(out, log, folder, "unchanged", before, f"{there}Nothing was left unfinished.")
    with locked(store, talk_of(out)):
        ended = recover(store)
    drop_if_made(folder, ended)
    if ended is None:
        return _show(out, log, folder, "unchanged", before, "Nothing was left unfinished.")
    journal, state = ended[0], state_after(ended)
    log.line(f"recovered from {journal.phase}: the {state} state")
    text = f"Interrupted while {WHILE[journal.phase]}; it is in its {state} state now."
    return _show(out, log, folder, "installed" if state == "new" else "restored", before, text)


def _undo(request: InstallRequest, out: Console, log: Log, folder: Path) -> int:
    ended = recover_unfinished(folder, talk_of(out), dry_run=request.dry_run)
    if ended and state_after(ended) == "former":
        before = ended[0].before if ended[1] == "new" else ended[0].after
        return _show(out, log, folder, "restored", before, "Undone.")
    if by_conda := read_undo(folder / STORE):
        return undo_by_conda(request, out, log, folder, by_conda)
    system = System()
    layout = layout_of(system, choose_target(system, str(folder)).python)
    check_target(layout)
    store = folder / STORE
    journal = undo_known(store, layout)
    users = users_of(layout.libraries) if "torch" in journal.before else ()
    out.tell(undo_text(str(folder), undo_changes(journal), (), users))
    check_leaving(layout, journal.before)
    tell_if_held(str(folder), talk_of(out))
    if request.dry_run:
        return _show(out, log, folder, "planned", journal.before, "", journal.after)
    if is_refused(request, out):
        return 1
    with locked(store, talk_of(out)), uninterrupted():
        undo(store, undo_journal(store, layout))
    log.line(f"undone: {undo_changes(journal)}")
    return _show(out, log, folder, "restored", journal.before, "Undone.")


def _show(
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
        after=torch_family_in(folder) if after is None else dict(after),
        steps=(),
        log=str(log.path),
    )
    now = ", ".join(f"{name} {version}" for name, version in answer.after.items()) or "no torch"
    out.answer(answer, plain(f"{text} {folder}: {now}".strip()) + "\n")
    return 0
