"""How fast gpusetup starts: by what Python's own report of imports says, as a ratio in one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
RUNS = 5


def microseconds(code: str) -> dict[str, int]:
    """Every module that `code` imports -> its own time; site packages are left out."""
    said = subprocess.run(
        [sys.executable, "-S", "-X", "importtime", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (LINE.match(line) for line in said.stderr.splitlines())
    return {row[2]: int(row[1]) for row in rows if row}


def test_import_gpusetup_costs_less_than_json_and_re() -> None:
    """A third of what `import json, re` takes, which is 3 to 10 ms on the machines of 2026."""
    runs = [microseconds("import json, re\nimport gpusetup") for _ in range(RUNS)]
    before = set(microseconds("import json, re"))
    ours = min(sum(time for name, time in run.items() if name not in before) for run in runs)
    theirs = min(
        sum(time for name, time in run.items() if re.match(r"(json|re|enum|functools)\b", name))
        for run in runs
    )
    assert ours < theirs / 3, f"import gpusetup: {ours} µs, json and re: {theirs} µs"
