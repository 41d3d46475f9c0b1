"""Every kind of environment, and wheels that come from a folder."""

from __future__ import annotations

import os
import pty
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from index_server import Fault
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    needs_linux,
    state_of,
    versions_in,
)

pytestmark = needs_linux

ROOT = Path(__file__).resolve().parents[2]


# --- targets -------------------------------------------------------------------------------------


def test_an_environment_that_somebody_else_made_meanwhile_is_not_taken_away(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails in an environment that it made takes it away: so it must be its own."""
    from gpusetup.install.switching import change
    from gpusetup.install.switching.lock import locked as honest

    world.add_torch("cpu", files={"torch/__init__.py": "raise ImportError('broken')"})

    def after_them(store: Path, talk: Any) -> Any:
        world.venv("theirs")
        return honest(store, talk)

    monkeypatch.setattr(change, "locked", after_them)
    target = world.folder / "theirs"
    said = install("--venv", str(target), "--torch", TORCH, "--backend", "cpu", "--yes")
    assert said.exit == 3
    assert "was changed by another program in the meantime" in said.err
    assert (target / "bin/python").exists()
    assert not (target / ".gpusetup").exists()


# --- wheels from a folder ------------------------------------------------------------------------


@pytest.fixture
def cache(world: World, install: Install) -> Path:
    """A folder filled by --download."""
    world.add_torch("cpu")
    said = install("--download", "cache", "--python", str(world.venv("here")), *WANTED)
    assert said.exit == 0, said.err
    return Path("cache").absolute()


def test_a_folder_is_filled_with_all_that_a_new_environment_needs(
    world: World, cache: Path
) -> None:
    assert versions_in(world.folder / "here") == {}
    assert not (world.folder / "here/.gpusetup").exists()
    names = sorted(path.name.partition("-")[0] for path in cache.iterdir())
    assert names == ["SHA256SUMS", "filelock", "torch", "typing_extensions"]


@pytest.mark.parametrize("there", ["new", "an older torch"])
@pytest.mark.slow
def test_a_folder_serves_a_machine_without_a_network(
    world: World, install: Install, cache: Path, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = world.folder / "stick"
    cache.rename(away)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(world.folder / "their-cache"))
    venv = world.folder / "theirs"
    if there != "new":
        world.fill(world.venv("theirs"), world.wheel("torch", "2.0.0"))
    world.index.asked.clear()
    words = ("--venv", str(venv), "--offline", str(away), "--backend", "cpu", *WANTED[4:])
    said = install(*words, "--index", "http://127.0.0.1:9/whl")
    assert said.exit == 0, said.err
    assert versions_in(venv) == {
        "torch": f"{TORCH}+cpu",
        "filelock": "3.20.0",
        "typing-extensions": "4.15.0",
    }
    assert world.index.asked == []
    receipt = (venv / ".gpusetup/receipt.json").read_text()
    assert "sha256" in receipt


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a wheel was damaged": (
        lambda cache: next(cache.glob("torch-*.whl")).write_bytes(b"PK damaged"),
        "Failed to extract archive",
    ),
    "a wheel is missing": (
        lambda cache: next(cache.glob("filelock-*.whl")).unlink(),
        "filelock was not found",
    ),
    "nothing is left": (lambda cache: shutil.rmtree(cache), "has no wheel of torch"),
}


@pytest.mark.parametrize(("spoil", "cause"), SPOILED.values(), ids=SPOILED)
@pytest.mark.one_in(3)
def test_a_folder_that_was_spoiled(
    world: World, install: Install, cache: Path, spoil: Callable[[Path], object], cause: str
) -> None:
    spoil(cache)
    before = state_of(venv := world.venv())
    said = install("--python", str(venv), "--offline", str(cache), *WANTED)
    assert said.exit == 3, said.err
    assert cause in said.err
    assert state_of(venv) == before


def test_a_folder_without_this_torch_says_what_it_lacks(
    world: World, install: Install, cache: Path
) -> None:
    words = ("--offline", str(cache), "--torch", "2.6.0", "--backend", "cpu", *WANTED[4:])
    said = install("--venv", "env", *words)
    assert said.exit == 3
    assert str(cache) in said.err and "2.6.0" in said.err


# --- a terminal ----------------------------------------------------------------------------------


def at_a_terminal(world: World, *words: str, answer: str = "y") -> tuple[int, str]:
    """Exit code and screen of `gpusetup install` where every question gets this answer."""
    argv = [*words, *(word for word in WANTED if word != "--yes")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        root = ("--index", world.index.index_root)
        os.execv(sys.executable, [sys.executable, "-m", "gpusetup", "install", *argv, *root])
    said, answered = b"", 0
    while chunk := _read(terminal):
        said += chunk
        if said.count(ASKED) > answered:
            answered += 1
            os.write(terminal, f"{answer}\n".encode())
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, said.decode("utf-8", "replace")


ASKED = b"Proceed? [y/N]"


@pytest.mark.parametrize("answer", ["y", "n", ""])
@pytest.mark.one_in(3)
def test_at_a_terminal_it_asks_and_shows_what_comes_in(world: World, answer: str) -> None:
    world.add_torch("cpu", files={"torch/lib/x.so": random.Random(5).randbytes(3_000_000)})
    world.index.faults["/whl/cpu/torch/*.whl"] = Fault(drip_seconds=0.01)
    code, text = at_a_terminal(world, "--venv", "env", answer=answer)
    if answer == "y":
        assert code == 0, text
        assert "Fetching 3 wheels" in text.partition("Proceed?")[2]
        assert "iB" in text
        assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"
    else:
        assert code == 1
        assert "Nothing was changed." in text
        assert not Path("env").exists()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the program has ended
        return b""
