"""The values that all phases of an installation share, and how a phase runs a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gpusetup.install.switching.lock import launched
from gpusetup.model.documents import DoneStep
from gpusetup.model.frozen import Frozen, Record, replace
from gpusetup.model.steps import Step
from gpusetup.system.processes import Output, run
from gpusetup.uv.lock import Wheel

Progress = Callable[[Sequence[Wheel]], AbstractContextManager[None]]
"""A context manager that, during its block, shows how much of these wheels uv's cache already
contains."""


class InstallJob(Record):
    """The values that the phases of one installation share."""

    show_progress: Progress
    talk: Callable[[str], None]
    wheels: str | None = None
    """The folder of wheels for `--offline`. If it is set, no index is asked."""
    store: Path | None = None
    """The target's store; None until its lock is held."""
    done: list[DoneStep] = []


class InstallOutcome(Frozen):
    """How an installation ended: whether the new files were kept or the old ones restored, and
    verify's result."""

    kept: bool
    verdict: dict[str, Any] | None = None
    receipt: str | None = None


def run_step(
    job: InstallJob,
    step: Step,
    environment: Mapping[str, str] | None = None,
    *,
    gently_seconds: float = 0.0,
    folder: str | None = None,
) -> Output:
    """Run a command and record it. `folder` is its working folder. With `gently_seconds`, the
    command is not killed with gpusetup, but has this many seconds to clean up after Ctrl-C."""
    output = run(
        launched(step.argv, job.store, outlives=gently_seconds > 0),
        timeout=step.timeout_seconds,
        environment={**(environment or os.environ), **step.environment},
        gently_seconds=gently_seconds,
        cwd=folder,
    )
    output = replace(output, argv=step.argv)
    job.done.append(DoneStep(argv=step.argv, seconds=round(output.seconds, 3), exit=output.exit))
    return output
