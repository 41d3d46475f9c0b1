"""Wheels whose files are not theirs alone: the environment's own, and those of another package."""

from __future__ import annotations

from pathlib import Path

import pytest
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    needs_linux,
    site_of,
    state_of,
    versions_in,
)

pytestmark = needs_linux


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


# --- the environment's own files ------------------------------------------------------------------

OWN_FILES = (
    "scripts/deactivate",
    "scripts/activate_this.py",
    "scripts/python3.11",
    "data/pyvenv.cfg",
    "data/lib/python3.11/x.py",
)
"""As a wheel brings them below `mine-2.0.data`."""


@pytest.mark.parametrize("path", OWN_FILES)
@pytest.mark.parametrize("folder", ["env", "new"])
@pytest.mark.one_in(2)
def test_a_wheel_with_a_file_of_the_environment_itself_is_refused_before_anything_changes(
    world: World, install: Install, path: str, folder: str
) -> None:
    files = {"mine/__init__.py": "", f"mine-2.0.data/{path}": "#!python\nx"}
    world.add_default("mine", "2.0", files=files)
    world.venv("env")
    world.will_have("new")
    before = state_of(world.folder / "env")

    said = install("--venv", str(world.folder / folder), *WANTED, "mine==2.0")

    assert said.exit == 3, said.err
    assert f"mine brings a file of the environment's own Python: {own_name(path)}" in said.err
    assert "nothing was changed" in said.err
    assert state_of(world.folder / "env") == before
    assert not (world.folder / "new").exists()
    assert not (world.folder / "env/.gpusetup/journal.json").exists()
    # Nothing is left that would be in the way of the next installation.
    said = install("--venv", str(world.folder / folder), *WANTED)
    assert said.exit == 0, said.err


def own_name(path: str) -> str:
    """A file of a wheel's data folder, below the prefix."""
    return path.replace("scripts/", "bin/", 1).replace("data/", "", 1)


@pytest.mark.parametrize("own_file", ["bin/activate", "pyvenv.cfg", "lib/python3.11/mine.py"])
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.one_in(2)
def test_an_installed_package_that_lists_such_a_file_is_not_replaced(
    world: World, install: Install, own_file: str, words: tuple[str, ...]
) -> None:
    venv = world.venv()
    older = world.wheel("torch", "2.0.0", files={"torch/__init__.py": ""})
    world.fill(venv, older)
    (venv / "lib/python3.11").mkdir(parents=True, exist_ok=True)
    (venv / own_file).touch()
    record = site_of(venv) / "torch-2.0.0.dist-info/RECORD"
    record.write_text(f"{record.read_text()}../../../{own_file},,\n")
    before = state_of(venv)

    said = install("--venv", str(venv), *WANTED, *words)

    assert said.exit == 3, said.err
    assert "torch 2.0.0 lists a file of the environment's own Python" in said.err
    assert own_file in said.err and "nothing was changed" in said.err
    assert state_of(venv) == before


# --- the same file in two wheels ------------------------------------------------------------------

INFO = f"torch-{TORCH}+cpu.dist-info/entry_points.txt"
STRANGE = {
    "as a module": "torch/__init__.py",
    "as data": "mine-2.0.data/data/{library}/torch/__init__.py",
    "as torch's metadata": f"mine-2.0.data/data/{{library}}/{INFO}",
}


@pytest.mark.parametrize("how", STRANGE)
def test_two_wheels_of_one_plan_with_the_same_file_are_refused(
    world: World, install: Install, how: str
) -> None:
    venv = world.venv()
    library = site_of(venv).relative_to(venv)
    path = STRANGE[how].format(library=library)
    world.add_default("mine", "2.0", files={"mine/__init__.py": "", path: "evil"})
    before = state_of(venv)

    said = install("--venv", str(venv), *WANTED, "mine==2.0")

    assert said.exit == 3, said.err
    name = STRANGE[how].rpartition("{library}/")[2]
    assert f"mine and torch both bring {library / name}, with different content" in said.err
    assert "nothing was changed" in said.err
    assert state_of(venv) == before


def test_two_wheels_may_bring_the_same_file_with_the_same_content(
    world: World, install: Install
) -> None:
    namespace = {"shared/__init__.py": "# a namespace\n"}
    world.add_default("one", "1.0", files={**namespace, "shared/one.py": ""})
    world.add_default("two", "1.0", files={**namespace, "shared/two.py": ""})
    venv = world.venv()
    said = install("--venv", str(venv), *WANTED, "one", "two")
    assert said.exit == 0, said.err
    assert versions_in(venv).keys() >= {"one", "two", "torch"}
    assert Path(site_of(venv), "shared/__init__.py").read_text() == "# a namespace\n"
