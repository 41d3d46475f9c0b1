"""Mutants that stand in a file of somebody else's: read, applied, and judged each in a fork."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent
LIMIT_SECONDS, RANKS_SECONDS = 1800, 600
ALWAYS_LAST = ("dataloader", "memory", "out-of-memory", "speed", "compile")
AFTER = ("optimizers", "modules", "operators", *ALWAYS_LAST)
"""Checks that take long come last: which fault is caught does not depend on the order."""
NOTHING = "nothing"
"""The name of a run without a fault, which has to pass."""


class Judged(NamedTuple):
    """What became of one mutant."""

    word: str
    """caught, missed, or error: died, or without an answer in time; asked again by the next call"""
    checks: list[str]
    said: str
    met: bool | None
    """Whether any computation met the fault; None where the file does not tell."""
    seconds: int


def loaded(file: Path) -> Any:
    """The module that a file holds."""
    found = importlib.util.spec_from_file_location(file.stem, file)
    if found is None or found.loader is None:
        raise SystemExit(f"{file} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.resolve().parent))
    found.loader.exec_module(module)
    return module


def mutants(module: Any) -> dict[str, Callable[..., Any]]:
    """Name -> function: those of `MUTANTS`, else every public function without parameters."""
    if hasattr(module, "MUTANTS"):
        rows = [row if isinstance(row, tuple) else (row.__name__, row) for row in module.MUTANTS]
        return {row[0]: row[-1] for row in rows}
    return {
        name: each
        for name, each in vars(module).items()
        if inspect.isfunction(each)
        and each.__module__ == module.__name__
        and not name.startswith("_")
        and set(inspect.signature(each).parameters) <= {"rank"}
    }


@contextlib.contextmanager
def applied(module: Any, name: str, rank: int = 0) -> Iterator[bool]:
    """The fault is in torch, for this process or as long as a context lasts; says which."""
    if hasattr(module, "apply"):
        found = module.apply(name)
    else:
        run = mutants(module)[name]
        found = run(rank) if "rank" in inspect.signature(run).parameters else run()
    if not hasattr(found, "__enter__"):
        yield False
        return
    with _on_threads(module, name, rank), found:
        yield True


@contextlib.contextmanager
def _on_threads(module: Any, name: str, rank: int) -> Iterator[None]:
    """A mode of torch holds for one thread: each other one enters a mode of its own."""
    plain = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        made = mutants(module)[name]
        with made(rank) if "rank" in inspect.signature(made).parameters else made():
            plain(thread)

    threading.Thread.run = run  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.run = plain  # type: ignore[method-assign]


def in_order(names: tuple[str, ...]) -> list[str]:
    """The checks, those that take long last."""
    return sorted(names, key=lambda name: AFTER.index(name) if name in AFTER else -1)


def judged(file: Path, name: str, level: str, seed: int, every: bool) -> Judged:
    """One mutant in a fork of this process."""
    return _judged(file, name, lambda tell: _checked(file, name, level, seed, every, tell))


def _judged(file: Path, name: str, work: Callable[[Callable[[Any], None]], None]) -> Judged:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as hits:
        os.environ["KERNEL_FAULT_HITS"] = hits
        lines, ended = answers(work)
        met = any(Path(hits).iterdir()) if _tells(file) else None
    failed = [row for row in lines if row["status"] == "failed"]
    word = "caught" if failed else "missed" if ended else "error"
    said = failed[0]["detail"] if failed else "" if ended else "died, or took too long"
    seconds = round(time.monotonic() - began)
    return Judged(word, [row["check"] for row in failed], said[:200], met, seconds)


def _checked(
    file: Path, name: str, level: str, seed: int, every: bool, tell: Callable[[Any], None]
) -> None:
    from verify_faults.meets import replaced, sooner
    from verify_faults.runs import PAST_THE_DISPATCHER, checks, run

    from gpusetup.verify.checks import ration
    from gpusetup.verify.values import Asked, ask_for

    if not every:
        ration.ENOUGH = 1  # further wrong answers say nothing new
    ask_for(Asked(seed, level=level))
    with contextlib.ExitStack() as held:
        names = held.enter_context(replaced())
        mode = held.enter_context(applied(loaded(file), name)) if name != NOTHING else False
        for check in held.enter_context(sooner(in_order(checks()), CALLS, names)):
            if mode and check in PAST_THE_DISPATCHER:
                continue
            found = run(check, None)
            tell({"check": check, "status": found.status, "detail": found.detail})
            if found.status == "failed" and not every:
                return


def answers(work: Callable[[Callable[[Any], None]], None]) -> tuple[list[Any], bool]:
    """What a fork tells line by line, and whether it came to its end."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(ours)
        _work(work, theirs)
    os.close(theirs)
    text = _read(ours)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # a loader's workers too
    os.waitpid(child, 0)
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    ended = [line for line in lines if "ended" in line]
    return [line for line in lines if "ended" not in line], bool(ended)


def _work(work: Callable[[Callable[[Any], None]], None], pipe: int) -> None:
    def tell(line: Any) -> None:
        os.write(pipe, (json.dumps(line) + "\n").encode())

    try:
        work(tell)
        tell({"ended": True})
    except BaseException as problem:  # the fork tells it and ends here, whatever it was
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
    finally:
        os._exit(0)


