"""What the tests of install share: two indexes, environments, the command in-process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uv
from index_server import IndexServer, build_wheel, index_server

from gpusetup import cli
from gpusetup.install.switching import change
from gpusetup.install.switching import journal as journals
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Gpu, Snapshot
from gpusetup.model.versions import Capability

HERE = f"cp{sys.version_info[0]}{sys.version_info[1]}"
TAG = f"{HERE}-{HERE}-linux_{platform.machine()}"
TORCH, FIRST, SECOND = (
    ("2.5.1", "cu124", "cu121") if sys.version_info < (3, 13) else ("2.9.1", "cu130", "cu128")
)
"""A torch that has wheels for this Python, and its backends for an RTX 3050 in their order."""
WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")

needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the small wheels are built for Linux on x86_64",
)


@dataclass(kw_only=True)
class World:
    """Two loopback indexes, a home of its own, and the environment variables that lead there."""

    folder: Path
    index: IndexServer
    environment: dict[str, str] = field(default_factory=dict)

    def wheel(self, name: str, version: str, **more: Any) -> Path:
        return build_wheel(self.folder / "wheels", name, version, **more)

    def add_torch(self, backend: str, version: str = TORCH, **more: Any) -> Path:
        """A small torch on a backend's shelf: a package, a console script, two dependencies."""
        more.setdefault("requires", ("filelock", "typing-extensions>=4.8"))
        files = {
            "torch/__init__.py": f'__version__ = "{version}+{backend}"\n',
            "torch/version.py": f'__version__ = "{version}+{backend}"\ncuda = None\n',
            "torch/lib/libtorch.so": f"{backend} {version}" * 999,
            "shared/torch.txt": "torch's part of a shared folder\n",
            **more.pop("files", {}),
        }
        scripts = {"torchrun": "torch:main"}
        wheel = self.wheel(
            "torch", f"{version}+{backend}", tag=TAG, files=files, scripts=scripts, **more
        )
        self.index.add(f"whl/{backend}", wheel)
        return wheel

    def add_default(self, name: str, version: str, **more: Any) -> Path:
        wheel = self.wheel(name, version, **more)
        self.index.add("simple", wheel)
        return wheel

    def venv(self, name: str = "env") -> Path:
        """An environment by uv, with nothing in it."""
        path = self.folder / name
        run_uv(self, "venv", "--quiet", "--python", sys.executable, str(path))
        return path

    def fill(self, venv: Path, *wheels: Path) -> None:
        """Put wheels into an environment, by uv."""
        words = ("pip", "install", "--quiet", "--offline", "--no-deps", "--no-index")
        run_uv(self, *words, "--python", str(venv / "bin/python"), *map(str, wheels))


def run_uv(world: World, *words: str) -> None:
    said = subprocess.run(
        [str(uv.find_uv_bin()), *words],
        env={**os.environ, **world.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


@contextmanager
def new_world(folder: Path) -> Iterator[World]:
    """A world; pip's and uv's configuration is empty but for the default index on loopback."""
    with index_server(folder / "index") as index:
        (folder / "index").mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir()
        world = World(folder=folder, index=index)
        world.environment = bare_environment(folder, index.simple)
        yield world


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing is given up after a second."""
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


SETTINGS = ("UV_", "PIP_", "GPUSETUP_", "VIRTUAL_ENV", "CONDA_PREFIX")
"""How variables begin that change what uv, pip and gpusetup do."""


def bare_environment(folder: Path, default_index: str) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "UV_CACHE_DIR": str(folder / "uv-cache/uv"),
        "GPUSETUP_CACHE_DIR": str(folder / "uv-cache"),
        "UV_DEFAULT_INDEX": default_index,
        "PIP_INDEX_URL": default_index,
        "PIP_CONFIG_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }


def enter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process sees the world's variables, and none of pip's and uv's own."""
    for name in list(os.environ):
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.folder / "home")


@dataclass(frozen=True, kw_only=True)
class Said:
    exit: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


Install = Callable[..., Said]


def installer(world: World, capsys: pytest.CaptureFixture[str]) -> Install:
    """`gpusetup install` in this process, against the world's torch index."""

    def install(*words: str) -> Said:
        capsys.readouterr()
        root = ("--index", world.index.index_root)
        code = cli.main(["install", *(() if "--index" in words else root), *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return install


def with_a_gpu(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The machine is this one, but it has an RTX 3050 and driver 580."""
    from gpusetup.commands import install_flow as command
    from gpusetup.commands.common import gather

    def with_gpu(*words: Any, **options: Any) -> Snapshot:
        snapshot = gather(*words, **options)
        return replace(
            snapshot,
            driver=Driver(version="580.95.05", cuda="13.0"),
            gpus=(
                Gpu(
                    name="NVIDIA GeForce RTX 3050",
                    compute_capability=Capability(8, 6),
                    memory_total_bytes=8 << 30,
                    visible=True,
                ),
            ),
            **changes,
        )

    monkeypatch.setattr(command, "gather", with_gpu)


LEFT_ASIDE = ("__pycache__", ".gpusetup", ".lock")
"""Bytecode, the store and uv's lock do not count as the environment's state."""


def state_of(folder: Path) -> dict[str, str]:
    """Every entry of a folder: its mode and the hash of its content, or where a link leads."""
    return {
        str(path.relative_to(folder)): entry_state(path)
        for path in sorted(folder.rglob("*"))
        if not set(path.relative_to(folder).parts) & set(LEFT_ASIDE)
    }


def entry_state(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    mode = f"{path.stat().st_mode:o}"
    if path.is_dir():
        return mode
    return f"{mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def site_of(venv: Path) -> Path:
    return next(venv.glob("lib/python*/site-packages"))


def versions_in(venv: Path) -> dict[str, str]:
    """Name -> version of what is installed, from the metadata folders."""
    infos = venv.glob("lib/python*/site-packages/*.dist-info")
    pairs = (info.name.removesuffix(".dist-info").rsplit("-", 1) for info in infos)
    return {name.replace("_", "-"): version for name, version in pairs}


def killed_in(
    phase: str,
    venv: Path,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...] = WANTED,
    *,
    target: str = "--python",
) -> None:
    """An installation that ends without a word as soon as a phase has begun."""
    honest = journals.write_journal

    def write(store: Path, journal: journals.Journal, name: str = journals.JOURNAL) -> None:
        honest(store, journal, name)
        if journal.phase == phase and name == journals.JOURNAL:
            os._exit(9)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(change, "write_journal", write)
        install(target, str(venv), *words)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
