"""Carries a plan out: fetch and check everything, switch offline, verify, keep or put back."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from gpusetup.answers import DoneStep
from gpusetup.errors import Blocked, GpuSetupError
from gpusetup.install.fetch import Fetcher, NeedsLogin, Progress
from gpusetup.install.house import WORKPLACE
from gpusetup.install.lock import ending_with_us, outliving_us
from gpusetup.install.log import Log
from gpusetup.install.plan import Plan
from gpusetup.install.tools import asking_environment, complaint, switching_environment
from gpusetup.install.wheels import DEFAULT_INDEX, Wheel
from gpusetup.model import Step
from gpusetup.run import Output, run
from gpusetup.value import Record, Value, replace

VERIFY = Path(__file__).resolve().parent.parent / "verify"
VERIFY_SECONDS = 900.0
WORKERS = 4
PIP_SECONDS = 3600.0


class Job(Record):
    """What the phases of one installation share."""

    log: Log
    fetcher: Fetcher
    house: Path
    """The wheelhouse: where checked wheels lie."""
    uv: str
    environ: Mapping[str, str]
    fetching: Callable[[Sequence[Wheel]], AbstractContextManager[Progress]]
    """Shows what comes in while its block lasts."""
    say: Callable[[str], None] = lambda _text: None
    agree: Callable[[Plan], None] = lambda _plan: None
    """Shows a plan that was not fully known when it was shown; raises where it is refused."""
    wheels: tuple[Wheel, ...] = ()
    """With `--wheelhouse`: what it holds; no index is asked."""
    keep: bool = True
    """Whether what was there is kept for `--undo`."""
    own_house: bool = True
    """Whether the wheelhouse is our cache, where what is not used goes."""
    pip: str | None = None
    """An interpreter of the target's version whose pip may be asked."""
    store: Path | None = None
    """The target's store, once its lock is held."""
    done: list[DoneStep] = []


class Outcome(Value):
    """How it ended: kept or put back, and what verify said."""

    kept: bool
    verdict: dict[str, Any] | None = None
    receipt: str | None = None


def fetch_all(job: Job, wheels: Sequence[Wheel], progress: Progress) -> tuple[Path, ...]:
    """Every wheel, checked, in the wheelhouse; the first fault ends it."""
    try:
        job.house.mkdir(parents=True, exist_ok=True, mode=0o700 if job.own_house else 0o777)
    except OSError as problem:
        raise Blocked(
            f"{job.house} cannot be made: {problem.strerror}",
            hint="nothing was changed; set XDG_CACHE_HOME to a folder that can be written",
        ) from problem
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
        return job.fetcher.wheel(wheel, job.house, progress)
    except NeedsLogin as problem:
        if wheel.source != DEFAULT_INDEX or job.pip is None:
            raise
        job.log.line(f"{problem.message}; asking pip")
        return _by_pip(job, job.pip, wheel, problem)


def _by_pip(job: Job, python: str, wheel: Wheel, problem: NeedsLogin) -> Path:
    """The wheel by `pip download`, with pip's own settings and keyring; checked as any other."""
    with workplace(job) as folder:
        options = ("--no-deps", "--only-binary", ":all:", "--dest", str(folder))
        argv = (python, "-m", "pip", "download", *options, f"{wheel.name}=={wheel.version}")
        environment = {**asking_environment(job.environ, Path.home()), **temporary(folder)}
        said = run(argv, timeout=PIP_SECONDS, environment=environment)
        job.log.command(argv)
        job.log.output(said)
        came = Path(folder, wheel.filename)
        if not came.is_file():
            raise problem
        return job.fetcher.wheel(replace(wheel, url=came.as_uri()), job.house)


@contextmanager
def workplace(job: Job) -> Iterator[Path]:
    """A folder for what is needed for a while, on the disk of the wheelhouse: wheels of gigabytes
    pass through it, and the disk of TMPDIR may be small."""
    with tempfile.TemporaryDirectory(prefix=WORKPLACE, dir=_roomy(job)) as folder:
        yield Path(folder)


def _roomy(job: Job) -> Path | None:
    """Our wheelhouse; our cache while that is not made yet, or is somebody's own and stays as it
    is; None, which is TMPDIR, where neither can be written."""
    if job.own_house and job.house.is_dir() and os.access(job.house, os.W_OK):
        return job.house
    ours = default_house(job.environ)
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
    said = run(
        argv,
        timeout=step.timeout_seconds,
        environment=environment,
        gently_seconds=gently_seconds,
    )
    said = replace(said, argv=step.argv)
    job.log.output(said)
    job.done.append(DoneStep(argv=step.argv, seconds=round(said.seconds, 3), exit=said.exit))
    return said


def make_environment(job: Job, step: Step, folder: str) -> None:
    """Run the step that makes the environment; its pip, if any, comes from the user's own index."""
    said = run_step(job, step, asking_environment(job.environ, Path.home()))
    if not said.ok:
        raise complaint(f"{folder} cannot be made", said)


def torch_of(plan: Plan) -> str | None:
    """The version of torch that verify has to find."""
    return plan.after.get("torch") or None


@contextmanager
def undisturbed() -> Iterator[None]:
    """No Ctrl-C inside the block."""
    with handled(signal.SIG_IGN, signal.SIGINT, *ENDING):
        yield


@contextmanager
def stoppable() -> Iterator[None]:
    """Whoever ends us inside the block (a closed terminal, `kill`) ends us as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with handled(stop, *ENDING):
        yield


ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def handled(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """These signals are handled so inside the block, where we may say so (the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(one, signal.signal(one, handler)) for one in signals]
    try:
        yield
    finally:
        for one, former in before:
            signal.signal(one, former)


def prove(job: Job, python: str, device: str, torch: str | None = None) -> dict[str, Any]:
    """The verify document of the target, made by the target's own interpreter.

    `torch` is the version it has to find: another one may come first on the user's path.
    """
    job.say("Verifying ...")
    expected = ("--expect", f"torch=={torch}") if torch else ()
    argv = (python, str(VERIFY), "--json", "--device", device, *expected)
    job.log.command(argv)
    said = run(
        ending_with_us(argv, job.store), timeout=VERIFY_SECONDS, environment=dict(job.environ)
    )
    job.log.output(said)
    return parse_verdict(said)


def parse_verdict(said: Output) -> dict[str, Any]:
    """What verify answered; where it answered nothing, a verdict that says so."""
    try:
        answer = json.loads(said.stdout)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("verdict") in ("passed", "failed"):
        return answer
    how = said.problem or f"ended with {said.exit} and no answer"
    detail = said.stderr.strip().rpartition("\n")[2]
    check = {
        "name": "verify",
        "device": "",
        "status": "crashed",
        "detail": f"{how} {detail}".strip(),
    }
    return {"schema": "gpusetup.verify/1", "verdict": "failed", "checks": [check]}


def naming_log(problem: GpuSetupError, log: Log) -> GpuSetupError:
    """The same error, with the log in its hint."""
    hint = f"{problem.hint}\n" if problem.hint else ""
    return type(problem)(problem.message, hint=f"{hint}log: {log.path}")


def default_house(environ: Mapping[str, str]) -> Path:
    """Where checked wheels are kept between installations."""
    from platformdirs import user_cache_path

    return (
        Path(environ.get("GPUSETUP_CACHE") or user_cache_path("gpusetup", appauthor=False))
        / "wheels"
    )
