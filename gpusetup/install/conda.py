"""Installs by conda, mamba or micromamba, where one of them has installed torch.

conda changes an environment in a transaction of its own, and each change is a revision in
`conda-meta/history`. gpusetup names the command that goes back to one, and does not run it: mamba
took `--revision` for years and did nothing (https://github.com/mamba-org/mamba/issues/803), and a
revision takes with it what has come since.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.install.answers import versions_after
from gpusetup.install.complaints import conda_failed
from gpusetup.install.credentials import redacted, without_logins
from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.proof import device_to_prove, prove
from gpusetup.install.switching.change import drop_leftovers, require_finished
from gpusetup.install.switching.files import read_json_object
from gpusetup.install.switching.journal import RECEIPT, STORE, UNDO
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import (
    Receipt,
    now,
    read_receipt,
    shareable,
    write_receipt,
)
from gpusetup.install.target.find import Target
from gpusetup.install.target.in_use import User, users_of
from gpusetup.installers import INSTALLERS
from gpusetup.installers.options import InstallerOptions, packages_step
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import own_line
from gpusetup.system.processes import run
from gpusetup.system.signals import interruptible

PROGRAMS = ("conda", "mamba", "micromamba")
SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""
CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""
RECORD_BYTES = 64 << 20
"""More than that no record of a package has; it lists every file."""
SEEN = ("pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "cuda-version")
"""What is shown of a conda environment before and after."""


class CondaPlan(Frozen):
    """What conda will be told to do, where, and how it is proven."""

    target: str
    python: str
    task: Task
    steps: tuple[Step, ...]
    used_by: tuple[User, ...]
    """Programs that have torch of the target loaded."""
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def why(self) -> str | None:
        return self.task.why

    @property
    def backend(self) -> str:
        build = self.task.resolution.build
        return build.backend if build else "cpu"


# --- what is there --------------------------------------------------------------------------------


def conda_program(environ: Mapping[str, str]) -> str | None:
    """The conda, mamba or micromamba of this machine; an active one's own variable first."""
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        if (named := environ.get(variable)) and Path(named).is_file():
            return named
    found = (shutil.which(name, path=environ.get("PATH")) for name in PROGRAMS)
    return next(filter(None, found), None)


def records(prefix: str) -> dict[str, dict[str, Any]]:
    """Every package that conda has put into an environment: name -> its record."""
    found = {}
    for path in sorted(Path(prefix, "conda-meta").glob("*.json")):
        record = read_json_object(path, RECORD_BYTES) or {}
        if isinstance(record.get("name"), str) and isinstance(record.get("version"), str):
            found[record["name"]] = record
    return found


def seen(prefix: str) -> dict[str, str]:
    """Name -> version and build of what is shown: `2.5.1 py3.11_cuda`."""
    return {
        name: f"{one['version']} {one.get('build', '')}".strip()
        for name, one in records(prefix).items()
        if name in SEEN
    }


def revision(prefix: str) -> int | None:
    """The number of an environment's last revision, from 0; None where conda keeps no history."""
    try:
        text = Path(prefix, "conda-meta", "history").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    count = len(re.findall(r"(?m)^==>\s*.+?\s*<==", text))
    return count - 1 if count else None


# --- the plan -------------------------------------------------------------------------------------


def plan_by_conda(task: Task, target: Target, program: str) -> CondaPlan:
    """The plan for an environment of conda's; Blocked if it may not be changed."""
    prefix, asked = target.layout.prefix, task.asked
    target.require_changeable(task.elsewhere)
    if asked.family:
        wanted = ("torch", *asked.family, *asked.packages)
        options = InstallerOptions(packages=wanted, conda_prefix=prefix)
        steps = INSTALLERS["conda"](task.resolution, options)
    else:
        steps = (
            packages_step("conda", InstallerOptions(packages=asked.packages, conda_prefix=prefix)),
        )
    return CondaPlan(
        target=prefix,
        python=target.layout.python,
        task=task,
        steps=tuple(replace(one, argv=(program, *one.argv[1:])) for one in steps),
        used_by=users_of(target.layout.libraries),
        before=seen(prefix),
        after=versions_after(task.resolution, asked),
    )


def conda_says(plan: CondaPlan) -> str:
    """What conda itself says that it would change."""
    said = []
    for step in plan.steps:
        output = run((*step.argv, "--dry-run"), timeout=SOLVE_SECONDS, environment=os.environ)
        said.append(output.stdout.strip() or output.stderr.strip())
    return without_logins("\n".join(said))


# --- changing, and the way back -------------------------------------------------------------------


def execute_conda(job: Job, plan: CondaPlan, *, verify: bool) -> Outcome:
    """Run the steps under the environment's lock, prove the result, and note what was there."""
    prefix, store = plan.target, Path(plan.target, STORE)
    with interruptible(), locked(store, job.talk):
        job.store, began = store, revision(prefix)
        require_finished(store)
        for step in plan.steps:
            job.talk("Installing ...")
            output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
            if not output.ok:
                raise conda_failed("conda cannot install it", output)
        device = device_to_prove(plan.backend, plan.task.gpus_here)
        verdict = prove(job, plan.python, device) if verify else None
        (store / UNDO).unlink(missing_ok=True)
        drop_leftovers(store)
        receipt = Receipt(
            installed_at=now(),
            python=redacted(plan.python),
            backend=plan.backend,
            installer="conda",
            before=plan.before,
            after=seen(prefix),
            steps=tuple(shareable(step) for step in job.done),
            revision=began,
            verdict=None if verdict is None else {"verdict": verdict["verdict"]},
        )
        write_receipt(store / RECEIPT, receipt)
    return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def way_back(store: Path) -> str | None:
    """conda's own command that takes the last installation back, if that was conda's."""
    receipt = read_receipt(store / RECEIPT)
    if receipt is None or receipt.revision is None:
        return None
    prefix, number = str(store.parent), str(receipt.revision)
    return own_line("conda", "install", "--prefix", prefix, "--revision", number)


def refuse_undo(store: Path) -> None:
    """`Blocked` with that command."""
    if line := way_back(store):
        raise Blocked(
            f"conda has installed torch into {store.parent}, and conda itself takes it back",
            hint=f"nothing was changed; `{line}` restores what was there, and removes what conda "
            "has installed since (`conda list --revisions` shows it)",
        )
