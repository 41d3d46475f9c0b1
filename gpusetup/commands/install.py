"""`gpusetup install`: resolve, show the steps, fetch, switch, verify, keep or put back."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from gpusetup.commands.common import gather, read_listed
from gpusetup.commands.install_asking import talk_of
from gpusetup.commands.install_options import check_usage, configure
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.install.job import Job
    from gpusetup.install.log import Log
    from gpusetup.install.request import InstallRequest
    from gpusetup.install.target.find import Target
    from gpusetup.model.machine import Snapshot

__all__ = ["EXAMPLES", "SUMMARY", "configure", "run"]

SUMMARY = """Install the PyTorch that fits this machine into an environment. Everything is shown
before it is done; wheels are fetched and checked first; then the environment is changed, proven by
computing, and kept or put back as it was."""

EXAMPLES = (
    "gpusetup install",
    "gpusetup install --venv .venv torchvision",
    "gpusetup install --torch 2.5.1 --backend cu124 --yes",
    "gpusetup install --dry-run --from rtx3050-laptop",
)


def run(options: argparse.Namespace, out: Console) -> int:
    read_listed(options, out)
    check_usage(options)
    from gpusetup.commands import install_variants as variants
    from gpusetup.install.log import naming_log, open_log

    request = request_of(options)
    if options.project:
        return variants.write_project(options, request, partial(gather, options, out), out)
    if options.machine_from:
        return variants.show_described(request, gather(options, out), out)
    log = open_log()
    try:
        if options.undo:
            from gpusetup.commands.install_state import undo

            return undo(request, out, log)
        return _install(options, request, out, log)
    except UsageError:
        log.path.unlink(missing_ok=True)
        raise
    except GpuSetupError as problem:
        log.line(f"error: {problem.message}")
        raise naming_log(problem, log) from problem


def request_of(options: argparse.Namespace) -> InstallRequest:
    """The options that the phases of an installation read."""
    from gpusetup.install.request import InstallRequest

    def frozen(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    given = vars(options)
    return InstallRequest(**{name: frozen(given[name]) for name in InstallRequest.__annotations__})


def _install(options: argparse.Namespace, request: InstallRequest, out: Console, log: Log) -> int:
    target, machine = _read_target(options, request, out)
    return _installed(request, out, _job(out, log), target, machine)


def _installed(
    request: InstallRequest, out: Console, job: Job, target: Target, machine: Snapshot
) -> int:
    """From the request to the switched environment, each step in the order in which it happens.

    `execute` locks, fetches, replaces, proves, and keeps the new state or puts the previous one
    back.
    """
    from gpusetup.commands import install_variants as variants
    from gpusetup.commands.install_asking import (
        is_proven,
        is_refused,
        kept_bytes,
        plan_screen,
        show_unchanged,
    )
    from gpusetup.install.answers import plan_answer
    from gpusetup.install.decide import decide
    from gpusetup.install.execute import execute
    from gpusetup.install.joint.coming import with_set
    from gpusetup.install.make_plan import plan_task
    from gpusetup.install.packages import requested_packages
    from gpusetup.install.request import resolver_request
    from gpusetup.install.target.place import refuse_unnamed_base
    from gpusetup.render.install import outcome_text
    from gpusetup.resolver.companions import environment_of
    from gpusetup.system.system import System

    asked = requested_packages(request.packages, target.installed, environment_of(machine))
    if asked.left_out:
        job.talk(asked.left_out_words)
    wanted = resolver_request(request, asked)
    if variant := variants.variant_of(request, machine):
        return variant(request, out, job, target, machine, asked)
    if request.wheelhouse:
        wanted = variants.use_wheelhouse(job, target, request.wheelhouse, wanted)
    task = decide(request, job.talk, machine, asked, wanted, fresh=target.venv is not None)
    if task.is_done:
        if is_proven(request, out, job, target, task):
            return 0
        task = task.again()
    refuse_unnamed_base(task.machine, task.elsewhere)
    target.require_changeable(task.elsewhere)
    task = with_set(request, job, task, asked, wanted, target)
    task, plan = plan_task(request, job, target, task)
    if not plan.wheels:
        return show_unchanged(out, job, target, task)
    if request.dry_run:
        out.answer(plan_answer(job, plan, task), plan_screen(plan))
        return 0
    out.talk(plan_screen(plan))
    if is_refused(request, out):
        return 1
    outcome = execute(job, System(), target, plan, verify=not request.no_verify)
    answer = plan_answer(job, plan, task, outcome)
    out.answer(answer, outcome_text(answer, kept_bytes(plan) if outcome.kept else None))
    return 0 if outcome.kept else 1


def _read_target(
    options: argparse.Namespace, request: InstallRequest, out: Console
) -> tuple[Target, Snapshot]:
    """The target and the machine around it, both read after an interrupted installation was ended:
    what it leaves is not what there is."""
    from gpusetup.install.recovery import recover_unfinished, target_folder
    from gpusetup.install.target.find import base_interpreter, read_target, venv_to_make
    from gpusetup.system.system import System

    recover_unfinished(target_folder(request), talk_of(out), dry_run=request.dry_run)
    venv = request.venv
    if venv is not None:
        is_new = venv_to_make(venv)
        options.python, venv = (base_interpreter(), venv) if is_new else (venv, None)
    machine = gather(options, out, need_target=True)
    return read_target(System(), machine.python.executable, venv), machine


def _job(out: Console, log: Log) -> Job:
    from gpusetup.install.job import new_job
    from gpusetup.render.progress import fetching

    return new_job(log, talk_of(out), partial(fetching, out.talk))
