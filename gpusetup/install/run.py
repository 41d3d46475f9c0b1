"""Carries a plan out: fetch and check everything, switch offline, verify, keep or put back."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from gpusetup.answers import DoneStep
from gpusetup.errors import Blocked, GpuSetupError
from gpusetup.install.fetch import Fetcher, Progress
from gpusetup.install.layout import Layout, content_of
from gpusetup.install.log import Log
from gpusetup.install.plan import Plan, Room, shortage, switch_steps
from gpusetup.install.receipt import Receipt, now, receipt_wheel, shareable, write_receipt
from gpusetup.install.tools import complaint, switching_environment
from gpusetup.install.transaction import (
    STORE,
    Journal,
    begin,
    enter,
    keep,
    move_aside,
    prepare,
    put_back,
)
from gpusetup.install.wheels import Wheel, in_words
from gpusetup.model import Step
from gpusetup.run import Output, run
from gpusetup.value import Record, Value

VERIFY = Path(__file__).resolve().parent.parent / "verify"
VERIFY_SECONDS = 900.0
WORKERS = 4


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
        calls = [pool.submit(job.fetcher.wheel, one, job.house, progress) for one in wheels]
        try:
            return tuple(call.result() for call in calls)
        except BaseException:
            job.fetcher.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_step(job: Job, step: Step) -> Output:
    """Run one step and keep what it was and said."""
    job.log.command(step.argv)
    environment = {**switching_environment(job.environ), **step.environment}
    said = run(step.argv, timeout=step.timeout_seconds, environment=environment)
    job.log.output(said)
    job.done.append(DoneStep(argv=step.argv, seconds=round(said.seconds, 3), exit=said.exit))
    return said


@contextmanager
def made_environment(job: Job, step: Step, folder: str) -> Iterator[None]:
    """Make the environment; take it away again where the block fails."""
    existed = Path(folder).is_dir()
    said = run_step(job, step)
    if not said.ok:
        take_away(Path(folder), existed)
        raise complaint(f"{folder} cannot be made", said)
    try:
        yield
    except BaseException:
        take_away(Path(folder), existed)
        raise


def take_away(folder: Path, existed: bool) -> None:
    """Remove an environment that was made here; an empty folder that was there stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if existed:
        with suppress(OSError):
            folder.mkdir()


def check_room(job: Job, layout: Layout, wheels: Sequence[Path]) -> None:
    """The unpacked wheels must fit on the target's disk and in uv's cache."""
    unpacked = sum(content_of(path).unpacked_bytes for path in wheels)
    require_room((room(layout.purelib, unpacked),))


def room(path: str, needed_bytes: int) -> Room:
    """What is free on the disk of a path that may not be there yet."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return Room(path=path, needed_bytes=needed_bytes, free_bytes=free, disk=there.stat().st_dev)


def require_room(rooms: Sequence[Room]) -> None:
    """`Blocked` with needed and free where a disk cannot hold it."""
    short = shortage(rooms)
    if short is not None:
        raise Blocked(
            f"No room on the disk of {short.path}: needs {in_words(short.needed_bytes)}, "
            f"free {in_words(short.free_bytes)}",
            hint="nothing was changed; make room (`uv cache clean` frees uv's cache), "
            "or use another disk: `--venv DIR`",
        )


def switch(
    job: Job, plan: Plan, layout: Layout, wheels: Sequence[Path], *, verify: bool
) -> Outcome:
    """Change the environment, prove it, keep it or bring the former state back."""
    store = Path(layout.prefix, STORE)
    journal = prepare(layout, plan.after, wheels, plan.after)
    begin(store, journal)
    try:
        move_aside(store, journal)
        journal = enter(store, journal, "installing")
        _install(job, plan, layout)
        journal = enter(store, journal, "verifying")
        verdict = prove(job, layout.python, plan.device) if verify else None
    except BaseException:
        restore(job, store, journal)
        raise
    if verdict is not None and verdict.get("verdict") != "passed":
        restore(job, store, journal)
        return Outcome(kept=False, verdict=verdict)
    receipt = write_receipt(store, _receipt(job, plan, journal, verdict))
    keep(store, journal)
    return Outcome(kept=True, verdict=verdict, receipt=str(receipt))


def _install(job: Job, plan: Plan, layout: Layout) -> None:
    for step in switch_steps(plan, layout, job.uv, str(job.house)):
        job.say("Installing ...")
        said = run_step(job, step)
        if not said.ok:
            problem = complaint("the installation failed", said)
            raise type(problem)(problem.message, hint="the former state was put back")


def restore(job: Job, store: Path, journal: Journal) -> None:
    """Put the former state back; a Ctrl-C waits until it is done."""
    job.say("Putting the former state back ...")
    job.log.line("put back")
    with undisturbed():
        put_back(store, journal)


@contextmanager
def undisturbed() -> Iterator[None]:
    """No Ctrl-C inside the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def prove(job: Job, python: str, device: str) -> dict[str, Any]:
    """The verify document of the target, made by the target's own interpreter."""
    job.say("Verifying ...")
    argv = (python, str(VERIFY), "--json", "--device", device)
    job.log.command(argv)
    said = run(argv, timeout=VERIFY_SECONDS, environment=dict(job.environ))
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
