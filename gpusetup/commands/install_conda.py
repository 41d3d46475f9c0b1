"""`gpusetup install` by conda, mamba or micromamba, for environments that are theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.install_asking import is_refused, talk_of
from gpusetup.install.conda import (
    CondaUndo,
    builds,
    conda_answer,
    conda_says,
    execute_conda,
    plan_by_conda,
    read_undo,
    records,
    require_cuda_seen,
    seen,
    undo_by_conda,
    undo_known,
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
    program: str,
) -> int:
    """Decide, plan, show, ask, execute; the exit code."""
    wanted = resolver_request(request, asked, by_conda=True)
    task = decide(request, job.talk, machine, asked, wanted)
    plan = plan_by_conda(task, target, program)
    if task.is_done:
        answer = conda_answer(job, plan, "unchanged")
        out.answer(answer, unchanged_text(answer, task.notes))
        return 0
    if request.dry_run:
        out.answer(conda_answer(job, plan, "planned"), conda_text(plan, conda_says(plan)))
        return 0
    require_cuda_seen(plan, machine)
    out.talk(conda_text(plan, "" if request.yes else conda_says(plan)))
    if is_refused(request, out):
        return 1
    outcome = execute_conda(job, plan, verify=not request.no_verify)
    answer = conda_answer(job, plan, "planned", outcome)
    undo = read_undo(Path(plan.prefix, STORE))
    way = f"`gpusetup install --undo --python {plan.prefix}` goes back to revision"
    out.answer(answer, outcome_text(answer) + plain(f"{way} {undo.revision}\n" if undo else ""))
    return 0 if outcome.kept else 1


def undo(request: InstallRequest, out: Console, log: Log, folder: Path, kept: CondaUndo) -> int:
    """`--undo` where the last installation was conda's: show conda's own command, ask, run it."""
    store = folder / STORE
    step = undo_known(store, kept)
    answer = InstallAnswer(
        state="planned",
        target=str(folder),
        before=seen(builds(records(str(folder)))),
        after=seen(kept.packages),
        steps=(DoneStep(argv=step.argv),),
        log=str(log.path),
    )
    text = undo_text(str(folder), f"revision {kept.reached} -> {kept.revision}", (step,), ())
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
