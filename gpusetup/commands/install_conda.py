"""`gpusetup install` by conda, mamba or micromamba, for environments that are theirs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.install_asking import is_refused, talk_of, tell_if_held
from gpusetup.install.conda.history import CondaUndo, conda_itself, read_undo, undo_known
from gpusetup.install.conda.install import execute_conda, undo_by_conda
from gpusetup.install.conda.plan import (
    conda_answer,
    executed_answer,
    moves,
    plan_by_conda,
    require_runnable,
)
from gpusetup.install.decide import decide
from gpusetup.install.job import Job, new_job
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.request import InstallRequest, resolver_request
from gpusetup.install.switching.journal import STORE
from gpusetup.install.target.find import Target
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console
from gpusetup.render.install import conda_text, outcome_text, unchanged_text, undo_text
from gpusetup.render.language import plain
from gpusetup.render.progress import fetching

if TYPE_CHECKING:
    from gpusetup.install.log import Log


def install_by_conda(
    request: InstallRequest,
    out: Console,
    job: Job,
    target: Target,
    machine: Snapshot,
    asked: RequestedPackages,
) -> int:
    """Decide, plan, show, ask, execute; the exit code."""
    wanted = resolver_request(request, asked, by_conda=True)
    task = decide(request, job.talk, machine, asked, wanted)
    plan = plan_by_conda(task, target, machine)
    if task.is_done:
        answer = conda_answer(job, plan, "unchanged")
        out.answer(answer, unchanged_text(answer, task.notes))
        return 0
    if request.dry_run:
        out.answer(conda_answer(job, plan, "planned"), conda_text(plan, moves(plan)))
        return 0
    require_runnable(plan, machine)
    tell_if_held(plan.prefix, job.talk)
    out.talk(conda_text(plan, () if request.yes else moves(plan)))
    if is_refused(request, out):
        return 1
    outcome = execute_conda(job, plan, verify=not request.no_verify)
    answer = executed_answer(job, plan, outcome)
    out.answer(answer, outcome_text(answer) + _way_back(plan.prefix))
    return 0 if outcome.kept else 1


def _way_back(prefix: str) -> str:
    undo = read_undo(Path(prefix, STORE))
    if undo is None:
        return ""
    return plain(
        f"`gpusetup install --undo --python {prefix}` goes back to revision {undo.revision}\n"
    )


def undo(request: InstallRequest, out: Console, log: Log, folder: Path, kept: CondaUndo) -> int:
    """`--undo` where the last installation was conda's: show conda's own command, ask, run it."""
    store = folder / STORE
    step = undo_known(store, kept, conda_itself(os.environ))
    answer = InstallAnswer(
        state="planned",
        target=str(folder),
        before=kept.after,
        after=kept.before,
        steps=(DoneStep(argv=step.argv),),
        log=str(log.path),
    )
    text = undo_text(str(folder), f"revision {kept.reached} -> {kept.revision}", (step,), ())
    tell_if_held(str(folder), talk_of(out))
    if request.dry_run:
        out.answer(answer, text)
        return 0
    out.talk(text)
    if is_refused(request, out):
        return 1
    job = new_job(log, talk_of(out), partial(fetching, out.talk))
    undo_by_conda(job, store, kept)
    done = replace(answer, state="restored", steps=tuple(job.done))
    out.answer(done, plain(f"Undone. {folder} is at revision {kept.revision} again\n"))
    return 0
