"""`%load_ext gpusetup` in a real kernel by nbclient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUN = """
import json, sys, nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, kernel_name="python3", timeout=300, allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""


def executed(folder: Path, *cells: str, **environment: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell, by a real kernel."""
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    known = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "IPYTHONDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env={**known, **environment},
        cwd=folder,
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


def test_a_notebook_shows_what_the_commands_say(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    (tmp_path / "evil.txt").write_text(f"RuntimeError: CUDA error: out of memory {evil}\n")
    outputs = executed(
        tmp_path,
        "%load_ext gpusetup",
        "%gpusetup doctor --from rtx3050-laptop",
        "%gpusetup doctor --report evil.txt",
        "%gpusetup doctro",
        "%gpusetup doctor --report -",
        "%gpusetup doctor",
        "import sys; print([name for name in ('torch', 'gpusetup.cli') if name in sys.modules])",
        "%gpusetup install",
        NO_COLOR="1",
    )
    assert {one["output_type"] for cell in outputs for one in cell} == {"stream"}
    said = ["".join(one.get("text", "") for one in cell) for cell in outputs]
    assert said[1].startswith("✗ torch-cpu-build: torch 2.5.1+cpu is a CPU build")
    assert "out-of-memory" in said[2] and "\x1b" not in said[2]
    assert "error: gpusetup has no command" in said[3]
    assert said[4]
    assert sys.executable in said[5]
    assert said[6].strip() == "[]"
    assert "There is no terminal to ask on" in said[7]
