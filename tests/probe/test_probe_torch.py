"""The torch family from its files, in all the states that people's environments are in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tapes import system

from gpusetup.model.machine import Python, Snapshot
from gpusetup.probe.target import TargetPython
from gpusetup.probe.torch import read_torch

SITE, USER = "/env/lib/python3.11/site-packages", "/home/user/.local/lib/python3.11/site-packages"
TARGET = TargetPython(python="/env/bin/python", prefix="/env", record=Python(), path=(SITE,))
CUDA_TEXT = """\
__version__ = '2.5.1+cu124'
debug = False
cuda: Optional[str] = '12.4'
hip: Optional[str] = None
"""
RECORD = "torch/lib/libtorch_cuda.so,sha256=x,9\ntorch/__init__.py,sha256=y,1\ntorch/version.py,,\n"


def torch_files(
    site: str = SITE, version: str = "2.5.1+cu124", installer: str = "pip", text: str = CUDA_TEXT
) -> dict[str, str]:
    info = f"{site}/torch-{version}.dist-info"
    return {
        f"{site}/torch/version.py": text,
        f"{site}/torch/__init__.py": "",
        f"{site}/torch/lib/libtorch_cuda.so": "",
        f"{info}/INSTALLER": f"{installer}\n",
        f"{info}/RECORD": RECORD,
    }


def read(files: dict[str, str], *, target: TargetPython = TARGET, cwd: str = "/proj") -> Snapshot:
    return read_torch(system({f"{SITE}/": "", **files}, facts={"cwd": cwd}), target)


def test_nothing_installed_is_false_and_an_unreadable_environment_is_unknown() -> None:
    assert read({}).torch.installed is False
    nowhere = read_torch(system({}, facts={}), TARGET)
    assert nowhere.torch.installed is None and nowhere.packages is None
    assert nowhere.readings[0].problem == "gpusetup cannot list the environment's folders"


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
    side = read({**torch_files(), "/proj/": "", **files})
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
