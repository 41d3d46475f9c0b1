"""The command line: which parts, how long, on what; then the parts one after the other."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from acceptance import card, evidence, page
from acceptance.card import NoTorch
from acceptance.claims import claims_of
from acceptance.processes import adopting
from acceptance.running import answers_in, run_part
from acceptance.values import LATE, NOT_BEGUN, PARTS, STOPPED, Part, Result

MINUTES = 8.0
RESERVE_SECONDS = 12.0
"""For the start, the page and the archive."""


ALL_OK, SOME_FAILED, NOTHING_MEASURED, BY_SIGNAL = 0, 1, 2, 128
MOST_MINUTES = 24 * 60.0
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """A signal that ends the run; its number."""


def main(about: str, argv: Sequence[str] | None = None) -> int:
    options = parser(about).parse_args(argv)
    if options.run_part:
        return inside(options)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup: it goes on
            signal.signal(number, _interrupted)
    try:
        return whole_run(options)
    except KeyboardInterrupt as ended:
        return BY_SIGNAL + number_of(ended)


def whole_run(options: Any) -> int:
    """The exit code: 0 where every part is ok, 2 where nothing was measured."""
    ends = time.monotonic() + options.minutes * 60 - RESERVE_SECONDS
    out = Path(options.out).absolute()
    try:
        facts = begun(out, options)
    except (OSError, NoTorch, evidence.Foreign) as problem:
        about = "" if isinstance(problem, NoTorch) else f"--out {out}: "
        why = (isinstance(problem, OSError) and problem.strerror) or problem
        say(f"nothing was measured: {about}{why}", sys.stderr)
        if isinstance(problem, evidence.Foreign):
            say("name another folder with --out", sys.stderr)
        return NOTHING_MEASURED
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as runs:
        keeper = Keeper(out, facts, Path(runs))
        with adopting():
            all_parts(options.parts, options, facts, keeper, ends)
    if not (options.parts or keeper.ended):
        second_call(evidence.read(keeper.out), keeper.out, options.device)
    say(f"{keeper.out}/index.html")
    if keeper.ended:
        return BY_SIGNAL + keeper.ended
    fine = out == keeper.out and all(result.ok for result in keeper.results)
    return ALL_OK if fine else SOME_FAILED


def second_call(there: Mapping[str, Any], out: Path, device: str) -> None:
    """Names the extra parts that no call has run in the folder, and the call that runs them."""
    unread = (NOT_BEGUN, STOPPED)
    ran = {part["name"] for part in there.get("parts", ()) if part["status"] not in unread}
    left = [part for part in PARTS if part.extra and part.name not in ran]
    if not left:
        return
    words = [sys.executable, sys.argv[0], "--out", str(out)]
    words += ["--parts", ",".join(part.name for part in left)]
    words += [] if device == "auto" else ["--device", device]
    for part in left:
        say(f"{part.name} ({part.what}) is a second call, which adds to the same folder:")
    say(f"  {shlex.join(words)}")


def begun(out: Path, options: Any) -> dict[str, Any]:
    """The facts of the machine, once the folder can be written and takes them."""
    for told in evidence.prepared(out):
        say(told, sys.stderr)
    facts = card.machine(options.device, max(10.0, options.minutes * 60 / 2))
    evidence.compatible(out, facts)
    for name in evidence.missing():
        say(f"missing: {name}", sys.stderr)
    return facts


class Keeper:
    """Writes what the parts found, and elsewhere where the folder stops taking it."""

    def __init__(self, out: Path, facts: dict[str, Any], runs: Path) -> None:
        self.out, self.facts, self.runs = out, facts, runs
        self.results: list[Result] = []
        self.ended = 0

    def keep(self, result: Result) -> None:
        """Written first, shown then: a terminal that is gone costs nothing."""
        self.results.append(result)
        with held():
            try:
                self._write()
            except (OSError, evidence.Foreign) as problem:
                self._elsewhere(problem)
        say(line(result))

    def _write(self) -> None:
        whole = evidence.written(self.out, self.facts, self.results, self.runs)
        with evidence.replacing(self.out / "index.html") as half:
            half.write_text(page.page(whole), encoding="utf-8")

    def _elsewhere(self, problem: Exception) -> None:
        before, self.out = self.out, Path(tempfile.mkdtemp(prefix="gpu-acceptance-"))
        say(f"{before}: {problem}; the evidence goes to {self.out}", sys.stderr)
        self._write()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Meanwhile signals wait, so that what is written is whole."""
    block = getattr(signal, "pthread_sigmask", None)
    before = block(signal.SIG_BLOCK, {signal.SIGINT, *SIGNALS}) if block else None
    try:
        yield
    finally:
        if block:
            block(signal.SIG_SETMASK, before)


