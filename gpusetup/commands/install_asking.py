"""What every way of `gpusetup install` shows and asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.causes.torch import INSTALL_UNFINISHED
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.install.decide import Task
    from gpusetup.install.job import Job
    from gpusetup.install.plan import Plan
    from gpusetup.install.request import InstallRequest
    from gpusetup.install.target.find import Target


def talk_of(out: Console) -> Callable[[str], None]:
    """Tells what goes on, without the control codes of foreign text."""
    return lambda text: out.talk(plain(text))


def agreed() -> bool:
    CLOCK.end()
    sys.stderr.write("Proceed? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def is_refused(request: InstallRequest, out: Console, what: str = "changed") -> bool:
    """Ask, unless nobody is to be asked; whether the answer is no, which is told."""
    if request.yes or agreed():
        return False
    out.talk(f"Nothing was {what}.")
    return True


def plan_screen(plan: Plan) -> str:
    """The plan as text, with what is free on the disk."""
    from gpusetup.install.target.disk_space import disk_need
    from gpusetup.render.install import plan_text

    return plan_text(plan, free_bytes=disk_need(plan.target, 0).free_bytes)


def kept_bytes(plan: Plan) -> int | None:
    """How much is kept for `--undo`."""
    from gpusetup.install.switching.files import files_below
    from gpusetup.install.switching.journal import STORE, UNDO, read_journal

    store = Path(plan.target, STORE)
    undo = read_journal(store, UNDO)
    if undo is None:
        return None
    return sum(Path(path).lstat().st_size for path in files_below(str(store / undo.former)))


def is_proven(request: InstallRequest, out: Console, job: Job, target: Target, task: Task) -> bool:
    """Whether what is there already is right, which is shown then. Nothing is, where a dry run left
    an interrupted installation as it is: what that ends in comes first."""
    from gpusetup.install.proof import prove_task

    if any(event.kind == INSTALL_UNFINISHED.id for event in task.machine.events):
        return False
    verdict = None
    if not (request.no_verify or request.dry_run):
        verdict = prove_task(job, target, task)
    if verdict is not None and verdict["verdict"] != "passed":
        out.talk("The right build is there, but fails; it will be installed again.")
        return False
    show_unchanged(out, job, target, task, verdict)
    return True


def show_unchanged(
    out: Console, job: Job, target: Target, task: Task, verdict: dict[str, Any] | None = None
) -> int:
    from gpusetup.install.answers import unchanged_answer
    from gpusetup.render.install import unchanged_text

    answer = unchanged_answer(job, target, task, verdict)
    out.answer(answer, unchanged_text(answer, task.notes))
    return 0
