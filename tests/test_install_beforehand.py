"""What is said before anything is fetched: an old pip, a torch that would hide ours, no hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import (
    TORCH,
    Install,
    World,
    needs_linux,
    state_of,
)

from gpusetup.install.target.find import layout_of
from gpusetup.system.system import System

pytestmark = needs_linux

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


def test_a_torch_on_pythonpath_that_would_hide_ours_is_told(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = world.venv()
    before = state_of(venv)
    sources = world.folder / "sources"
    (sources / "torch").mkdir(parents=True)
    (sources / "torch/__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(sources))
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 3, said.err
    assert f"{sources} holds a torch that " in said.err and "would not be seen" in said.err
    assert "PYTHONNOUSERSITE=1" in said.err
    assert state_of(venv) == before
    assert not world.index.asked
    (sources / "torch/__init__.py").unlink()
    assert install("--python", str(venv), *WANTED).exit == 0


def test_the_users_own_packages_come_before_those_of_an_interpreter(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the base's, not of an environment's: that has no user site."""
    venv = world.venv()
    base = (venv / "bin/python").resolve()
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    users = next(_made_site(base, tmp_path / "user"))
    assert str(users) in layout_of(System(), str(base)).ahead
    assert str(users) not in layout_of(System(), str(venv / "bin/python")).ahead
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    assert str(users) not in layout_of(System(), str(base)).ahead


def _made_site(base: Path, user: Path) -> Iterator[Path]:
    import sys

    folder = user / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    folder.mkdir(parents=True)
    yield folder
