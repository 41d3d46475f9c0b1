"""What the phases of an installation share, and how each of its commands is run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.install.complaints import complaint
from gpusetup.install.fetching.fetch import Fetcher, Progress
from gpusetup.install.fetching.wheel_cache import WORK_PREFIX
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.leftovers import held, released, sweep
from gpusetup.install.log import Log
from gpusetup.install.plan import Plan
from gpusetup.install.settings.environment import (
    asking_environment,
    in_image_build,
    logins,
    switching_environment,
    uv_program,
)
from gpusetup.install.switching.lock import ending_with_us, outliving_us
from gpusetup.model.documents import DoneStep
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, Record, replace
from gpusetup.system.processes import Output, run

if TYPE_CHECKING:
    from gpusetup.install.request import InstallRequest

WORKERS = 4
PIP_SECONDS = 3600.0


class Job(Record):
    """What the phases of one installation share."""

    log: Log
    fetcher: Fetcher
    cache: Path
    """The folder of checked wheels: our cache, or the user's wheelhouse."""
    uv: str
    environ: Mapping[str, str]
    show_progress: Callable[[Sequence[Wheel]], AbstractContextManager[Progress]]
    """Shows what comes in while its block lasts."""
    talk: Callable[[str], None] = lambda _text: None
    confirm: Callable[[Plan], None] = lambda _plan: None
    """Shows a plan that was not fully known when it was shown; raises where it is refused."""
    wheels: tuple[Wheel, ...] = ()
    """With `--wheelhouse`: what it holds; no index is asked."""
    keep: bool = True
    """Whether what was there is kept for `--undo`."""
    owns_cache: bool = True
    """Whether `cache` is ours, so that what is not used is deleted from it."""
    pip: str | None = None
    """An interpreter of the target's version whose pip may be asked."""
    store: Path | None = None
    """The target's store, once its lock is held."""
    done: list[DoneStep] = []


class Outcome(Frozen):
    """How it ended: kept or put back, and what verify said."""

    kept: bool
    verdict: dict[str, Any] | None = None
    receipt: str | None = None


@contextmanager
def work_folder(job: Job) -> Iterator[Path]:
    """A folder for what is needed for a while, on the disk of the cache: wheels of gigabytes
    pass through it, and the disk of TMPDIR may be small."""
    disk = Path(_work_disk(job) or tempfile.gettempdir())
    sweep(disk, f"{WORK_PREFIX}*")
    folder = held(lambda: Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=disk)))
    try:
        yield folder
    finally:
        released(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _work_disk(job: Job) -> Path | None:
    """The cache; the usual one while that is not made yet, or is a user's wheelhouse; None, which
    is TMPDIR, where neither can be written."""
    if job.owns_cache and job.cache.is_dir() and os.access(job.cache, os.W_OK):
        return job.cache
    ours = default_wheel_cache(job.environ)
    try:
        ours.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return ours if os.access(ours, os.W_OK) else None


def temporary(folder: Path) -> dict[str, str]:
    """The variables that tell programs to put what is needed for a while there."""
    return dict.fromkeys(("TMPDIR",) if os.name == "posix" else ("TEMP", "TMP"), str(folder))


def run_step(
    job: Job,
    step: Step,
    environment: Mapping[str, str] | None = None,
    *,
    gently_seconds: float = 0.0,
) -> Output:
    """Run one step and keep what it was and said; unless told otherwise in the switch's own
    environment, where no setting of the user's reaches uv or pip.

    `gently_seconds`: it is one that cleans up after itself. It is not killed with us, and may take
    so long after a Ctrl-C.
    """
    job.log.command(step.argv)
    environment = {**(environment or switching_environment(job.environ)), **step.environment}
    argv = (outliving_us if gently_seconds else ending_with_us)(step.argv, job.store)
    output = run(
        argv,
        timeout=step.timeout_seconds,
        environment=environment,
        gently_seconds=gently_seconds,
    )
    output = replace(output, argv=step.argv)
    job.log.output(output)
    job.done.append(DoneStep(argv=step.argv, seconds=round(output.seconds, 3), exit=output.exit))
    return output


def make_environment(job: Job, step: Step, folder: str) -> None:
    """Run the step that makes the environment; its pip, if any, comes from the user's own index."""
    output = run_step(job, step, asking_environment(job.environ, Path.home()))
    if not output.ok:
        raise complaint(f"{folder} cannot be made", output)


def torch_of(plan: Plan) -> str | None:
    """The version of torch that verify has to find."""
    return plan.after.get("torch") or None


def default_wheel_cache(environ: Mapping[str, str]) -> Path:
    """Where checked wheels are kept between installations."""
    from platformdirs import user_cache_path

    return (
        Path(environ.get("GPUSETUP_CACHE") or user_cache_path("gpusetup", appauthor=False))
        / "wheels"
    )


def new_job(
    request: InstallRequest,
    log: Log,
    talk: Callable[[str], None],
    show_progress: Callable[[Sequence[Wheel]], AbstractContextManager[Progress]],
    pip: str = sys.executable,
) -> Job:
    """What the phases share; `pip` is an interpreter of the target's version that has pip."""
    return Job(
        log=log,
        fetcher=Fetcher(log.line, logins(os.environ, Path.home(), request.index_root)),
        cache=default_wheel_cache(os.environ),
        uv=uv_program(),
        environ=os.environ,
        show_progress=show_progress,
        talk=talk,
        keep=not in_image_build(),
        pip=pip,
    )
