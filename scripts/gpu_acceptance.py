#!/usr/bin/env python3
"""Runs the whole program on a real card, once, and keeps the evidence.

python scripts/gpu_acceptance.py --out DIR                     everything, in 9 minutes
python scripts/gpu_acceptance.py --out DIR --parts suspicions clean
python scripts/gpu_acceptance.py --out DIR --device cpu --short    a rehearsal

Writes DIR/evidence.json, its rows for the docs (DIR/evidence.md) and, for each part, DIR/PART.txt
(what its commands printed, redacted).
It ends at once, with 2, if DIR cannot be written or holds the evidence of another card, driver,
torch or commit, or torch is not usable (a card that torch does not compute on included). 0: every
part is ok. 1: a part is not, because a claim is refuted or the time was not enough.

A part is a file of tests in scripts/acceptance. Each runs in a process of its own and is killed at
its limit, with all that it started; the next one runs whatever happened, and time that one leaves
goes to those after it. All is written after each part. A later call with the same DIR replaces the
parts that it runs. Settings of the card (clocks, power limit, MIG, persistence, compute mode) are
never changed, nothing is fetched or installed. To keep the evidence with the project, put the
folder into tests/recorded_runs/.

It runs with the Python and the torch of the machine and gpusetup from this checkout; pytest and the
dependencies in pyproject.toml must be there (if there is no network, wheels that PYTHONPATH names).
"""

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from acceptance.claims import PARTS, Part  # noqa: E402
from acceptance.evidence import FAILS, Evidence, Refused, Result, begun, claims_of, write  # noqa: E402
from acceptance.processes import Said, environment, run  # noqa: E402

from gpusetup import __version__  # noqa: E402
from gpusetup.redaction import redact_document  # noqa: E402

LEAST_SECONDS = 5.0
MOST_TEXT = 1 << 20
VARIABLES = re.compile(r'"environment":\s*\{[^{}]*\}')
"""The variables in a snapshot: settings of whoever ran this, which decide nothing here."""
DONE, KILLED, NOT_BEGUN = "done", "killed at its limit", "not begun"
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


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    ends, fine = time.monotonic() + options.minutes * 60, True
    try:
        evidence = begun(options.out, machine(options.device))
    except (OSError, Refused) as problem:
        sys.stderr.write(f"nothing was measured: {problem}\n")
        return 2
    parts = [part for part in PARTS if part.name in options.parts or not options.parts]
    if not options.parts and options.minutes * 60 < sum(part.seconds for part in PARTS):
        parts = [part for part in parts if not part.extra]
    for place, part in enumerate(parts):
        rest = sum(each.seconds for each in parts[place:])
        limit = max(0.0, part.seconds * (ends - time.monotonic()) / rest)
        result, text = result_of(part, limit, evidence.device, short=options.short)
        if text or result.name not in {each.name for each in evidence.parts}:
            evidence.add(result)
        write(options.out, evidence)
        if text:
            (options.out / f"{part.name}.txt").write_text(text)
        bad = ", ".join(claim.id for claim in result.claims if claim.verdict == FAILS)
        told = f"{part.name:12} {'ok' if result.ok else 'NO'}  {result.status}"
        print(f"{told} in {result.seconds:.0f} s of {limit:.0f}  {bad}", flush=True)
        fine &= result.ok
    print(options.out / "evidence.json", flush=True)
    return 0 if fine else 1


def parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    found = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--out", required=True, type=Path, metavar="DIR")
    found.add_argument("--minutes", type=float, default=9.0, metavar="N", help="in all (9)")
    found.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], default=())
    found.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    found.add_argument("--short", action="store_true", help="one case of each kind: a rehearsal")
    return found


def commit_of(root: Path) -> str | None:
    """The commit whose files run here; None if they differ from it, or are in no repository.

    Files that travelled without their history may lie over another commit, which git would name.
    """
    git = ("git", "-C", str(root))
    top = run((*git, "rev-parse", "--show-toplevel"), 10).stdout.strip()
    if not top or Path(top).resolve() != root.resolve():
        return None
    # What a run writes, or a user keeps beside the checkout, changes nothing of what runs.
    changes = run((*git, "status", "--porcelain", "--", "gpusetup", "scripts"), 30)
    if changes.exit != 0 or changes.stdout.strip():
        return None
    return run((*git, "rev-parse", "--short", "HEAD"), 10).stdout.strip() or None


def machine(wanted: str) -> Evidence:
    """The facts of this machine; Refused if torch, or the card that is asked for, is not usable."""
    said = run((sys.executable, "-c", ASK_TORCH, wanted), 120)
    told = said.document if said.exit == 0 else {}
    if not told:
        raise Refused(f"torch is not usable: {said.problem}{REHEARSE}")
    smi = ("nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader", "--id=0")
    driver, _, card = run(smi, 10).stdout.strip().partition(", ")
    if wanted != "cpu" and not told["card"] and (card or wanted == "cuda"):
        raise Refused(f"torch {told['torch']} computes on no GPU here ({card or 'none'}){REHEARSE}")
    return Evidence(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        device="cuda" if told["card"] else "cpu",
        stand_in=not told["card"],
        driver=driver or None,
        python=platform.python_version(),
        gpusetup=__version__,
        commit=commit_of(ROOT),
        **told,
    )


def result_of(part: Part, limit: float, device: str, *, short: bool) -> tuple[Result, str]:
    """What became of a part, and what its commands printed: pytest with one file of tests."""
    said, lines = Said(None, "", "", 0.0), []
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as folder:
        answers = Path(folder) / "answers.jsonl"
        if limit >= LEAST_SECONDS:
            tests = str(ROOT / "scripts" / "acceptance" / f"test_{part.name}.py")
            words = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-W", "ignore"]
            words += ["-s", "-p", "no:cacheprovider", "-m", "", "--tb=short", "--device", device]
            words += ["--seconds", str(limit), "--answers", str(answers), *["--short"] * short]
            env = environment(PYTHONUNBUFFERED="1", TMPDIR=folder)
            argv = (sys.executable, "-m", "pytest", tests, *words)
            said = run(argv, limit, env=env, cwd=folder)
        for text in answers.read_text("utf-8").splitlines() if answers.exists() else ():
            with contextlib.suppress(ValueError):  # a last line that was cut off
                lines.append(json.loads(text))
    tables: dict[str, list[dict[str, object]]] = {}
    for line in lines:
        if "row" in line:
            tables.setdefault(line["table"], []).append(line["row"])
    claims = claims_of(part.name, [line for line in lines if "claim" in line], device)
    status = DONE if said.exit in (0, 1) else f"pytest ended with {said.exit}: see its text"
    if said.exit is None:
        status = KILLED if said.seconds else NOT_BEGUN
    fine = status == DONE and all(claim.verdict != FAILS for claim in claims)
    result = Result(part.name, fine, status, round(said.seconds, 1), claims, tables)
    text = without_places((said.stdout + said.stderr)[-MOST_TEXT:], folder)
    return result, "\n".join(redact_document(text.split("\n"))) if said.seconds else ""


def without_places(text: str, folder: str) -> str:
    """What the commands printed, without the paths of this checkout and the caller's variables."""
    text = VARIABLES.sub('"environment": {}', text)
    for place in (os.path.relpath(ROOT, folder), str(ROOT)):
        text = text.replace(place + os.sep, "")
    return text


if __name__ == "__main__":
    sys.exit(main())
