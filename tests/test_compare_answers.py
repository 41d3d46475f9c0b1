"""`scripts/compare_answers.py`: same questions, same answers; a difference is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "compare_answers.py"
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory."


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)


def test_answers_are_written_again_from_their_own_material_and_compared(tmp_path: Path) -> None:
    before, now = tmp_path / "before.jsonl", tmp_path / "now.jsonl"
    before.write_text(json.dumps({"id": "one", "kind": "report", "given": OOM}))
    assert run("write", str(now), "--again", str(before), "--jobs", "1").returncode == 0
    row = json.loads(now.read_text())
    assert row["doctor"]["answer"]["cause"] == "out-of-memory"
    row["doctor"]["answer"]["cause"] = "ok"
    before.write_text(json.dumps(row))
    done = run("compare", str(before), str(now))
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == [
        "=== one",
        '-doctor.answer.cause: "ok"',
        '+doctor.answer.cause: "out-of-memory"',
    ]
    assert run("compare", str(before), str(now), "--without", "cause").returncode == 0
