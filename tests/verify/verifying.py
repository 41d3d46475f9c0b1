"""How the tests of verify start it: as the user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import warm

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "gpusetup" / "verify"
FAKE_CUDA = ROOT / "tests" / "fake_cuda"
IN_THE_WAY = ("NVIDIA_TF32_OVERRIDE", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")


def started(
    *words: str,
    command: Sequence[str] = (),
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run verify to its end: a `command` in a new process, the folder in one that has torch.

    A torch of the test's own, on `PYTHONPATH`, is imported by a new process too.
    """
    clean = {name: value for name, value in os.environ.items() if name not in IN_THE_WAY}
    told = {**clean, **(environment or {})}
    is_new = command or told.get("PYTHONPATH") not in (None, str(FAKE_CUDA))
    argv = [*(command or (sys.executable, str(FOLDER))), *words]
    kind = subprocess.Popen if is_new else warm.Popen
    with kind(
        argv,
        cwd=cwd,
        env=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def with_gpus(*words: str, **scene: Any) -> subprocess.CompletedProcess[str]:
    """Run on the machine of `fake_cuda/`."""
    environment = {"PYTHONPATH": str(FAKE_CUDA), "FAKE_CUDA": json.dumps(scene)}
    environment.update(scene.get("environment", {}))
    return started(*words, environment=environment)


def states(document: Mapping[str, Any]) -> dict[str, str]:
    """`name@device` -> status."""
    return {f"{row['name']}@{row['device']}": row["status"] for row in document["checks"]}


RTX_3050 = {
    "name": "NVIDIA GeForce RTX 3050 Laptop GPU",
    "memory_bytes": 4294443008,
    "capability": [8, 6],
}
T4 = {"name": "Tesla T4", "memory_bytes": 15828320256, "capability": [7, 5]}
