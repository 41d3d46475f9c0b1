"""Installs by conda, mamba or micromamba, where one of them has installed torch.

conda changes an environment in a transaction of its own, and each change is a revision that conda
itself goes back to: mamba took `--revision` for years and did nothing
(https://github.com/mamba-org/mamba/issues/803), and a revision takes with it what has come since.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gpusetup.install.answers import versions_after
from gpusetup.install.complaints import conda_failed
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.packages import torch_family
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove, prove
from gpusetup.install.switching.change import drop_leftovers, require_finished
from gpusetup.install.switching.journal import RECEIPT, STORE, UNDO
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import write_receipt
from gpusetup.install.target.find import Target
from gpusetup.install.target.in_use import users_of
from gpusetup.install.target.layout import distributions
from gpusetup.installers import INSTALLERS
from gpusetup.installers.options import InstallerOptions, packages_step
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Choice
from gpusetup.model.shell import own_line
from gpusetup.system.processes import run
from gpusetup.system.signals import interruptible

PROGRAMS = ("conda", "mamba", "micromamba")
SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""
CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""


def conda_program(environ: Mapping[str, str]) -> str | None:
    """The conda, mamba or micromamba of this machine; an active one's own variable first."""
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        if (named := environ.get(variable)) and Path(named).is_file():
            return named
    found = (shutil.which(name, path=environ.get("PATH")) for name in PROGRAMS)
    return next(filter(None, found), None)


def plan_by_conda(task: Task, target: Target, program: str) -> Plan:
    """The plan for an environment of conda's; Blocked if it may not be changed."""
    prefix, asked, build = target.layout.prefix, task.asked, task.build
    target.require_changeable(task.elsewhere)
    if asked.family:
        wanted = ("torch", *asked.family, *asked.packages)
        options = InstallerOptions(packages=wanted, conda_prefix=prefix)
        steps = INSTALLERS["conda"](task.resolution, options)
    else:
        options = InstallerOptions(packages=asked.packages, conda_prefix=prefix)
        steps = (packages_step("conda", options),)
    return Plan(
        target=prefix,
        python=target.layout.python,
        choice=Choice(torch=build.torch, backend=build.backend, index_url=build.channel),
        why=task.why,
        steps=tuple(replace(one, argv=(program, *one.argv[1:])) for one in steps),
        before=torch_family(distributions(target.layout)),
        after=versions_after(task.resolution, asked),
        used_by=users_of(target.layout.libraries),
        notes=task.resolution.notes,
        device=device_to_prove(build.backend, task.gpus_here),
        installer="conda",
    )


def conda_says(plan: Plan) -> str:
    """What conda itself says that it would change."""
    said = []
    for step in plan.steps:
        output = run((*step.argv, "--dry-run"), timeout=SOLVE_SECONDS, environment=os.environ)
        said.append(output.stdout.strip() or output.stderr.strip())
    return without_logins("\n".join(said))


def execute_conda(job: Job, target: Target, plan: Plan, *, verify: bool) -> tuple[Plan, Outcome]:
    """Run the steps under the environment's lock and prove the result; the plan with what is there
    then."""
    store = Path(plan.target, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        require_finished(store)
        for step in plan.steps:
            job.talk("Installing ...")
            output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
            if not output.ok:
                raise conda_failed("conda cannot install it", output)
        verdict = prove(job, plan.python, plan.device) if verify else None
        (store / UNDO).unlink(missing_ok=True)
        drop_leftovers(store)
        plan = replace(plan, after=torch_family(distributions(target.layout)))
        write_receipt(store / RECEIPT, plan, job.done, verdict)
    return plan, Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def revisions(prefix: str) -> str:
    """The command that lists what conda can go back to."""
    return own_line("conda", "list", "--prefix", prefix, "--revisions")
