"""`gpusetup install` by conda, mamba or micromamba, for environments that are theirs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.answers import DoneStep, InstallAnswer
from gpusetup.commands.install_decision import Task, task_of
from gpusetup.commands.install_parts import (
    after_of,
    new_job,
    refused,
    request_of,
    tell_if_held,
)
from gpusetup.errors import Blocked
from gpusetup.install.by_conda import (
    Target,
    carry_out_conda,
    conda_prefix,
    conda_program,
    conda_steps,
    needs_cuda_to_be_seen,
    shown,
    undo_by_conda,
)
from gpusetup.install.conda_history import (
    CondaUndo,
    conda_itself,
    read_undo,
    records,
    undo_known,
)
from gpusetup.install.conda_plan import Move, moves_of
from gpusetup.install.inuse import users_of
from gpusetup.install.plan import device_to_prove
from gpusetup.install.prepare import check_target
from gpusetup.install.transaction import STORE
from gpusetup.install.wish import Wish, packages_step
from gpusetup.render.console import Console, plain
from gpusetup.render.install import command, outcome_text, steps_text, unchanged_text
from gpusetup.value import replace

if TYPE_CHECKING:
    from gpusetup.install.log import Log
    from gpusetup.install.plan import Asked
    from gpusetup.install.prepare import Where
    from gpusetup.install.run import Job
    from gpusetup.model import Resolution, Snapshot, Step


def conda_is_meant(options: argparse.Namespace, snapshot: Snapshot) -> bool:
    """Where conda has installed torch, another installer would leave two in one place."""
    if options.installer != "auto":
        return bool(options.installer == "conda")
    theirs = snapshot.python.manager == "conda" and snapshot.torch.installer == "conda"
    return theirs and not options.venv and conda_program(os.environ) is not None


def by_conda(
    options: argparse.Namespace,
    out: Console,
    job: Job,
    where: Where,
    snapshot: Snapshot,
    asked: Asked,
) -> int:
    """Show the recipe's step, ask, run, prove; the exit code."""
    prefix, program = conda_prefix(snapshot), conda_program(os.environ)
    task = task_of(options, out, snapshot, asked, request_of(options, asked, by_conda=True))
    resolution, asked = task.resolution, task.asked
    if task.is_done:
        return _unchanged(out, job, prefix, task)
    if where.venv is None:
        check_target(where.layout, task.elsewhere)
    steps = _conda_steps(task, prefix, program)
    users = users_of(where.layout.libraries)
    if options.dry_run:
        text = steps_text(prefix, resolution, steps, users, _moves(program, steps))
        out.answer(_planned(job, prefix, resolution, asked, steps), text)
        return 0
    if program is None:
        raise Blocked(
            "Neither conda nor mamba nor micromamba is found on PATH",
            hint="activate it, or use `--installer uv`; `--dry-run` shows the recipe",
        )
    needs_cuda_to_be_seen(resolution, snapshot, os.environ)
    tell_if_held(Path(prefix, STORE), out)
    moves = () if options.yes else _moves(program, steps)
    out.talk(steps_text(prefix, resolution, steps, users, moves))
    if refused(options, out):
        return 1
    return _carried_out(options, out, job, snapshot, resolution, prefix, steps)


def _moves(program: str | None, steps: tuple[Step, ...]) -> tuple[Move, ...] | None:
    """What conda would change, by its own plan; () where there is no conda to ask."""
    return moves_of(steps, os.environ) if program else ()


def _conda_steps(task: Task, prefix: str, program: str | None) -> tuple[Step, ...]:
    """The recipe; where torch stays and no companion is wanted, the packages alone."""
    asked = task.asked
    if asked.family:
        family = ("torch", *(name for name in asked.family if name != "torch"))
        return conda_steps(task.resolution, (*family, *asked.packages), prefix, program)
    step = packages_step("conda", Wish(packages=asked.packages, conda_prefix=prefix))
    return (replace(step, argv=(program or "conda", *step.argv[1:])),)


def _unchanged(out: Console, job: Job, prefix: str, task: Task) -> int:
    before = shown(records(prefix))
    answer = InstallAnswer(
        state="unchanged",
        target=prefix,
        before=before,
        after=before,
        steps=(),
        log=str(job.log.path),
        why=task.why,
        newest=task.newest,
    )
    out.answer(answer, unchanged_text(answer, task.notes))
    return 0


def _planned(
    job: Job, prefix: str, resolution: Resolution, asked: Asked, steps: tuple[Step, ...]
) -> InstallAnswer:
    return InstallAnswer(
        state="planned",
        target=prefix,
        before=shown(records(prefix)),
        after=after_of(resolution, asked),
        steps=tuple(DoneStep(argv=step.argv) for step in steps),
        log=str(job.log.path),
    )


def _carried_out(
    options: argparse.Namespace,
    out: Console,
    job: Job,
    snapshot: Snapshot,
    resolution: Resolution,
    prefix: str,
    steps: tuple[Step, ...],
) -> int:
    before = shown(records(prefix))
    backend = resolution.build.backend if resolution.build else "cpu"
    gpus = None if snapshot.gpus is None else len(snapshot.gpus)
    target = Target(
        prefix=prefix,
        python=snapshot.python.executable or str(Path(prefix, "bin", "python")),
        backend=backend,
        device=device_to_prove(backend, gpus),
    )
    outcome = carry_out_conda(job, steps, target, verify=not options.no_verify)
    answer = InstallAnswer(
        state="installed" if outcome.kept else "restored",
        target=prefix,
        before=before,
        after=shown(records(prefix)),
        steps=tuple(job.done),
        verdict=outcome.verdict,
        receipt=outcome.receipt,
        log=str(job.log.path),
    )
    out.answer(answer, outcome_text(answer) + _way_back(prefix))
    return 0 if outcome.kept else 1


def _way_back(prefix: str) -> str:
    undo = read_undo(Path(prefix, STORE))
    if undo is None:
        return ""
    return plain(
        f"`gpusetup install --undo --python {prefix}` goes back to revision {undo.revision}\n"
    )


def undo(options: argparse.Namespace, out: Console, log: Log, folder: Path, kept: CondaUndo) -> int:
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
    text = f"Target   {folder}\nUndo     revision {kept.reached} -> {kept.revision}\n"
    text = plain(f"{text}Steps\n  {command(step)}\n")
    tell_if_held(store, out)
    if options.dry_run:
        out.answer(answer, text)
        return 0
    out.talk(text)
    if refused(options, out):
        return 1
    job = new_job(options, out, log)
    undo_by_conda(job, store, kept)
    done = replace(answer, state="restored", steps=tuple(job.done))
    out.answer(done, plain(f"Undone. {folder} is at revision {kept.revision} again\n"))
    return 0
