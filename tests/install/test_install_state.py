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
    site_of,
    state_of,
    versions_in,
)

from gpusetup import cli
from gpusetup.install.switching.journal import Journal, read_journal

pytestmark = needs_linux

ROOT = str(Path(__file__).resolve().parents[2])
UNDO = ("--undo", "--yes")
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


def test_undo_of_a_first_installation_takes_it_out(install: Install) -> None:
    assert install("--venv", "env", *WANTED).exit == 0
    said = install("--venv", "env", *UNDO)
    assert said.exit == 0, said.err
    assert versions_in(Path("env")) == {}
    assert not Path("env/bin/torchrun").exists()
    assert Path("env/bin/python").exists()


def test_what_came_or_was_updated_since_stays_and_torch_comes_back(
    world: World, venv: Path, install: Install
) -> None:
    """A later package in a folder that the new torch had made alone, and a newer dependency."""
    older = {"filelock/__init__.py": "old", "filelock/gone.py": "old"}
    world.fill(venv, world.wheel("filelock", "3.0.0", files=older))
    assert install("--python", str(venv), *WANTED, "filelock>=3.20").exit == 0
    later = world.wheel("later", "1.0", files={"nvidia/b/later.so": "l", "nvidia/a/x.so": "x"})
    files = {"filelock/__init__.py": "newest", "filelock/fresh.py": "newest"}
    world.fill(venv, later, world.wheel("filelock", "9.0", files=files))
    site = site_of(venv)
    there = {path.name: path.read_text() for path in site.glob("filelock/*.py")}
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0, said.err
    assert (site / "nvidia/b/later.so").read_text() == "l"
    assert (site / "nvidia/a/x.so").read_text() == "x"
    assert (site / "nvidia/a/lib.so").read_text() == "a"
    assert not (site / "nvidia/b/lib.so").exists()
    found = versions_in(venv)
    assert (found["torch"], found["filelock"]) == ("2.0.0", "9.0")
    now = {path.name: path.read_text() for path in site.glob("filelock/*.py")}
    assert now == there, "no file of the older release lies among those of the newer one"


def test_an_environment_that_somebody_else_changed_is_not_undone(
    world: World, venv: Path, install: Install
) -> None:
    without = install("--python", str(venv), *UNDO)
    assert without.exit == 3 and "There is nothing to undo" in without.err
    assert "`conda install --revision N` returns to revision N" in " ".join(without.err.split())
    assert install("--python", str(venv), *WANTED).exit == 0
    world.fill(venv, world.wheel("torch", "2.3.0"))
    changed = state_of(venv)
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 3
    assert "torch is 2.3.0" in said.err
    assert state_of(venv) == changed


def test_installing_a_package_keeps_the_way_back_and_a_second_torch_replaces_it(
    world: World, venv: Path, install: Install
) -> None:
    other = "2.6.0" if TORCH != "2.6.0" else "2.7.0"
    world.add_torch("cpu", other)
    world.add_default("extra", "1.0", requires=("torch",))
    without_torch = ("--yes", "--no-verify")
    assert install("--python", str(venv), *WANTED).exit == 0
    second = install("--python", str(venv), "extra", *without_torch)
    assert second.exit == 0, second.err
    words = ("--torch", other, "--backend", "cpu", *without_torch)
    assert install("--python", str(venv), *words).exit == 0
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0 and f"torch {TORCH}+cpu" in said.out
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    assert versions_in(venv)["extra"] == "1.0"


def test_undo_needs_no_python_that_starts(venv: Path, install: Install) -> None:
    assert install("--python", str(venv), *WANTED).exit == 0
    for python in (venv / "bin").glob("python*"):
        python.unlink()
    said = install("--venv", str(venv), *UNDO)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == "2.0.0"


def test_a_file_comes_back_where_the_new_release_had_a_folder(
    world: World, install: Install
) -> None:
    venv = world.venv()
    older = {"torch/__init__.py": "", "torch/part": "a file"}
    world.fill(venv, world.wheel("torch", "1.9.0", files=older))
    world.add_torch("cpu", "2.4.1", files={"torch/part/deep/one.txt": "in a folder"})
    before = state_of(venv)
    words = ("--torch", "2.4.1", "--backend", "cpu", "--yes", "--no-verify")
    said = install("--venv", str(venv), *words)
    assert said.exit == 0, said.err
    assert (site_of(venv) / "torch/part/deep/one.txt").is_file()
    assert install("--venv", str(venv), *UNDO).exit == 0
    assert state_of(venv) == before


# --- recovery ------------------------------------------------------------------------------------


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
    if words == UNDO:
        assert install("--python", str(venv), *WANTED).exit == 0
    killed_in(phase, venv, install, monkeypatch, words)
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    there = state_of(venv)
    head = f"An installation into {venv} was interrupted"
    dry = install("--python", str(venv), "--dry-run", *WANTED)
    assert dry.exit == 3 and head in " ".join(dry.err.split())
    assert cli.main(["doctor", "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)["findings"][0]
    assert finding["id"] == "install-unfinished" and finding["root"]
    assert "install --python" in finding["fix"]["commands"][0]
    assert state_of(venv) == there and journal_in(venv) is not None
    again = install("--python", str(venv), *words)
    assert again.err.startswith(head), again.err
    wanted = "2.0.0" if words == UNDO else f"{TORCH}+cpu"
    assert versions_in(venv)["torch"] == wanted
    assert journal_in(venv) is None
    assert again.exit == 0, again.err


@pytest.mark.parametrize("phase", ["making", "moving", "installing"])
def test_a_retry_after_a_kill_makes_the_environment_that_was_being_made(
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
) -> None:
    venv = Path("env").absolute()
    killed_in(phase, venv, install, monkeypatch, target="--venv")
    head = f"An installation into {venv} was interrupted"
    said = install("--venv", str(venv), *WANTED, "--dry-run")
    assert said.exit == 3 and head in said.err and journal_in(venv) is not None
    cli.main(["doctor"])
    found = " ".join(capsys.readouterr().out.split())
    assert head in found and f"gpusetup install --venv {venv}" in found
    said = install("--venv", str(venv), *WANTED)
    assert said.exit == 0 and said.err.startswith(head), said.err
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    cli.main(["doctor"])
    assert "was interrupted" not in capsys.readouterr().out


SCRIPT = Path(__file__).resolve().parents[2] / "scripts/chaos_install.py"


@pytest.mark.slow
def test_killed_anywhere_an_environment_is_the_former_or_the_new_one() -> None:
    """Each scenario of `scripts/chaos_install.py`, each way to be killed; the recovery killed
    too."""
    argv = (sys.executable, str(SCRIPT), "--kills", "16", "--recoveries", "4")
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    rows = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    assert {row["state"] for row in rows} == {"former", "new"}
    assert {row["whom"] for row in rows} == {"parent", "child", "group", "itself"}


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


@pytest.mark.parametrize("how", [altered, exchanged, added])
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
        assert any(why in " ".join(said.err.split()) for why in ("have changed", "is not a folder"))
        assert (state_of(venv), state_of(kept)) == there
    shutil.rmtree(kept)
    shutil.copytree(saved, kept, symlinks=True)
    said = install("--python", str(venv), *UNDO, "--json")
    assert said.exit == 0, said.err
    assert (said.answer["state"], said.answer["after"]) == ("restored", {"torch": "2.0.0"})
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
