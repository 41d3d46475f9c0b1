#!/usr/bin/env python3
"""Runs the whole program on a real card, once, and keeps the evidence.

python scripts/gpu_acceptance.py --out DIR                     everything, in 8 minutes
python scripts/gpu_acceptance.py --out DIR --parts suspicions clean
python scripts/gpu_acceptance.py --out DIR --device cpu --short    a rehearsal

Writes DIR/evidence.json and, for each part, DIR/PART.txt (what its commands printed, redacted).
It ends at once, with 2, if a word is wrong, DIR cannot be written or holds the evidence of
another card, driver, torch or commit, or torch is not usable (a card that torch does not compute on
included). 0: every part is ok. 1: a part is not, because a claim is refuted or the time was not
enough. 128 and more: a signal ended it.

A part is a file of tests in scripts/acceptance. Each runs in a process of its own and is killed at
its limit, with all that it started; the next one runs whatever happened, and time that one leaves
goes to those after it. All is written after each part. A later call with the same DIR adds to it;
`clean` goes on with other seeds. Settings of the card (clocks, power limit, MIG, persistence,
compute mode) are never changed, nothing is fetched or installed. To keep the evidence with the
project, put the folder into tests/recorded_runs/.

It runs with the Python and the torch of the machine and gpusetup from this checkout; pytest and the
dependencies in pyproject.toml must be there (if there is no network, wheels that PYTHONPATH names).
"""

# ruff: noqa: E402
import sys

LEAST = (3, 10)
if sys.version_info < LEAST:  # nothing above this line needs a newer one
    sys.stderr.write("nothing was measured: gpusetup needs Python 3.10 or newer\n")
    sys.exit(2)

import argparse
import contextlib
import json
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

try:
    import psutil
    import pytest  # noqa: F401
    from acceptance import processes
    from acceptance.claims import PARTS, Part
    from acceptance.evidence import FAILS, Evidence, Refused, Result, begun, claims_of, write

    from gpusetup import __version__
    from gpusetup.redaction import redact_document
except ModuleNotFoundError as missing:
    sys.stderr.write(f"nothing was measured: {missing}; see pyproject.toml\n")
    sys.exit(2)

RESERVE_SECONDS, LEAST_SECONDS = 12.0, 5.0
MOST_MINUTES = 24 * 60.0
MOST_TEXT = 1 << 20
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
DONE, KILLED, CRASHED = "done", "killed at its limit", "crashed"
NOT_BEGUN, STOPPED = "not begun", "interrupted"
TORCH_SECONDS = 120.0
ASK_TORCH = """
import json, sys, torch
told = {"torch": torch.__version__, "cuda": torch.version.cuda, "card": None}
if sys.argv[1] != "cpu" and torch.cuda.is_available():
    one = torch.ones(64, 64, device="cuda:0")
    assert (one @ one).sum().item() == 64 ** 3, "the card computes a wrong product"
    assert one.is_cuda and torch.cuda.memory_allocated() > 0, "the card holds no memory of it"
    told["card"] = torch.cuda.get_device_name(0)
print(json.dumps(told))
"""
REHEARSE = "; a rehearsal, which proves nothing of a card, is --device cpu"


class Ended(KeyboardInterrupt):
    """A signal that ends the run; its number."""


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup: it goes on
            signal.signal(number, interrupted)
    ends = time.monotonic() + options.minutes * 60 - RESERVE_SECONDS
    options.out = options.out.absolute()
    try:
        evidence = begun(options.out, machine(options.device))
    except (OSError, Refused) as problem:
        sys.stderr.write(f"nothing was measured: {problem}\n")
        return 2
    processes.adopt_orphans()
    parts = [part for part in PARTS if is_chosen(part, options)]
    fine = True
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as runs:
        for place, part in enumerate(parts):
            rest = sum(each.seconds for each in parts[place:])
            limit = max(0.0, part.seconds * (ends - time.monotonic()) / rest)
            run = Run(part, limit, Path(runs) / part.name, options)
            try:
                run.to_its_end(evidence)
            except KeyboardInterrupt as ended:
                number = int(ended.args[0]) if isinstance(ended, Ended) else int(signal.SIGINT)
                run.status, run.problem = STOPPED, f"by {signal.Signals(number).name}"
                keep(evidence, run, options.out)
                return 128 + number
            fine &= keep(evidence, run, options.out)
    print(options.out / "evidence.json", flush=True)
    return 0 if fine else 1


def interrupted(number: int, _: object) -> NoReturn:
    raise Ended(number)


def parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    found = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--out", required=True, type=Path, metavar="DIR")
    found.add_argument("--minutes", type=minutes, default=8.0, metavar="N", help="in all (8)")
    found.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], default=())
    found.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    found.add_argument("--short", action="store_true", help="one case of each kind: a rehearsal")
    return found


def minutes(text: str) -> float:
    found = float(text)
    if not 0 < found <= MOST_MINUTES:
        raise ValueError
    return found


def is_chosen(part: Part, options: argparse.Namespace) -> bool:
    """By its name; without names all, and the extra ones if there is time for them."""
    there = options.minutes * 60 - RESERVE_SECONDS
    is_time = not part.extra or there >= sum(each.seconds for each in PARTS)
    return part.name in options.parts if options.parts else is_time


