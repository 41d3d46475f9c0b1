#!/usr/bin/env python3
"""Runs the whole program on a real GPU, once, and keeps the evidence.

    python scripts/gpu_acceptance.py --out DIR                     everything, in 9 minutes
    python scripts/gpu_acceptance.py --out DIR --device cpu        a rehearsal with small models

It writes DIR/evidence.json (the machine, and the result and the figure of each test) and, for each
part, DIR/PART.txt (what its commands printed); both are redacted, so that they can be kept in
tests/recorded_runs/.

A part is a file of tests in scripts/acceptance. Each runs in its own process, which is killed at
its limit with everything that it started, and the next part runs whatever happened. The settings of
the GPU (clocks, power limit, MIG) are never changed, and nothing is downloaded.

Exit code: 0 if every test passed or was skipped; 1 if one failed or a part was killed; 2 if torch
cannot use the GPU, or if DIR already contains evidence.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from acceptance.processes import Said, environment, run  # noqa: E402

from gpusetup import __version__  # noqa: E402
from gpusetup.redaction import redact_document  # noqa: E402

PARTS = {"readings": 20, "verify": 230, "tune": 200, "monitor": 90}
"""Maps each part to its limit in seconds, on an H100."""
ASK_TORCH = """
import json, sys, torch
told = {"torch": torch.__version__, "cuda": torch.version.cuda, "card": None}
if sys.argv[1] == "cuda":
    one = torch.ones(64, 64, device="cuda:0")
    assert (one @ one).sum().item() == 64 ** 3, "the card computes a wrong product"
    told["card"] = torch.cuda.get_device_name(0)
print(json.dumps(told))
"""


def main() -> int:
    options = parser().parse_args()
    # Without this handler, SIGTERM would leave the running part behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    asked = run((sys.executable, "-c", ASK_TORCH, options.device), 120)
    if asked.exit != 0:
        print(f"nothing was measured: torch is not usable: {asked.problem}", file=sys.stderr)
        return 2
    evidence_file = options.out / "evidence.json"
    if evidence_file.exists():
        print(f"nothing was measured: {evidence_file} is from an earlier run", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)

    evidence: dict[str, Any] = {**machine(options.device), **asked.document, "parts": []}
    all_passed = True
    for name in options.parts:
        result, text = result_of(name, PARTS[name] * options.time, options.device)
        evidence["parts"].append(result)
        # Write after each part, so that a run that is killed leaves what it measured.
        evidence_file.write_text(json.dumps(redact_document(evidence), indent=1) + "\n")
        (options.out / f"{name}.txt").write_text(text)
        all_passed &= result["status"] in ("passed", "needs a GPU")
        print(f"{name:10} {result['status']} in {result['seconds']:.0f} s", flush=True)
    return 0 if all_passed else 1


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--out", required=True, type=Path, metavar="DIR")
    found.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    found.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    found.add_argument("--time", type=float, default=1.0, help="multiply each part's limit by this")
    return found


def machine(device: str) -> dict[str, Any]:
    smi = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {
        "schema": "gpusetup.acceptance/2",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "driver": run(smi, 10).stdout.strip() or None,
        "python": platform.python_version(),
        "gpusetup": __version__,
        "commit": run(("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"), 10).stdout.strip(),
    }


def result_of(name: str, limit: float, device: str) -> tuple[dict[str, Any], str]:
    """The result of a part, and what its commands printed."""
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as folder:
        answers = Path(folder) / "answers.jsonl"
        said = run_tests(name, limit, device, answers)
        lines = answers.read_text("utf-8").splitlines() if answers.exists() else []
    statuses = {None: "killed at its limit", 0: "passed", 1: "failed", 5: "needs a GPU"}
    status = statuses.get(said.exit, "no tests ran")
    result = {
        "name": name,
        "status": status,
        "seconds": round(said.seconds, 1),
        "tests": [json.loads(line) for line in lines],
    }
    text = (said.stdout + said.stderr).replace(str(ROOT) + "/", "")
    return result, "\n".join(redact_document(text.split("\n")))


def run_tests(name: str, limit: float, device: str, answers: Path) -> Said:
    argv = (
        *(sys.executable, "-m", "pytest", str(ROOT / "scripts/acceptance" / f"test_{name}.py")),
        *("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-W", "ignore", "-m", ""),
        *("-s", "-p", "no:cacheprovider", "--tb=short"),
        *("--device", device, "--seconds", str(limit), "--answers", str(answers)),
    )
    env = environment(PYTHONUNBUFFERED="1", TMPDIR=str(answers.parent))
    return run(argv, limit, env=env, cwd=answers.parent)


if __name__ == "__main__":
    sys.exit(main())
