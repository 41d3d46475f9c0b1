"""The torch family from its files, in all the states that people's environments are in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tapes import system

from gpusetup.model.machine import Python
from gpusetup.probe.target import TargetPython
from gpusetup.probe.torch import read_torch

SITE = "/env/lib/python3.11/site-packages"
TARGET = TargetPython(python="/env/bin/python", prefix="/env", record=Python(), import_path=(SITE,))


@pytest.mark.parametrize(
    ("files", "module"),
    [
        ({"/proj/torch.py": ""}, "torch"),
        ({"/proj/torch/__init__.py": ""}, "torch"),
        ({"/proj/random.py": ""}, "random"),
        ({"/proj/torch/notes.txt": ""}, None),
        ({"/proj/my_torch.py": ""}, None),
    ],
)
def test_a_local_file_that_hides_a_module_is_an_event(
    files: dict[str, str], module: str | None
) -> None:
    machine = system({f"{SITE}/": "", "/proj/": "", **files}, facts={"cwd": "/proj"})
    side = read_torch(machine, TARGET)
    assert [event.values["module"] for event in side.events] == ([module] if module else [])


# --- real ones ------------------------------------------------------------------------------------


def test_the_torch_of_this_environment_is_read_without_importing_it() -> None:
    code = (
        "import sys, json; from gpusetup.system.system import System\n"
        "from gpusetup.probe.target import choose_target\n"
        "from gpusetup.probe.torch import read_torch\n"
        f"side = read_torch(System(), choose_target(System(), {sys.executable!r}))\n"
        "print(json.dumps([side.torch.version, side.torch.backend, 'torch' in sys.modules]))"
    )
    root = Path(__file__).resolve().parents[2]
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    version, backend, imported = json.loads(said.stdout)
    torch = pytest.importorskip("torch")
    assert version == str(torch.__version__)
    assert (backend is not None, imported) == (True, False)
