"""The RTX 3050 laptop from complaint to undo, with Windows' Python under Wine: test_windows.py.

What is a stand-in: the driver and the GPU (tests/standin), the indexes (a folder and a server on
loopback), and torch: both builds, 2.5.1+cpu and 2.5.1+cu124, are the files of PyTorch's CPU build
of 2.13.0 for Windows under other versions; the second says of the CPU that it is the GPU
(tests/fake_cuda). CPython, pip, uv, the file system calls and torch's kernels are Windows' own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "tests", "tests/install")]

from index_server import IndexServer, build_wheel, index_server  # noqa: E402
from windows import Ended, Windows, opened, seen_from_windows  # noqa: E402

PROJECT = "C:\\project"
BIN = f"{PROJECT}\\.venv\\Scripts"
REAL = "2.13.0"
GPUSETUP = ".venv\\Scripts\\gpusetup.exe"
NEEDED = ("filelock", "typing-extensions")


TORCH, BACKEND, CUDA = "2.5.1", "cu124", "12.4"
GPU = "NVIDIA GeForce RTX 3050 Laptop GPU"
SCENE = json.dumps(
    {
        "torch": f"{TORCH}+{BACKEND}",
        "cuda": CUDA,
        "gpus": [{"name": GPU, "memory_bytes": 4 << 30, "capability": [8, 6]}],
    }
)
"""What `tests/fake_cuda` makes of the CPU."""


class Step(NamedTuple):
    """A line as it was typed, and how it ended."""

    typed: str
    ended: Ended


class Laptop(NamedTuple):
    """The prefix with a project in it, a wheelhouse and the two indexes."""

    there: Windows
    house: Path
    indexes: IndexServer

    @property
    def venv(self) -> Path:
        return self.there.drive / "project" / ".venv"

    def cmd(self, typed: str, *, gpu: bool = False, seconds: float = 600) -> Step:
        """A line in cmd.exe, in the project's folder; `gpu`: torch finds the GPU where it can."""
        variables = {
            "PIP_INDEX_URL": self.indexes.simple,
            "UV_DEFAULT_INDEX": self.indexes.simple,
            "VIRTUAL_ENV": f"{PROJECT}\\.venv",
            "PYTHONUTF8": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        if gpu:
            fake = seen_from_windows(ROOT / "tests" / "fake_cuda")
            variables |= {"PYTHONPATH": fake, "FAKE_CUDA": SCENE}
        project = self.there.drive / "project"
        ended = self.there.run("cmd", "/c", typed, cwd=project, seconds=seconds, **variables)
        return Step(typed, ended)

    def kill_in_phase(self, typed: str, phase: str, *, seconds: float = 300) -> bool:
        """End the line with everything that runs once the journal says `phase`."""
        journal = self.venv / ".gpusetup" / "journal.json"
        fake = seen_from_windows(ROOT / "tests" / "fake_cuda")
        running = self.there.start(
            "cmd", "/c", typed, cwd=self.there.drive / "project",
            PYTHONPATH=fake, FAKE_CUDA=SCENE, UV_DEFAULT_INDEX=self.indexes.simple,
        )  # fmt: skip
        end = time.monotonic() + seconds
        while running.poll() is None and time.monotonic() < end:
            if journal.exists() and f'"phase": "{phase}"' in journal.read_text(errors="replace"):
                self.there.end()
                running.communicate()
                return True
            time.sleep(0.002)
        self.there.end()
        running.communicate()
        return False


@contextmanager
def laptop(folder: Path) -> Iterator[Laptop]:
    """The machine before the story: a project whose environment has gpusetup, and no torch."""
    shutil.rmtree(folder / "index", ignore_errors=True)
    with opened(folder) as there, index_server(folder / "index") as index:
        house = folder / "wheelhouse"
        fill(house)
        for wheel in house.glob("*.whl"):
            backend = wheel.name.partition("+")[2].partition("-")[0]
            index.add(f"whl/{backend}" if backend else "simple", wheel)
        project = there.drive / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        yield Laptop(there, house, index)


def fill(house: Path) -> None:
    """Both torch builds and what they need, once."""
    backends = {"cpu": None, BACKEND: CUDA}
    if len(list(house.glob(f"torch-{TORCH}+*.whl"))) == len(backends):
        return
    shutil.rmtree(house, ignore_errors=True)
    house.mkdir(parents=True)
    fetch = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(house))
    system = ("--only-binary", ":all:", "--platform", "win_amd64", "--python-version", "3.11")
    subprocess.run((*fetch, *system, f"torch=={REAL}", *NEEDED), check=True)
    real = next(house.glob("torch-*.whl"))
    with zipfile.ZipFile(real) as archive:
        files = {
            name: archive.read(name)
            for name in archive.namelist()
            if ".dist-info/" not in name and not name.endswith((".lib", ".h", ".hpp", ".cuh"))
        }
    real.unlink()
    for backend, cuda in backends.items():
        version = f"{TORCH}+{backend}"
        says = {"__version__": version, "cuda": cuda, "hip": None, "rocm": None, "xpu": None}
        rows = [f"{name} = {value!r}\n" for name, value in {**says, "git_version": "0"}.items()]
        files["torch/version.py"] = "".join(("debug = False\n", *rows)).encode()
        build_wheel(house, "torch", version, tag="cp311-cp311-win_amd64",
                    files=files, requires=NEEDED)  # fmt: skip