def machine(wanted: str) -> Evidence:
    """The facts of this machine; Refused if torch, or the card that is asked for, is not usable."""
    said = processes.run((sys.executable, "-c", ASK_TORCH, wanted), TORCH_SECONDS)
    told = said.document if said.exit == 0 else {}
    if not told:
        raise Refused(f"torch is not usable: {said.problem}{REHEARSE}")
    smi = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader", "--id=0")
    named = processes.run(smi, 10)
    driver, _, card = named.stdout.strip().partition(", ") if named.exit == 0 else ("", "", "")
    if wanted != "cpu" and not told["card"] and (card or wanted == "cuda"):
        raise Refused(f"torch {told['torch']} computes on no GPU here ({card or 'none'}){REHEARSE}")
    commit = processes.run(("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"), 10)
    return Evidence(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        device="cuda" if told["card"] else "cpu",
        stand_in=not told["card"],
        driver=driver or None,
        python=platform.python_version(),
        gpusetup=__version__,
        commit=commit.stdout.strip() or None,
        **told,
    )


class Run:
    """One part on its way: pytest with one file, and what it wrote."""

    def __init__(self, part: Part, limit: float, runs: Path, options: argparse.Namespace) -> None:
        self.part, self.limit, self.folder, self.short = part, limit, runs, options.short
        self.status, self.problem, self.seconds = NOT_BEGUN, "", 0.0

    def to_its_end(self, evidence: Evidence) -> None:
        """Nothing that it started goes on."""
        self.folder.mkdir()
        earlier = [part.tables for part in evidence.parts if part.name == self.part.name]
        (self.folder / "earlier.json").write_text(json.dumps(dict(*earlier)))
        if self.limit < LEAST_SECONDS:
            self.problem = "not enough time"
            return
        began = time.monotonic()
        try:
            code = self.code_of(evidence.device)
        finally:
            left = processes.end_all(psutil.Process().children(recursive=True))
            self.seconds = time.monotonic() - began
        if code is None:
            self.status = KILLED
        elif code in (0, 1):  # 1: tests failed
            self.status = DONE
        else:
            self.status, self.problem = (
                CRASHED,
                f"pytest ended with {code}: see {self.part.name}.txt",
            )
        if left and self.status == DONE:
            self.problem = f"{left} processes outlived the part and were ended"

    def code_of(self, device: str) -> int | None:
        """pytest's exit code; None if it was killed at its limit."""
        tests = str(ROOT / "scripts" / "acceptance" / f"test_{self.part.name}.py")
        words = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-W", "ignore", "-s"]
        words += ["-p", "no:cacheprovider", "-m", "", "--tb=short", "--device", device]
        words += ["--seconds", str(self.limit), "--answers", str(self.folder)]
        words += ["--short"] * self.short
        (self.folder / "temp").mkdir()
        more = {"PYTHONUNBUFFERED": "1", "TMPDIR": str(self.folder / "temp")}
        with (self.folder / "said.txt").open("wb") as said:
            child = subprocess.Popen(
                [sys.executable, "-m", "pytest", tests, *words], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                env=processes.environment(**more),
            )  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(self.limit)
            return None

    def result(self, device: str) -> Result:
        """A last line that was cut off is left out."""
        answers, tables = [], {}
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = (self.folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()
        for text in lines:
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                answers += [line] * ("claim" in line)
                if "rows" in line:
                    tables[line["table"]] = line["rows"]
                elif "row" in line:
                    tables.setdefault(line["table"], []).append(line["row"])
        claims = claims_of(self.part.name, answers, device)
        if self.status == DONE and any(processes.OVER in each["figure"] for each in answers):
            self.status = KILLED
        fine = self.status == DONE and not any(claim.verdict == FAILS for claim in claims)
        return Result(
            self.part.name, fine, self.status, round(self.seconds, 1), round(self.limit, 1),
            claims, tables, self.problem,
        )  # fmt: skip


def keep(evidence: Evidence, run: Run, out: Path) -> bool:
    """Written first, shown then: a terminal that is gone costs nothing."""
    result = run.result(evidence.device)
    says_nothing = run.status in (NOT_BEGUN, STOPPED)
    if not (says_nothing and run.part.name in {part.name for part in evidence.parts}):
        evidence.add(result)
    try:
        write(out, evidence)
        if (run.folder / "said.txt").exists():
            said = (run.folder / "said.txt").read_bytes()[-MOST_TEXT:].decode("utf-8", "replace")
            (out / f"{result.name}.txt").write_text("\n".join(redact_document(said.split("\n"))))
    except OSError as problem:
        sys.stderr.write(f"not written: {problem}\n")
        result.ok = False
    bad = [claim.id for claim in result.claims if claim.verdict == FAILS]
    told = (
        f"{result.name:12} {'ok' if result.ok else 'NO'}  {result.status} in {result.seconds:.0f} s"
    )
    with contextlib.suppress(OSError, ValueError):
        print(
            f"{told} of {result.limit_seconds:.0f}  {result.problem or ', '.join(bad)}", flush=True
        )
    return result.ok


if __name__ == "__main__":
    sys.exit(main())
