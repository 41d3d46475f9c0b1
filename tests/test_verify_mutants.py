"""Mutants in a file of somebody else's: read, applied, and told in one figure."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from verify_faults import outside
from verifying import ROOT

MODES = """
from torch.utils._python_dispatch import TorchDispatchMode

class Wrong(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found + 1 if func.overloadpacket.__name__ == "erf" else found

def erf_is_wrong():
    return Wrong()

def nothing_is_wrong():
    pass

def helper(x):
    return x
"""


def module_of(tmp_path: Path, text: str = MODES) -> Any:
    file = tmp_path / f"mutants_{abs(hash(text))}.py"
    file.write_text(text, encoding="utf-8")
    return outside.loaded(file)


def test_a_mode_holds_on_every_thread_and_ends(tmp_path: Path) -> None:
    import torch

    zero, seen = torch.zeros(1), []
    with outside.applied(module_of(tmp_path), "erf_is_wrong") as mode:
        assert mode
        thread = threading.Thread(target=lambda: seen.append(float(zero.erf())))
        thread.start()
        thread.join()
        seen.append(float(zero.erf()))
    assert seen == [1.0, 1.0]
    assert float(zero.erf()) == 0.0


@pytest.mark.slow
def test_a_file_of_mutants_is_run_and_resumed(tmp_path: Path) -> None:
    file, results = tmp_path / "theirs.py", tmp_path / "results.json"
    file.write_text(MODES, encoding="utf-8")
    words = ("--from", str(file), "--results", str(results), "--only", "erf")
    command = [sys.executable, str(ROOT / "scripts/mutants_verify.py"), *words]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "caught 1 of 1"
    assert json.loads(results.read_text())["erf_is_wrong"]["word"] == "caught"