def _read(pipe: int) -> str:
    said, until = b"", time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until and b'"ended"' not in said:
        ready, _, _ = select.select([pipe], [], [], 1.0)
        part = os.read(pipe, 65536) if ready else None
        if part == b"":
            break
        said += part or b""
    os.close(pipe)
    return said.decode()


class Ranks:
    """Ranks that are forked from one process with torch in it (rank_faults/warm.py)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "rank_faults/warm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def judged(self, file: Path, name: str, level: str, seed: int, every: bool) -> Judged:
        """One mutant among the ranks: all of `RANKS`, until one fails on some rank."""
        from gpusetup.verify.checks.rows_cluster import RANKS

        began = time.monotonic()
        job = {"ranks": self.count, "port": free_port(), "fault": None, "level": level}
        with tempfile.TemporaryDirectory() as hits:
            job |= {"file": str(file.resolve()), "mutant": None if name == NOTHING else name}
            job |= {"seed": seed, "early": not every, "seconds": RANKS_SECONDS, "hits": hits}
            found = self.answer({**job, "checks": [check.name for check in RANKS]})
            met = any(Path(hits).iterdir()) if _tells(file) else None
        failed = {
            check: each[1]
            for check, rows in found.items()
            for each in rows
            if each and each[0] == "failed"
        }
        last = next(reversed(found))
        word = "caught" if failed else "missed" if all(found[last]) else "error"
        seconds = round(time.monotonic() - began)
        return Judged(word, [*failed], next(iter(failed.values()), "")[:200], met, seconds)

    def answer(self, job: dict[str, Any]) -> dict[str, list[Any]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        found: dict[str, list[Any]] = json.loads(self.process.stdout.readline())
        return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _tells(file: Path) -> bool:
    return "KERNEL_FAULT_HITS" in file.read_text(encoding="utf-8")


CALLS: dict[str, list[str]] = {}
"""Which operators each check calls: those that call what a mutant replaced come first."""


def load() -> None:
    """Everything is loaded here once; nothing is computed with more than one thread."""
    import torch
    from verify_faults.runs import checks

    from gpusetup.verify.checks.table import function_of, named

    torch.set_num_threads(1)
    for check in checks():
        function_of(named(check))


def warm(seed: int, kept: Path | None) -> None:
    """Loads everything, and records once which check calls what."""
    load()
    with tempfile.TemporaryDirectory() as folder:
        file = kept or Path(folder) / "calls.json"
        if not file.exists():
            answers(lambda tell: _called(file, seed))
        CALLS.update(json.loads(file.read_text(encoding="utf-8")))


def _called(file: Path, seed: int) -> None:
    from verify_faults.meets import called
    from verify_faults.runs import checks

    from gpusetup.verify.values import Asked, ask_for

    ask_for(Asked(seed, level="standard"))
    found = called([each for each in checks() if each not in ALWAYS_LAST])
    file.write_text(json.dumps(found), encoding="utf-8")


def ask(file: Path, results: Path | None, options: Any) -> int:
    """Each mutant of the file that has no answer yet; then the figure."""
    judge = Ranks(options.ranks).judged if options.ranks else judged
    if not options.ranks:
        warm(options.seed, results and results.with_suffix(f".calls-{options.seed}.json"))
    done: dict[str, dict[str, Any]] = {}
    if results and results.exists():
        done = json.loads(results.read_text(encoding="utf-8"))
    names = [NOTHING, *mutants(loaded(file))]
    for name in names:
        if done.get(name, {}).get("word") in ("caught", "missed") or options.only not in name:
            continue
        found = judge(file, name, options.level, options.seed, options.every)
        done[name] = {**found._asdict(), "seed": options.seed, "level": options.level}
        if results:
            results.write_text(json.dumps(done, indent=1), encoding="utf-8")
        print(name, found.word, *found.checks, f"{found.seconds} s", found.said, flush=True)
    return concluded({name: done[name] for name in names if name in done})


def hangs(said: str) -> bool:
    """Whether ranks that waited for each other, and no wrong value, are what was seen."""
    return " hangs in " in said and " wrong" not in said


def concluded(done: dict[str, dict[str, Any]]) -> int:
    """The figure and the misses; 1 where a run without a fault does not pass."""
    faults = {name: row for name, row in done.items() if name != NOTHING}
    missed = [name for name, row in faults.items() if row["word"] == "missed"]
    for name in missed:
        met = {True: "met", False: "met by no computation", None: ""}[faults[name]["met"]]
        print(f"missed: {name} {met}".rstrip())
    errors = [name for name, row in faults.items() if row["word"] == "error"]
    print(*(f"no answer: {name}" for name in errors), sep="\n", end="\n" if errors else "")
    hung = [name for name, row in faults.items() if row["word"] == "caught" and hangs(row["said"])]
    print(*(f"caught by a hang alone: {name}" for name in hung), sep="\n", end="\n" if hung else "")
    print(f"caught {len(faults) - len(missed) - len(errors)} of {len(faults)}")
    alarm = done.get(NOTHING, {}).get("word", "missed") != "missed"
    if alarm:
        print(f"false alarm: {done[NOTHING]['checks']} {done[NOTHING]['said']}")
    return int(alarm)
