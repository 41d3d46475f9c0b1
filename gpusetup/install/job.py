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
from gpusetup.uv.settings import PersonSettings, person_settings

Progress = Callable[[Sequence[Wheel], Path], AbstractContextManager[None]]
"""Shows, while its block lasts, what of these wheels has come into uv's cache."""


class InstallJob(Record):
    """The values that the phases of one installation share."""

    show_progress: Progress
    talk: Callable[[str], None]
    wheels: str | None = None
    """With `--offline`: the folder that holds them; no index is asked."""
    store: Path | None = None
    """The target's store, once its lock is held."""
    done: list[DoneStep] = []
    contacted: tuple[str, ...] = ()
    """The hosts that uv was connected with while it fetched."""
    prefix: str | None = None
    """The environment; its own pip.conf is not read, and named where that matters."""
    read_settings: PersonSettings | None = None

    @property
    def settings(self) -> PersonSettings:
        """The person's settings for uv and pip, read when they are first needed."""
        if self.read_settings is None:
            self.read_settings = person_settings(self.prefix)
        return self.read_settings


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
    """Run a command and record it. With `gently_seconds`, the command is not killed with gpusetup
    and gets this time to clean up after a Ctrl-C. `folder` is its working folder."""
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
