"""gpusetup installs where bare uv installs: in the current folder, with the person's settings.

Files outside that folder decide nothing. No installation fails after its plan because of a setting
with which bare uv works.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from index_server import build_wheel
from installing import TORCH, WANTED, Install, World, needs_linux, run_uv, versions_in

pytestmark = needs_linux


@pytest.fixture
def world(world: World) -> World:
    """A torch, an older and a newer release of what it needs, and a shelf of a stranger."""
    world.add_torch("cpu")
    world.add_default("typing-extensions", "4.9.0")
    world.index.add("evil/simple", world.wheel("typing-extensions", "99.0"))
    world.index.add("evil/simple", world.wheel("filelock", "99.0"))
    for name, version in (("typing-extensions", "4.15.0"), ("filelock", "3.20.0")):
        (world.folder / "theirs").mkdir(exist_ok=True)
        files = {f"{name.replace('-', '_')}.py": "print('theirs')"}
        theirs = build_wheel(world.folder / "theirs", name, version, files=files)
        world.index.add("evil/simple", theirs)
    return world


def evil_of(world: World) -> str:
    return f"{world.index.url}/evil/simple"


def users_file(world: World, text: str) -> Path:
    """The user's own uv.toml."""
    path = world.folder / "home/.config/uv/uv.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


# --- files of others ------------------------------------------------------------------------------

WORKSPACE = """
[tool.uv.workspace]
members = ["gpusetup-*", "tmp/gpusetup-*"]
[tool.uv.sources]
typing-extensions = {{ index = "evil" }}
filelock = {{ index = "evil" }}
[[tool.uv.index]]
name = "evil"
url = "{evil}"
default = true
"""
PLACES = {"TMPDIR": "tmp", "the cache": "uv-cache"}


@pytest.mark.parametrize("place", PLACES)
def test_a_project_that_somebody_planted_decides_no_index(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (world.folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(world.folder / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    venv = world.venv("home/env")
    # Into an environment that is in use uv is asked for each package by its exact version.
    world.fill(venv, world.wheel("neighbour", "1.0"))
    folder = world.folder / PLACES[place]
    folder.mkdir(exist_ok=True, mode=0o700, parents=True)
    folder.chmod(0o700)
    (folder / "pyproject.toml").write_text(WORKSPACE.format(evil=evil_of(world)))
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(venv)["typing-extensions"] == "4.15.0"
    assert world.index.asked_for("*/evil/*") == 0


def test_an_index_of_the_folder_counts_and_its_files_are_shown(
    world: World, install: Install
) -> None:
    Path("uv.toml").write_text(f'[[index]]\nname = "mine"\nurl = "{evil_of(world)}"\n')
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["filelock"] == "99.0"
    assert f"your index: 127.0.0.1:{world.index.port}" in said.err


# --- settings of the person -----------------------------------------------------------------------

VARIABLES = {
    "UV_LINK_MODE": "symlink",
    "UV_REQUIRE_HASHES": "1",
    "UV_NO_BINARY": "1",
    "UV_PYTHON": "2.7",
}
SETTINGS = {
    "uv.toml, output-file": '[pip]\noutput-file = "must-not-be.txt"',
    "uv.toml, target": '[pip]\ntarget = "elsewhere"',
}
"""Lines of the person's own uv.toml."""


@pytest.mark.parametrize("name", [*VARIABLES, *SETTINGS])
@pytest.mark.one_in(4)
def test_a_setting_of_uv_fails_no_installation(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name in VARIABLES:
        monkeypatch.setenv(name, VARIABLES[name])
    else:
        users_file(world, SETTINGS[name] + "\n")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env")).keys() >= {"torch", "filelock", "typing-extensions"}
    assert not (world.folder / "home/elsewhere").exists()
    assert not Path("must-not-be.txt").exists()


# --- where a package came from --------------------------------------------------------------------


def test_without_a_network_what_bare_uv_has_fetched_is_enough(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--index", f"{world.index.index_root}/cpu", f"torch=={TORCH}+cpu")
    run_uv(world, "pip", "install", "--python", str(world.venv("other")), *words)
    monkeypatch.setenv("UV_OFFLINE", "1")
    world.index.asked.clear()
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"
    assert world.index.asked == []


# --- settings that leave no index, or only old files ----------------------------------------------


def test_no_index_with_a_folder_of_wheels_installs_from_that_folder(
    world: World, install: Install
) -> None:
    links = world.folder / "links"
    links.mkdir()
    for wheel in (world.folder / "wheels").glob("*.whl"):
        (links / wheel.name).symlink_to(wheel)
    users_file(world, f'no-index = true\nfind-links = ["{links}"]\n')
    world.fill(world.venv("old"), world.wheel("torch", "2.0.0"))
    # Without `--torch`, the newest in the folder.
    for words in (("--venv", "env", *WANTED), ("--venv", "old", "--upgrade", *WANTED[2:])):
        said = install(*words)
        assert said.exit == 0, said.err
        assert versions_in(Path(words[1]))["torch"] == f"{TORCH}+cpu"
    assert world.index.asked == []
    for wheel in links.glob("filelock-*"):
        wheel.unlink()
    missing = install("--venv", "third", *WANTED)
    assert missing.exit == 3 and "filelock was not found" in missing.err
    assert not Path("third").exists()


# --- answers of any length, and mirrors that lack a release ---------------------------------------


def test_a_range_gets_the_newest_torch_that_the_mirror_has(world: World, install: Install) -> None:
    said = install("--venv", "env", "--torch", f">={TORCH},<3", *WANTED[2:])
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"
