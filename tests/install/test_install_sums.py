"""`--offline DIR`: the list of hashes in that folder is understood, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from index_server import build_wheel
from installing import WANTED, Install, World, needs_linux, state_of, versions_in

pytestmark = needs_linux

Write = Callable[[Path, str], object]
"""Writes a list of hashes in some form."""
UNDERSTOOD: dict[str, Write] = {
    "as it is": lambda path, sums: path.write_text(sums),
    "of binary files": lambda path, sums: path.write_text(sums.replace("  ", " *")),
    "with the folder": lambda path, sums: path.write_text(sums.replace("  ", "  ./")),
    "in upper case": lambda path, sums: path.write_text(
        "".join(f"{line[:64].upper()}{line[64:]}\n" for line in sums.splitlines())
    ),
    "of Windows": lambda path, sums: path.write_text(sums.replace("\n", "\r\n"), newline=""),
    "with a mark": lambda path, sums: path.write_bytes(b"\xef\xbb\xbf" + sums.encode()),
}
NOT_UNDERSTOOD: dict[str, Write] = {
    "garbage": lambda path, _: path.write_bytes(bytes(range(256)) * 5),
    "one bad line": lambda path, sums: path.write_text(f"{sums}xxxxx\n"),
    "another folder": lambda path, sums: path.write_text(sums.replace("  ", "  wheels/")),
    "two hashes": lambda path, sums: path.write_text(f"{sums}{'0' * 64}{sums[64:]}"),
    "a folder": lambda path, _: path.mkdir(),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path, _: path.symlink_to("nowhere"),
}


@pytest.fixture
def wheels(world: World, install: Install) -> Path:
    """A folder that `--download` filled, with one wheel changed since."""
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    folder = world.folder / "carried"
    said = install("--download", str(folder), *WANTED[:-1], "mine")
    assert said.exit == 0, said.err
    return folder


def install_from(world: World, install: Install, wheels: Path) -> tuple[int, str]:
    environment = str(world.folder / "env")
    said = install("--offline", str(wheels), "--venv", environment, *WANTED, "mine")
    return said.exit, said.err


@pytest.mark.parametrize("form", UNDERSTOOD)
@pytest.mark.one_in(3)
def test_each_usual_form_of_the_list_is_understood_and_shows_a_changed_wheel(
    world: World, install: Install, wheels: Path, form: str
) -> None:
    venv = world.venv()
    before = state_of(venv)
    sums = (wheels / "SHA256SUMS").read_text()
    UNDERSTOOD[form](wheels / "SHA256SUMS", sums)
    mine = next(wheels.glob("mine-*"))
    honest = mine.read_bytes()
    build_wheel(wheels.parent / "other", "mine", "1.0", files={"mine/a.py": "evil"}).replace(mine)
    code, err = install_from(world, install, wheels)
    assert code == 3, err
    assert "hash" in err.lower() and state_of(venv) == before
    mine.write_bytes(honest)
    code, err = install_from(world, install, wheels)
    assert code == 0, err
    assert "mine" in versions_in(venv)


@pytest.mark.parametrize("form", NOT_UNDERSTOOD)
@pytest.mark.one_in(3)
def test_a_list_that_cannot_be_understood_is_refused(
    world: World, install: Install, wheels: Path, form: str
) -> None:
    venv = world.venv()
    before = state_of(venv)
    path = wheels / "SHA256SUMS"
    sums = path.read_text()
    path.unlink()
    NOT_UNDERSTOOD[form](path, sums)
    code, err = install_from(world, install, wheels)
    assert code == 3, err
    assert f"{path} cannot be understood, so no wheel can be compared with it" in err
    assert "nothing was changed" in err and state_of(venv) == before
