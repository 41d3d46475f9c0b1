"""Carries a plan out: fetch and check everything, switch offline, verify, keep or put back."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from gpusetup.answers import DoneStep
from gpusetup.errors import Blocked, GpuSetupError
from gpusetup.install.fetch import Fetcher, NeedsLogin, Progress
from gpusetup.install.house import WORKPLACE, drop_unused
from gpusetup.install.layout import Layout
from gpusetup.install.lock import ending_with_us, outliving_us
from gpusetup.install.log import Log
from gpusetup.install.plan import Plan, switch_steps
from gpusetup.install.receipt import Receipt, now, receipt_wheel, shareable, write_receipt
from gpusetup.install.tools import asking_environment, complaint, switching_environment
from gpusetup.install.transaction import (
    NEXT_RECEIPT,
    RECEIPT,
    STORE,
    Journal,
    begin,
    enter,
    keep,
    move_aside,
    prepare,
    put_back,
)
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
        job.house.mkdir(parents=True, exist_ok=True)
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


def switch(
    job: Job,
    plan: Plan,
    layout: Layout,
    wheels: Sequence[Path],
    *,
    verify: bool,
    made: Journal | None = None,
) -> Outcome:
    """Change the environment, prove it, keep it or bring the former state back.

    `made` is the journal of an environment that was made for this. The caller holds the lock.
    """
    job.log.line("switch begins")
    store = Path(layout.prefix, STORE)
    journal = prepare(layout, plan.after, wheels, plan.after)
    journal = replace(journal, keep=job.keep)
    if made is not None:
        journal = replace(journal, venv=True, existed=made.existed)
    begin(store, journal)
    with putting_back(job, store, journal):
        move_aside(store, journal)
        journal = enter(store, journal, "installing")
        _install(job, plan, layout)
        journal = enter(store, journal, "verifying")
        job.log.line("switch ends")
        verdict = prove(job, layout.python, plan.device, torch_of(plan)) if verify else None
    if verdict is not None and verdict.get("verdict") != "passed":
        restore(job, store, journal)
        return Outcome(kept=False, verdict=verdict)
    with putting_back(job, store, journal):
        write_receipt(store / NEXT_RECEIPT, _receipt(job, plan, journal, verdict))
    _kept(store, journal)
    if job.own_house:
        for name in drop_unused(job.house, time.time()):
            job.log.line(f"dropped from the cache: {name}")
    return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def _kept(store: Path, journal: Journal) -> None:
    with undisturbed():
        try:
            keep(store, journal)
        except OSError as problem:
            raise Blocked(
                f"The new state is there, but {problem.filename}: {problem.strerror}",
                hint="mend that, then `gpusetup install --recover` ends the installation",
            ) from problem


@contextmanager
def putting_back(job: Job, store: Path, journal: Journal) -> Iterator[None]:
    """Where the block fails, the former state comes back, and the hint says so."""
    try:
        yield
    except OSError as problem:
        restore(job, store, journal)
        where = f"{problem.filename}: " if problem.filename else ""
        raise Blocked(f"{where}{problem.strerror or problem}", hint=PUT_BACK) from problem
    except BaseException:
        restore(job, store, journal)
        raise


PUT_BACK = "the former state was put back"


def torch_of(plan: Plan) -> str | None:
    """The version of torch that verify has to find."""
    return plan.after.get("torch") or None


def _install(job: Job, plan: Plan, layout: Layout) -> None:
    for step in switch_steps(plan, layout, job.uv, str(job.house)):
        job.say("Installing ...")
        said = run_step(job, step)
        if not said.ok:
            problem = complaint("the installation failed", said)
            raise type(problem)(problem.message, hint=PUT_BACK)


def restore(job: Job, store: Path, journal: Journal) -> None:
    """Put the former state back; a Ctrl-C waits until it is done."""
    job.say("Putting the former state back ...")
    job.log.line("put back")
    with undisturbed():
        try:
            put_back(store, journal)
        except OSError as problem:
            raise Blocked(
                f"The former state could not be put back: {problem.filename}: {problem.strerror}",
                hint="mend that, then `gpusetup install --recover`; nothing is lost until then",
            ) from problem


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


def _receipt(job: Job, plan: Plan, journal: Journal, verdict: Mapping[str, Any] | None) -> Receipt:
    return Receipt(
        installed_at=now(),
        python=shareable(DoneStep(argv=(plan.python,))).argv[0],
        backend=plan.choice.backend,
        installer=plan.installer,
        before=journal.before,
        after=plan.after,
        wheels=tuple(receipt_wheel(wheel) for wheel in plan.wheels),
        steps=tuple(shareable(step) for step in job.done),
        verdict=None if verdict is None else {"verdict": verdict["verdict"]},
    )


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
