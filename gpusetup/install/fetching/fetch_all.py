"""Fetches every wheel of a plan, several at a time; by pip where only pip has the credentials."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpusetup.install.fetching.fetch import Progress
from gpusetup.install.fetching.web import NeedsLogin
from gpusetup.install.fetching.wheels import DEFAULT_INDEX, Wheel
from gpusetup.install.job import PIP_SECONDS, WORKERS, Job, temporary, work_folder
from gpusetup.install.settings.environment import asking_environment
from gpusetup.model.frozen import replace
from gpusetup.system.processes import run
from gpusetup.system.refused import blocked_by_files


def fetch_wheels(job: Job, wheels: Sequence[Wheel]) -> tuple[Path, ...]:
    with job.show_progress(wheels) as progress:
        return _fetch_all(job, wheels, progress)


def _fetch_all(job: Job, wheels: Sequence[Wheel], progress: Progress) -> tuple[Path, ...]:
    """Every wheel, checked, in the cache; the first fault ends it."""
    hint = "nothing was changed; set XDG_CACHE_HOME to a folder that can be written"
    with blocked_by_files(f"{job.cache} cannot be made", hint):
        job.cache.mkdir(parents=True, exist_ok=True, mode=0o700 if job.owns_cache else 0o777)
    with ThreadPoolExecutor(WORKERS) as pool:
        calls = [pool.submit(_fetched, job, one, progress) for one in wheels]
        try:
            return tuple(call.result() for call in calls)
        except BaseException:
            job.fetcher.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetched(job: Job, wheel: Wheel, progress: Progress) -> Path:
    """One wheel; by pip where the user's index wants credentials that only pip can find."""
    try:
        return job.fetcher.wheel(wheel, job.cache, progress)
    except NeedsLogin as problem:
        if wheel.source != DEFAULT_INDEX or job.pip is None:
            raise
        job.log.line(f"{problem.message}; asking pip")
        return _by_pip(job, job.pip, wheel, problem)


def _by_pip(job: Job, python: str, wheel: Wheel, problem: NeedsLogin) -> Path:
    """The wheel by `pip download`, with pip's own settings and keyring; checked as any other."""
    with work_folder(job) as folder:
        options = ("--no-deps", "--only-binary", ":all:", "--dest", str(folder))
        argv = (python, "-m", "pip", "download", *options, f"{wheel.name}=={wheel.version}")
        environment = {**asking_environment(job.environ, Path.home()), **temporary(folder)}
        output = run(argv, timeout=PIP_SECONDS, environment=environment)
        job.log.command(argv)
        job.log.output(output)
        came = Path(folder, wheel.filename)
        if not came.is_file():
            raise problem
        return job.fetcher.wheel(replace(wheel, url=came.as_uri()), job.cache)
