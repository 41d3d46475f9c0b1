"""The command line: which parts, how long, on what; then the parts one after the other."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from acceptance import evidence, page
from acceptance.processes import adopting
from acceptance.running import answers_in, run_part
from acceptance.values import KILLED, LATE, PARTS, Part, Result

MINUTES = 8.0
INTERRUPTED = "interrupted"
RESERVE_SECONDS = 12.0
"""For the start, the page and the archive."""


def main(about: str, argv: Sequence[str] | None = None) -> int:
    options = parser(about).parse_args(argv)
    if options.run_part:
        return inside(options)
    ends = time.monotonic() + options.minutes * 60 - RESERVE_SECONDS
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    parts = chosen(options.parts, options.minutes)
    facts = evidence.machine(options.device)
    for line in evidence.missing():
        print(f"missing: {line}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="acceptance-") as runs, adopting():
        results = all_parts(parts, options, facts, Path(runs), ends)
    print(f"{options.out}/index.html")
    return 0 if all(result.ok for result in results) else 1


def parser(about: str) -> argparse.ArgumentParser:
    first, _, rest = about.partition("\n")
    found = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(part.name for part in PARTS)
    found.add_argument("--out", required=True, metavar="DIR", help="where the evidence goes")
    found.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="in all (8)")
    found.add_argument("--parts", default="", metavar="LIST", help=f"some of: {names}")
    found.add_argument("--device", default="auto", metavar="auto|cuda|cpu")
    found.add_argument(
        "--seed", type=int, default=1, metavar="N", help="first of clean's seeds (1)"
    )
    found.add_argument("--short", action="store_true", help="one case of each kind: a rehearsal")
    found.add_argument("--run-part", help=argparse.SUPPRESS)
    found.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    return found


def chosen(names: str, minutes: float) -> tuple[tuple[Part, float], ...]:
    """The parts with their limits: what is asked for by name, else all that are not extra.

    Limits grow and shrink together with the minutes; an extra part joins where it fits whole.

    >>> [part.name for part, _ in chosen("verify,readings", 8)]
    ['readings', 'verify']
    >>> round(sum(seconds for _, seconds in chosen("", 8))) == 8 * 60 - 12
    True
    >>> chosen("", 20)[-1][0].name
    'suspicions'
    """
    known = {part.name: part for part in PARTS}
    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name not in known:
            raise SystemExit(f"there is no part {name!r}; the parts are {', '.join(known)}")
    there = minutes * 60 - RESERVE_SECONDS
    parts = [part for part in PARTS if (part.name in asked if asked else not part.extra)]
    for part in PARTS:
        if not asked and part.extra and sum(each.seconds for each in (*parts, part)) <= there:
            parts.append(part)
    scale = max(there, 1.0) / sum(part.seconds for part in parts)
    return tuple((part, part.seconds * scale) for part in parts)


def all_parts(
    parts: Sequence[tuple[Part, float]],
    options: Any,
    facts: dict[str, Any],
    runs: Path,
    ends: float,
) -> list[Result]:
    """Every part's result, printed and written as it comes, so that it stands if we are killed.

    The next one runs whatever happened; time that a part leaves is shared by those after it.
    """
    results: list[Result] = []
    out, device = Path(options.out), facts["device"]
    for place, (part, _) in enumerate(parts):
        seconds = share([limit for _, limit in parts[place:]], ends - time.monotonic())
        earlier = evidence.tables(out, facts, part.name)
        try:
            result = run_part(part, options, device, runs / part.name, seconds, earlier)
        except KeyboardInterrupt:
            told = answers_in(runs / part.name, part.name, device)
            result = Result(part.name, False, KILLED, 0.0, seconds, *told, problem=INTERRUPTED)
        results.append(result)
        print(line(result), flush=True)
        whole = evidence.written(out, facts, [result], runs)
        (out / "index.html").write_text(page.page(whole), encoding="utf-8")
        if result.problem == INTERRUPTED:
            break
    return results


def share(limits: Sequence[float], there: float) -> float:
    """What the first of the parts that are left may take of the time that is left.

    >>> share([30, 60], 90), share([30, 60], 180), share([30, 60], -5)
    (30.0, 60.0, 0.1)
    """
    return max(0.1, limits[0] * there / sum(limits))


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


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt
