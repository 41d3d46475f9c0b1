"""No pre-release comes unasked, and a package that exists only as source is named.

gpusetup builds nothing, so that uv alone would see of such a project only old files with a wheel.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from installing import WANTED, Install, World, needs_linux, versions_in

pytestmark = needs_linux


def source(world: World, name: str, version: str, on: str = "2026-10-01") -> None:
    """A source distribution on the default index."""
    folder = world.folder / "sources"
    folder.mkdir(exist_ok=True)
    (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder / "PKG-INFO", f"{name}-{version}/PKG-INFO")
    world.index.add("simple", path)
    world.index.uploaded[path.name] = f"{on}T00:00:00Z"


def wheel(world: World, name: str, version: str, *needs: str, on: str = "2026-09-01") -> None:
    path = world.add_default(name, version, requires=needs)
    world.index.uploaded[path.name] = f"{on}T00:00:00Z"


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    wheel(world, "deepspeed", "0.3.1.dev5", on="2020-09-01")
    source(world, "deepspeed", "0.18.2")
    wheel(world, "only-early", "1.0b1")
    wheel(world, "needs-early", "1.0", "early>=1.0b1")
    wheel(world, "early", "1.0b1")
    source(world, "early", "0.9")
    return world


def test_an_old_development_release_is_not_taken_for_one_without_wheels(
    world: World, install: Install
) -> None:
    """deepspeed: the one wheel on the index is a development release of 2020."""
    said = install("--venv", "env", *WANTED, "deepspeed")
    assert said.exit == 1, said.err
    assert not Path("env").exists()
    assert "--no-build-isolation deepspeed" in said.err
    named = install("--venv", "env", *WANTED, "deepspeed==0.3.1.dev5")
    assert named.exit == 0, named.err
    assert versions_in(Path("env"))["deepspeed"] == "0.3.1.dev5"


@pytest.mark.parametrize(
    ("package", "early"), [("only-early", "only-early"), ("needs-early", "early")]
)
def test_a_prerelease_that_must_come_is_named(
    world: World, install: Install, package: str, early: str
) -> None:
    """Without another release, or because a package requires it."""
    said = install("--venv", "env", *WANTED, package)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))[early] == "1.0b1"
    assert f"{early} 1.0b1 is a pre-release" in " ".join(said.err.split())


def test_prereleases_come_where_the_person_has_set_so(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PRERELEASE", "allow")
    said = install("--venv", "env", *WANTED, "deepspeed")
    assert "0.3.1.dev5" in said.err
