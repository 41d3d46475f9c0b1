"""`gpusetup install --undo`: the packages that the last installation replaced come back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from gpusetup.commands.install_asking import is_refused, talk_of
from gpusetup.commands.install_conda import undo as undo_by_conda
from gpusetup.install.conda import read_undo
from gpusetup.install.job import new_job
from gpusetup.install.log import Log
from gpusetup.install.recovery import (
    recover_unfinished,
    target_folder,
    torch_family_in,
    undo_changes,
)
from gpusetup.install.request import InstallRequest
from gpusetup.install.switching.journal import STORE
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.switch import undo as undo_files
from gpusetup.install.switching.transaction import undo_known
from gpusetup.install.target.find import check_leaving, check_target, layout_of
from gpusetup.install.target.in_use import users_of
from gpusetup.model.documents import InstallAnswer
from gpusetup.probe.target import choose_target
from gpusetup.render.console import Console
from gpusetup.render.install import undo_text
from gpusetup.render.language import plain
from gpusetup.render.progress import fetching
from gpusetup.system.signals import interruptible
from gpusetup.system.system import System


def undo(request: InstallRequest, out: Console, log: Log) -> int:
    """Show what comes back, ask, change the environment."""
    folder = target_folder(request)
    ended = recover_unfinished(folder, talk_of(out), dry_run=request.dry_run)
    if ended and ended.phase != "keeping" and not ended.undoes:  # nothing of it is left
        return _show(out, log, folder, "restored", ended.after, "Undone.")
    if by_conda := read_undo(folder / STORE):
        return undo_by_conda(request, out, log, folder, by_conda)
    if ended and ended.phase == "keeping" and ended.undoes:
        return _show(out, log, folder, "restored", ended.before, "Undone.")
    system = System()
    layout = layout_of(system, choose_target(system, str(folder)).python)
    check_target(layout)
    store = folder / STORE
    journal = undo_known(store, layout)
    users = users_of(layout.libraries) if "torch" in journal.after else ()
    out.tell(undo_text(str(folder), undo_changes(journal), (), users))
    check_leaving(layout, journal.after)
    if request.dry_run:
        return _show(out, log, folder, "planned", journal.after, "", journal.before)
    if is_refused(request, out):
        return 1
    job = new_job(log, talk_of(out), partial(fetching, out.talk))
    with interruptible(), locked(store, job.talk):
        undo_files(job, layout)
    log.line(f"undone: {undo_changes(journal)}")
    return _show(out, log, folder, "restored", journal.after, "Undone.")


def _show(
    out: Console,
    log: Log,
    folder: Path,
    state: Literal["restored", "planned"],
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
