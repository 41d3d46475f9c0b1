"""Lets conda, mamba or micromamba change an environment in which conda installed torch.

Each change is a separate transaction, so conda can return to the revision before it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusetup.errors import ToolFailed
from gpusetup.install.job import InstallJob, prove, run_step
from gpusetup.install.switching.journal import STORE
from gpusetup.install.switching.lock import locked
from gpusetup.install.target import Layout
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.steps import Step
from gpusetup.system.processes import run
from gpusetup.system.signals import interruptible
from gpusetup.uv.errors import said_by

SOLVE_SECONDS = 600.0
"""The time limit in seconds for conda's solver, which takes minutes on a slow disk or with a newly
loaded channel."""
INSTALL_SECONDS = 6 * 3600.0
"""The time limit in seconds for an installation. Gigabytes take hours over a slow connection."""
CLEANING_SECONDS = 30.0
"""How many seconds conda may take to roll back after Ctrl-C."""


def by_conda(machine: Snapshot) -> bool:
    """Whether conda must change this environment, because it installed torch there."""
    return machine.python.manager == "conda" and machine.torch.installer == "conda"


def conda_program() -> str | None:
    """The path of conda, mamba or micromamba; None if there is none. The program of an active
    environment is preferred."""
    active = (os.environ.get("CONDA_EXE"), os.environ.get("MAMBA_EXE"))
    names = (*active, "conda", "mamba", "micromamba")
    return next(filter(None, (shutil.which(name) for name in names if name)), None)


def conda_says(argv: Sequence[str]) -> list[str]:
    """The changes that conda would make with this command, as the lines that its dry run prints."""
    output = run((*argv, "--dry-run"), timeout=SOLVE_SECONDS)
    said = output.stdout.strip() or output.problem or output.stderr.strip()
    return without_logins(said).splitlines()


def install_by_conda(
    job: InstallJob, layout: Layout, argv: tuple[str, ...], device: str | None
) -> dict[str, Any] | None:
    """Run conda's command while the environment is locked, and return verify's result.

    Returns None if no device is given, because no test was requested.
    """
    store = Path(layout.prefix, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        job.talk("conda solves, downloads and installs: this takes minutes ...")
        step = Step(argv=argv, timeout_seconds=INSTALL_SECONDS)
        output = run_step(job, step, os.environ, gently_seconds=CLEANING_SECONDS)
        if not output.ok:
            raise ToolFailed(
                f"conda cannot install it: {output.problem or said_by(output)}",
                hint="conda rolls back the change; `conda list --revisions` shows its changes",
            )
        return None if device is None else prove(job, layout.python, device)