def say(text: str, stream: Any = None) -> None:
    """A line for a terminal that may be gone."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stream or sys.stdout, flush=True)


def number_of(ended: BaseException) -> int:
    return int(ended.args[0]) if isinstance(ended, Ended) else int(signal.SIGINT)


def parser(about: str) -> argparse.ArgumentParser:
    first, _, rest = about.partition("\n")
    found = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(part.name for part in PARTS)
    found.add_argument(
        "--out", required=True, type=_folder, metavar="DIR", help="where the evidence goes"
    )
    found.add_argument("--minutes", type=_minutes, default=MINUTES, metavar="N", help="in all (8)")
    found.add_argument("--parts", type=_names, metavar="LIST", help=f"some of: {names}")
    found.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    found.add_argument(
        "--seed", type=int, default=1, metavar="N", help="first of clean's seeds (1)"
    )
    found.add_argument("--short", action="store_true", help="one case of each kind: a rehearsal")
    found.add_argument("--run-part", help=argparse.SUPPRESS)
    found.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    return found


def _folder(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a folder has a name")
    return text


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes up to a day")
    return minutes


def _names(text: str) -> tuple[str, ...]:
    known = [part.name for part in PARTS]
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    other = [name for name in names if name not in known]
    if other or not names:
        wrong = f"there is no part {other[0]!r}" if other else "no part is named"
        raise argparse.ArgumentTypeError(f"{wrong}; the parts are {', '.join(known)}")
    return names


def chosen(asked: Sequence[str] | None, minutes: float) -> tuple[tuple[Part, float], ...]:
    """The parts with their limits: what is asked for by name, else all that are not extra.

    Each gets what it needs to say anything, and the rest is shared; where that is not there for
    all, the last ones get nothing. An extra part joins where it fits whole.

    >>> [part.name for part, _ in chosen(["verify", "readings"], 8)]
    ['readings', 'verify']
    >>> round(sum(seconds for _, seconds in chosen(None, 8))) == 8 * 60 - 12
    True
    >>> chosen(None, 20)[-1][0].name
    'suspicions'
    >>> [part.name for part, seconds in chosen(None, 1) if seconds]
    ['readings', 'node-check', 'verify']
    """
    there = max(0.0, minutes * 60 - RESERVE_SECONDS)
    parts = [part for part in PARTS if (part.name in asked if asked else not part.extra)]
    for part in PARTS:
        if not asked and part.extra and sum(each.seconds for each in (*parts, part)) <= there:
            parts.append(part)
    fitting = [*parts]
    while fitting and sum(part.least for part in fitting) > there:
        fitting.pop()
    free = there - sum(part.least for part in fitting)
    wish = sum(part.seconds - part.least for part in fitting) or 1.0
    limits = {p.name: p.least + free * (p.seconds - p.least) / wish for p in fitting}
    return tuple((part, limits.get(part.name, 0.0)) for part in parts)


def all_parts(
    names: Sequence[str] | None, options: Any, facts: dict[str, Any], keeper: Keeper, ends: float
) -> None:
    """Every part, written and shown as it comes, so that it stands if we are killed.

    The next one runs whatever happened; time that a part leaves is shared by those after it.
    """
    device, left = facts["device"], (ends - time.monotonic() + RESERVE_SECONDS) / 60
    parts = chosen(names, left)
    for place, (part, limit) in enumerate(parts):
        seconds = share([each for _, each in parts[place:]], ends - time.monotonic())
        folder, began = keeper.runs / part.name, time.monotonic()
        if part.least and (not limit or ends - time.monotonic() < part.least / 2):
            keeper.keep(not_begun(part, device))
            continue
        try:
            earlier = evidence.tables(keeper.out, facts, part.name)
            result = run_part(part, options, device, folder, seconds, earlier)
        except KeyboardInterrupt as ended:
            keeper.ended = number_of(ended)
            told, spent = answers_in(folder, part.name, device), time.monotonic() - began
            why = f"by {signal.Signals(keeper.ended).name}"
            result = Result(part.name, False, STOPPED, spent, seconds, *told, problem=why)
        keeper.keep(result)
        if keeper.ended:
            return


def not_begun(part: Part, device: str) -> Result:
    why = f"not enough time: it needs {part.least:.0f} s"
    claims = tuple(claim._replace(figure=why) for claim in claims_of(part.name, (), device))
    return Result(part.name, False, NOT_BEGUN, 0.0, 0.0, claims, problem=why)


def share(limits: Sequence[float], there: float) -> float:
    """What the first of the parts that are left may take of the time that is left.

    >>> share([30, 60], 90), share([30, 60], 180), share([30, 60], -5), share([0], 9)
    (30.0, 60.0, 0.1, 0.1)
    """
    return max(0.1, limits[0] * there / (sum(limits) or 1.0))


def line(result: Result) -> str:
    """What a terminal shows of a part.

    >>> line(Result("tune", False, "crashed", 2.0, 55.0, problem="no torch"))
    'tune         NO  crashed in 2 s of 55: no torch'
    """
    told = f"{result.name:12} {'ok' if result.ok else 'NO'}  {result.status}"
    told += f" in {result.seconds:.0f} s of {result.limit_seconds:.0f}"
    bad = [claim.id for claim in result.claims if claim.verdict == "fails"]
    return told + (f": {result.problem}" if result.problem else f": {', '.join(bad)}" * bool(bad))


def inside(options: Any) -> int:
    """The process of one part."""
    import importlib

    from acceptance.work import Late, Work

    part = next(part for part in PARTS if part.name == options.run_part)
    more = {"seed": options.seed, "short": options.short}
    work = Work(options.device, options.seconds, Path(options.out), **more)
    try:
        importlib.import_module(part.module).run(work)
    except Late:
        return LATE
    return 0


def _interrupted(number: int, _: object) -> NoReturn:
    raise Ended(number)
