"""conda, mamba or micromamba changes an environment in which it has installed torch.

Each change is a transaction of its own, and a revision that conda itself goes back to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusetup.errors import ToolFailed
from gpusetup.install.job import Job, run_step
from gpusetup.install.proof import prove
from gpusetup.install.switching.change import recover
from gpusetup.install.switching.journal import STORE
from gpusetup.install.switching.lock import locked
from gpusetup.install.target.layout import Layout
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.steps import Step
from gpusetup.system.processes import run
from gpusetup.system.signals import interruptible
from gpusetup.uv.errors import said_by

PROGRAMS = ("conda", "mamba", "micromamba")
SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""
CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""


def by_conda(machine: Snapshot) -> bool:
    """Whether conda has installed torch: conda changes it, else uv."""
    return machine.python.manager == "conda" and machine.torch.installer == "conda"


def conda_program() -> str | None:
    """The conda, mamba or micromamba of this machine; an active one's own variable first."""
    named = filter(None, map(os.environ.get, ("CONDA_EXE", "MAMBA_EXE")))
    return next(filter(None, map(shutil.which, (*named, *PROGRAMS))), None)


def conda_says(argv: Sequence[str]) -> str:
    """What conda itself says that it would change."""
    said = run((*argv, "--dry-run"), timeout=SOLVE_SECONDS)
    return without_logins(said.stdout.strip() or said.problem or said.stderr.strip())


def install_by_conda(
    job: Job, layout: Layout, argv: tuple[str, ...], device: str | None
) -> dict[str, Any] | None:
    """Run conda's command under the environment's lock; what verify says then of a device."""
    store = Path(layout.prefix, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        recover(store)
        job.talk("conda solves, downloads and installs: this takes minutes ...")
        step = Step(argv=argv, title="", timeout_seconds=6 * 3600.0)
        output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
        if not output.ok:
            said = output.problem or said_by(output)
            raise ToolFailed(
                f"conda cannot install it: {said}",
                hint="conda itself rolls back what it began: `conda list --revisions`",
            )
        return prove(job, layout.python, device) if device else None