def story(asked: Laptop) -> Iterator[Step]:
    """What the person types, in their order: from the complaint to the undo."""
    checkout, house = seen_from_windows(ROOT), seen_from_windows(asked.house)
    yield asked.cmd("python -m venv .venv")
    old = f"torch=={TORCH}+cpu --no-index --find-links {house}"
    yield asked.cmd(f".venv\\Scripts\\python.exe -m pip install --quiet {old}")
    # gpusetup and its libraries come from the ordinary index.
    pip = (f"{BIN}\\python.exe", "-m", "pip", "install", "--quiet", checkout)
    # On a busy machine pip under Wine is slow, and a server may close its connection.
    ended = asked.there.run(
        *pip, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_DEFAULT_TIMEOUT="60", PIP_RETRIES="10"
    )
    if ended.exit:
        raise RuntimeError(f"gpusetup could not be installed for Windows' Python: {ended.out}")
    yield Step(f".venv\\Scripts\\python.exe -m pip install --quiet {checkout}", ended)
    complaint = asked.cmd(f"{GPUSETUP} doctor")
    yield complaint
    install = command_of(complaint)
    source = f"--index {asked.indexes.index_root}"
    yield asked.cmd(f"{install} --dry-run {source}")
    yield asked.cmd(f"{install} --yes {source}", gpu=True)
    yield asked.cmd(f"{GPUSETUP} doctor", gpu=True)
    yield asked.cmd(".venv\\Scripts\\python.exe -m gpusetup.verify", gpu=True)
    yield asked.cmd(f"{GPUSETUP} install --undo --yes")
    yield asked.cmd(f"{GPUSETUP} doctor")


def command_of(doctor: Step) -> str:
    """The command that doctor shows under "What to do", as a person copies it."""
    lines = doctor.ended.out.partition("What to do")[2].splitlines()
    return next(line.strip() for line in lines if line.startswith("    "))


def killed(asked: Laptop, phase: str) -> Iterator[Step]:
    """An installation that ends in a phase, and what the person does then."""
    words = f"--torch {TORCH} --index {asked.indexes.index_root}"
    line = f"{GPUSETUP} install --yes {words}"
    was_killed = asked.kill_in_phase(line, phase)
    yield Step(f"{line}  (killed while it is {phase})", Ended(-9 if was_killed else 0, ""))
    yield asked.cmd(f"{GPUSETUP} doctor")
    yield asked.cmd(line, gpu=True)
    yield asked.cmd(f"{GPUSETUP} install --undo --yes")
