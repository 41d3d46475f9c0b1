"""What an installation leaves behind: undo, recovery, one at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    killed_in,
    needs_linux,
    state_of,
    versions_in,
)

from gpusetup.install.switching.journal import Journal, read_journal, write_journal
from gpusetup.model.frozen import replace

pytestmark = needs_linux

ROOT = str(Path(__file__).resolve().parents[2])
FORMER = {
    "torch/__init__.py": "",
    "torch/old.py": "",
    "nvidia/a/lib.so": "a",
    "shared/old.txt": "",
}


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    world.add_torch("cpu", files={"nvidia/b/lib.so": "b"})
    return world


@pytest.fixture
def venv(world: World) -> Path:
    """An environment with an older torch, one that shares a folder with it, and a dependant."""
    venv = world.venv()
    neighbour = world.wheel("nvidia-nccl", "2.0", files={"nvidia/nccl/lib.so": "n"})
    former = world.wheel("torch", "2.0.0", files=FORMER, scripts={"convert": "torch:go"})
    world.fill(venv, former, neighbour, world.wheel("xformers", "0.1", requires=("torch",)))
    return venv


def journal_in(venv: Path) -> Journal | None:
    return read_journal(venv / ".gpusetup")


# --- undo ----------------------------------------------------------------------------------------


def test_what_came_afterwards_stays_when_torch_is_undone(
    world: World, venv: Path, install: Install
) -> None:
    """A package of somebody else's in a folder that the new torch had made alone."""
    assert install("--python", str(venv), *WANTED).exit == 0
    later = world.wheel("later", "1.0", files={"nvidia/b/later.so": "l", "nvidia/a/x.so": "x"})
    world.fill(venv, later)
    assert install("--python", str(venv), "--undo", "--yes").exit == 0
    (site,) = venv.glob("lib/python*/site-packages")
    assert (site / "nvidia/b/later.so").read_text() == "l"
    assert (site / "nvidia/a/x.so").read_text() == "x"
    assert (site / "nvidia/a/lib.so").read_text() == "a"
    assert not (site / "nvidia/b/lib.so").exists()


def test_undo_of_a_first_installation_takes_it_out(install: Install) -> None:
    assert install("--venv", "env", *WANTED).exit == 0
    said = install("--venv", "env", "--undo", "--yes")
    assert said.exit == 0, said.err
    assert versions_in(Path("env")) == {}
    assert not Path("env/bin/torchrun").exists()
    assert Path("env/bin/python").exists()


def test_an_environment_that_somebody_else_changed_is_not_undone(
    world: World, venv: Path, install: Install
) -> None:
    assert install("--python", str(venv), *WANTED).exit == 0
    world.fill(venv, world.wheel("torch", "2.3.0"))
    changed = state_of(venv)
    said = install("--python", str(venv), "--undo", "--yes")
    assert said.exit == 3
    assert "torch is 2.3.0" in said.err
    assert state_of(venv) == changed


def test_nothing_is_kept_in_an_image_build(
    venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "buildkitsandbox")
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 0
    assert "--undo" not in said.out
    assert [path.name for path in (venv / ".gpusetup").iterdir()] == ["receipt.json"]


# --- recovery ------------------------------------------------------------------------------------


UNDO = ("--undo", "--yes")


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        *((phase, WANTED) for phase in ("staging", "moving", "installing", "verifying", "keeping")),
        ("moving", UNDO),
    ],
)
def test_a_retry_after_a_kill_ends_what_was_interrupted_first_and_the_rest_only_says_so(
    venv: Path,
    install: Install,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
    words: tuple[str, ...],
) -> None:
    from gpusetup import cli

    if words == UNDO:
        assert install("--python", str(venv), *WANTED).exit == 0
    killed_in(phase, venv, install, monkeypatch, words)
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    there, journal = state_of(venv), (venv / ".gpusetup/journal.json").read_bytes()
    root = ("--index", world.index.index_root)
    head = f"An installation into {venv} was interrupted"
    ending = f"`gpusetup install --python {venv}` ends it first"
    dry = ("install", "--dry-run", *root, *WANTED)
    for only in (("resolve",), ("plan", "--params", "1B"), dry):
        capsys.readouterr()
        cli.main([*only])
        said = capsys.readouterr()
        first = said.err
        assert first.startswith(head) and ending in " ".join(said.err.split()), only
        assert first.count(head) == 1 or only[0] != "install", only
        assert "Nothing to do" not in said.out, only
    planned = install("--python", str(venv), *WANTED, "--dry-run", "--json").answer["why"]
    cli.main(["resolve", "--json"])
    for told in (planned, json.loads(capsys.readouterr().out)["notes"][0]):
        assert told.startswith(head) and ending in told
    assert cli.main(["doctor", "--json"]) == 1
    said_by_doctor = json.loads(capsys.readouterr().out)
    finding = said_by_doctor["findings"][0]
    assert said_by_doctor["cause"] == finding["id"] == "install-unfinished" and finding["root"]
    assert "install --python" in finding["fix"]["commands"][0]
    assert state_of(venv) == there
    assert (venv / ".gpusetup/journal.json").read_bytes() == journal
    again = install("--python", str(venv), *words)
    assert again.err.startswith(head), again.err
    wanted = "2.0.0" if words == UNDO else f"{TORCH}+cpu"
    assert versions_in(venv)["torch"] == wanted
    assert journal_in(venv) is None
    assert again.exit == 0, again.err


