"""A page of an index leads to no file of this machine, unless the person named its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from index_server import JSON_PAGE, Fault, build_wheel
from installing import TAG, TORCH, WANTED, Install, World, needs_linux, state_of, versions_in

pytestmark = needs_linux

NAME = "mine-99.0-py3-none-any.whl"


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    build_wheel(world.folder / "private", "mine", "99.0")
    return world


def link_to(wheel: Path, how: str) -> Fault:
    """A page whose only link leads to a file of this machine."""
    address = f"file:{wheel}" if how == "one slash" else f"file://{wheel}"
    if how == "JSON":
        file = {"filename": wheel.name, "url": address, "hashes": {}}
        page = {"meta": {"api-version": "1.1"}, "name": "mine", "files": [file]}
        return Fault(body=json.dumps(page).encode(), kind=JSON_PAGE)
    if how == "a base":
        text = f'<base href="file://{wheel.parent}/"><a href="{wheel.name}">{wheel.name}</a>'
    else:
        text = f'<a href="{address}">{wheel.name}</a>'
    return Fault(body=f"<!DOCTYPE html><html><body>{text}</body></html>".encode())


@pytest.mark.parametrize("how", ["HTML", "one slash", "JSON", "a base"])
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.one_in(4)
def test_a_page_that_leads_to_a_file_of_this_machine(
    world: World, install: Install, how: str, words: tuple[str, ...]
) -> None:
    wheel = world.folder / "private" / NAME
    world.index.faults["/simple/mine/"] = link_to(wheel, how)
    venv = world.venv()
    before = state_of(venv)

    said = install("--venv", str(venv), *WANTED, "mine", *words)

    assert said.exit == 3, (said.out, said.err)
    assert f"An index leads to a file of this machine: file://{wheel}" in said.err
    assert "nothing was changed" in said.err
    assert state_of(venv) == before


def test_torchs_page_leads_to_none_either(world: World, install: Install) -> None:
    wheel = world.folder / "wheels" / f"torch-{TORCH}+cpu-{TAG}.whl"
    world.index.faults["/whl/cpu/torch/"] = link_to(wheel, "HTML")
    venv = world.venv()
    said = install("--venv", str(venv), *WANTED)
    assert said.exit == 3, (said.out, said.err)
    assert "An index leads to a file of this machine" in said.err


@pytest.mark.parametrize("place", ["a folder of wheels", "an index on disk"])
def test_a_folder_that_the_person_named_is_used(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = world.folder / "private"
    if place == "a folder of wheels":
        monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    else:
        page = world.folder / "disk/mine/index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<a href="../../private/{NAME}">{NAME}</a>')
        monkeypatch.setenv("UV_INDEX", (world.folder / "disk").as_uri())
    venv = world.venv()
    said = install("--venv", str(venv), *WANTED, "mine")
    assert said.exit == 0, said.err
    assert versions_in(venv)["mine"] == "99.0"
