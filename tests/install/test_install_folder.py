"""Wheels in a folder: `--download DIR` fills it, `--offline DIR` installs from it, and its list of
hashes is understood or refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from index_server import build_wheel
from installing import TORCH, WANTED, Install, Said, World, needs_linux, state_of, versions_in

pytestmark = needs_linux


@pytest.fixture
def wheels(world: World, install: Install) -> Path:
    """A folder filled by --download."""
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    words = ("--python", str(world.venv("here")), *WANTED[:-1], "mine")
    said = install("--download", "carried", *words)
    assert said.exit == 0, said.err
    return Path("carried").absolute()


def install_from(install: Install, wheels: Path, venv: Path) -> Said:
    return install("--offline", str(wheels), "--venv", str(venv), *WANTED, "mine")


def test_a_folder_is_filled_with_all_that_a_new_environment_needs(
    world: World, wheels: Path
) -> None:
    assert versions_in(world.folder / "here") == {}
    assert not (world.folder / "here/.gpusetup").exists()
    names = sorted(path.name.partition("-")[0] for path in wheels.iterdir())
    assert names == ["SHA256SUMS", "filelock", "mine", "torch", "typing_extensions"]


@pytest.mark.parametrize("there", ["new", "an older torch"])
@pytest.mark.one_in(2)
def test_a_folder_serves_a_machine_without_a_network(
    world: World, install: Install, wheels: Path, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, venv = wheels.rename(world.folder / "stick"), world.folder / "theirs"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(world.folder / "their-cache"))
    if there != "new":
        world.fill(world.venv("theirs"), world.wheel("torch", "2.0.0"))
    world.index.asked.clear()
    words = ("--offline", str(away), "--backend", "cpu", *WANTED[4:])
    said = install("--venv", str(venv), *words, "--index", "http://127.0.0.1:9/whl")
    assert said.exit == 0, said.err
    assert versions_in(venv) == {
        "torch": f"{TORCH}+cpu",
        "filelock": "3.20.0",
        "typing-extensions": "4.15.0",
    }
    assert world.index.asked == []
    assert "sha256" in (venv / ".gpusetup/receipt.json").read_text()


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a wheel was damaged": (
        lambda folder: next(folder.glob("torch-*.whl")).write_bytes(b"PK damaged"),
        "Failed to extract archive",
    ),
    "a wheel is missing": (
        lambda folder: next(folder.glob("filelock-*.whl")).unlink(),
        "filelock was not found",
    ),
    "nothing is left": (lambda folder: shutil.rmtree(folder), "has no wheel of torch"),
}


@pytest.mark.parametrize(("spoil", "cause"), SPOILED.values(), ids=SPOILED)
@pytest.mark.one_in(3)
def test_a_folder_that_was_spoiled(
    world: World, install: Install, wheels: Path, spoil: Callable[[Path], object], cause: str
) -> None:
    spoil(wheels)
    before = state_of(venv := world.venv())
    said = install_from(install, wheels, venv)
    assert said.exit == 3, said.err
    assert cause in said.err
    assert state_of(venv) == before


# --- the list of hashes ---------------------------------------------------------------------------

Write = Callable[[Path, str], object]
"""Writes a list of hashes in some form."""
UNDERSTOOD: dict[str, Write] = {
    "as it is": lambda path, sums: path.write_text(sums),
    "of binary files, in a folder": lambda path, sums: path.write_text(sums.replace("  ", " *./")),
    "of Windows, with a mark": lambda path, sums: path.write_bytes(
        b"\xef\xbb\xbf" + sums.replace("\n", "\r\n").encode()
    ),
}
NOT_UNDERSTOOD: dict[str, Write] = {
    "garbage": lambda path, _: path.write_bytes(bytes(range(256)) * 5),
    "another folder": lambda path, sums: path.write_text(sums.replace("  ", "  wheels/")),
    "two hashes": lambda path, sums: path.write_text(f"{sums}{'0' * 64}{sums[64:]}"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path, _: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("form", UNDERSTOOD)
@pytest.mark.one_in(3)
def test_each_usual_form_of_the_list_is_understood_and_shows_a_changed_wheel(
    world: World, install: Install, wheels: Path, form: str
) -> None:
    before = state_of(venv := world.venv())
    UNDERSTOOD[form](wheels / "SHA256SUMS", (wheels / "SHA256SUMS").read_text())
    mine = next(wheels.glob("mine-*"))
    honest = mine.read_bytes()
    build_wheel(wheels.parent / "other", "mine", "1.0", files={"mine/a.py": "evil"}).replace(mine)
    said = install_from(install, wheels, venv)
    assert said.exit == 3, said.err
    assert "hash" in said.err.lower() and state_of(venv) == before
    mine.write_bytes(honest)
    said = install_from(install, wheels, venv)
    assert said.exit == 0, said.err


@pytest.mark.parametrize("form", NOT_UNDERSTOOD)
@pytest.mark.one_in(3)
def test_a_list_that_cannot_be_understood_is_refused(
    world: World, install: Install, wheels: Path, form: str
) -> None:
    before = state_of(venv := world.venv())
    path = wheels / "SHA256SUMS"
    sums = path.read_text()
    path.unlink()
    NOT_UNDERSTOOD[form](path, sums)
    said = install_from(install, wheels, venv)
    assert said.exit == 3, said.err
    assert f"{path} cannot be understood, so no wheel can be compared with it" in said.err
    assert "nothing was changed" in said.err and state_of(venv) == before