def test_a_retry_after_a_kill_makes_the_environment_that_was_being_made(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = Path("env").absolute()
    killed_in("making", venv, install, monkeypatch, target="--venv")
    head = f"An installation into {venv} was interrupted"
    said = install("--venv", str(venv), *WANTED, "--dry-run")
    assert said.err.startswith(head) and journal_in(venv) is not None
    said = install("--venv", str(venv), *WANTED)
    assert said.exit == 0 and said.err.startswith(head), said.err
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"


def altered(file: Path, _outside: Path) -> None:
    """As long as it was."""
    file.write_text(file.read_text().replace("old", "bad"))
    os.utime(file, (1, 1))


def exchanged(file: Path, outside: Path) -> None:
    """For a link to one that looks alike."""
    shutil.copy2(file, outside)
    file.unlink()
    file.symlink_to(outside)


def added(file: Path, _outside: Path) -> None:
    file.with_name("sitecustomize.py").write_text("")


def removed(file: Path, _outside: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("how", [altered, exchanged, added, removed])
def test_what_is_kept_comes_back_only_as_it_went(
    world: World, venv: Path, install: Install, how: Callable[[Path, Path], None]
) -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "torch/old.py").write_text("old\n")
    before = state_of(venv)
    assert install("--python", str(venv), *WANTED).exit == 0
    (kept,) = (venv / ".gpusetup").glob("former-*")
    (file,) = [one for one in kept.iterdir() if one.read_bytes() == b"old\n"]
    saved = shutil.copytree(kept, world.folder / "saved", symlinks=True)
    how(file, world.folder / "outside")
    there = state_of(venv), state_of(kept)
    for last in ("--yes", "--dry-run"):
        said = install("--python", str(venv), "--undo", last)
        assert said.exit in (2, 3), said.out
        assert any(why in " ".join(said.err.split()) for why in ("have changed", "is no folder"))
        assert (state_of(venv), state_of(kept)) == there
    shutil.rmtree(kept)
    shutil.copytree(saved, kept, symlinks=True)
    said = install("--python", str(venv), "--undo", "--yes", "--json")
    assert said.exit == 0, said.err
    assert (said.answer["state"], said.answer["after"]) == ("restored", {"torch": "2.0.0"})
    assert state_of(venv) == before and not (venv / ".gpusetup").exists()


def test_a_journal_of_a_newer_gpusetup_is_refused(venv: Path, install: Install) -> None:
    store = venv / ".gpusetup"
    store.mkdir()
    write_journal(store, replace(Journal(), phase="moving"))
    journal = store / "journal.json"
    journal.write_text(journal.read_text().replace("journal/2", "journal/3"))
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 2
    assert "journal.json" in said.err and "gpusetup.journal/3" in said.err
    assert journal.exists()


LOADED = """
import mmap, sys
file = open(sys.argv[1])
loaded = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(1)
input()
"""


@pytest.mark.parametrize("code", [32, 5, None])
def test_a_folder_that_a_program_holds_on_windows_is_named_with_the_program(
    venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    (held,) = venv.glob("lib/*/site-packages/torch")
    (held / "own.so").write_bytes(b"own")
    before, honest = state_of(venv), os.rename

    def rename(source: str, target: str) -> None:
        if not Path(source).is_relative_to(held):
            return honest(source, target)
        problem = PermissionError(13, "Sharing violation", str(held))
        vars(problem)["winerror"] = code
        raise problem

    monkeypatch.setattr(os, "rename", rename)
    words = [sys.executable, "-uc", LOADED, str(held / "own.so")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None and user.stdout.read(1)
        said = install("--python", str(venv), *WANTED)
        user.communicate(b"\n")
    assert said.exit == 3 and f"{held}: Sharing violation" in said.err
    assert (f"(process {user.pid}) holds it" in said.err) is (code is not None)
    assert ("close that, then run this again" in said.err) is (code is not None)
    assert state_of(venv) == before and not (venv / ".gpusetup").exists()


# --- one at a time -------------------------------------------------------------------------------


def test_a_second_installation_waits_and_leaves(
    venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpusetup.install.switching import lock

    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.3)
    before = state_of(venv)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(venv / ".gpusetup")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    said = install("--python", str(venv), *WANTED)
    holder.kill()
    holder.communicate()
    assert said.exit == 3
    assert "Another gpusetup is changing" in said.err
    assert "waiting up to" in said.err
    assert state_of(venv) == before
    assert install("--python", str(venv), *WANTED).exit == 0, "the lock went with its holder"


HOLD = """
import sys, time
from pathlib import Path
from gpusetup.install.switching.lock import locked
with locked(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(60)
"""
