"""Whatever goes wrong, the environment is as it was, and two lines say what and what to do."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from index_server import Fault
from installing import (
    FIRST,
    SECOND,
    TAG,
    TORCH,
    WANTED,
    Install,
    Said,
    World,
    impatient,
    needs_linux,
    state_of,
    with_a_gpu,
)

from gpusetup.install import planning

pytestmark = needs_linux

PAGE = f"/whl/{FIRST}/torch/"
WHEEL, DATA = f"{PAGE}*.whl", f"{PAGE}*.metadata"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    impatient(monkeypatch)
    return world


@pytest.fixture
def venv(world: World) -> Path:
    venv = world.venv()
    world.fill(venv, world.wheel("torch", "2.0.0"), world.wheel("mine", "1.0"))
    return venv


def check(said: Said, venv: Path, before: dict[str, str], code: int, cause: str) -> None:
    """The contract of a failure: the code, one line of cause, one of what to do, no change."""
    assert said.exit == code, said.err
    assert state_of(venv) == before
    assert not (venv / ".gpusetup").exists()
    error = next(line for line in said.err.splitlines() if line.startswith("error: "))
    assert re.search(cause, said.err.partition("error: ")[2]), said.err
    assert len(error) > len("error: ")
    assert any(line.startswith("hint: ") and len(line) > 20 for line in said.err.splitlines())
    assert "Traceback" not in said.err


# --- the index -----------------------------------------------------------------------------------

LOGIN_PAGE = b"<html>" + b"<p>Log in</p>" * 400
FAULTS = {
    "the page wants a login": (PAGE, Fault(status=401), "only with a login"),
    "the page times out": (PAGE, Fault(stall_seconds=2), "timed out"),
    "a web page for an index": (PAGE, Fault(body=LOGIN_PAGE), f"{FIRST} has no torch=="),
    "the wheel breaks off": (WHEEL, Fault(cut_at=100), "end of file"),
    "the metadata is nonsense": (DATA, Fault(body=b"nonsense"), "uv cannot plan"),
    "the rest's index wants a login": (
        "/simple/*",
        Fault(status=401),
        "authentication credentials",
    ),
}


@pytest.mark.parametrize(("pattern", "fault", "cause"), FAULTS.values(), ids=FAULTS)
@pytest.mark.one_in(7)
def test_an_index_at_fault_changes_nothing_and_is_not_passed_over(
    world: World,
    venv: Path,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    pattern: str,
    fault: Fault,
    cause: str,
) -> None:
    before = state_of(venv)
    for backend in (FIRST, SECOND):
        world.add_torch(backend)
    world.index.faults[pattern] = fault
    with_a_gpu(monkeypatch)
    said = install("--python", str(venv), "--torch", TORCH, "--yes", "--no-verify")
    check(said, venv, before, 3, cause)
    assert not world.index.asked_for(f"* /whl/{SECOND}/*")


def test_a_wheel_with_a_wrong_hash_is_refused(world: World, venv: Path, install: Install) -> None:
    before = state_of(venv)
    world.add_torch("cpu")
    other = world.wheel("torch", f"{TORCH}+cpu.other", tag=TAG)
    world.index.faults["/whl/cpu/torch/*.whl"] = Fault(body=other.read_bytes())
    check(install("--python", str(venv), *WANTED), venv, before, 3, "ash mismatch")


def test_a_wheel_with_a_bad_name_in_it(world: World, venv: Path, install: Install) -> None:
    before = state_of(venv)
    world.add_torch("cpu", files={"../../evil.py": "boo"})
    said = install("--python", str(venv), *WANTED)
    assert said.exit in (0, 3, 4), said.err
    assert not list(world.folder.rglob("evil*"))
    assert said.exit == 0 or state_of(venv) == before


def test_a_file_that_two_packages_bring_comes_as_with_uv_and_the_undo_gives_it_back(
    world: World, venv: Path, install: Install
) -> None:
    before = state_of(venv)
    world.add_torch("cpu", files={"mine/__init__.py": "another"})
    assert install("--python", str(venv), *WANTED).exit == 0
    assert next(venv.glob("lib/*/site-packages/mine/__init__.py")).read_text() == "another"
    assert install("--python", str(venv), "--undo", "--yes").exit == 0
    assert state_of(venv) == before


# --- disk and permissions ------------------------------------------------------------------------


def test_a_disk_that_is_full(world: World, venv: Path) -> None:
    """The program itself, where no file may grow beyond a size."""
    before = state_of(venv)
    world.add_torch("cpu", files={"torch/big.so": os.urandom(900_000)})
    words = ("--python", str(venv), *WANTED, "--index", world.index.index_root)
    child = subprocess.run(
        [sys.executable, "-m", "gpusetup", "install", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    said = Said(exit=child.returncode, out=child.stdout, err=child.stderr)
    check(said, venv, before, 3, "File too large|os error 27|Errno 27|too large")


def test_a_disk_without_room_is_told_before_the_download(
    world: World, venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is needed is more than what is free, the spare too."""
    before = state_of(venv)
    world.add_torch("cpu")
    monkeypatch.setattr(planning, "free_bytes", lambda _: 49 << 20)
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, r"needs 50\.0 MiB, free 49\.0 MiB")


def test_a_move_that_fails_in_the_middle(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file that Windows holds open, or a mount that has become read-only."""
    venv = world.venv()
    former = {"torch/__init__.py": "", "a.py": "", "b.py": "", "c/d.py": ""}
    world.fill(venv, world.wheel("torch", "2.0.0", files=former))
    before = state_of(venv)
    world.add_torch("cpu")
    calls, rename = iter(range(99)), os.rename

    def refused(source: str, destination: str) -> None:
        if "former-" in str(destination) and next(calls) == 3:
            raise PermissionError(13, "Permission denied", str(source))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", refused)
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, "Permission denied")
    assert "hint: the previous state was restored" in said.err


# --- the target ----------------------------------------------------------------------------------

IMPOSSIBLE = {
    "a link to nothing": "dangling",
    "below a file": "file/env",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("words", [WANTED, ("--undo", "--yes")])
def test_a_path_at_which_no_environment_can_be(
    world: World, install: Install, name: str, words: tuple[str, ...]
) -> None:
    home = world.folder / "home"
    (home / "dangling").symlink_to("nowhere")
    (home / "file").touch()
    before = everything_in(home)
    said = install("--venv", str(home / IMPOSSIBLE[name]), *words)
    assert said.exit == 3 and "nothing was changed" in said.err
    assert "as an environment" in said.err
    assert everything_in(home) == before


def everything_in(folder: Path) -> list[str]:
    """Every entry below a folder, hidden ones and locks too."""
    return sorted(str(path) for path in folder.rglob("*"))
