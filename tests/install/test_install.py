"""The command from the words to the environment, against indexes of our own, with small wheels."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from index_server import Fault
from installing import (
    FIRST,
    SECOND,
    TORCH,
    Install,
    World,
    impatient,
    needs_linux,
    state_of,
    versions_in,
    with_a_gpu,
)
from machines_named import there

from gpusetup import cli
from gpusetup.catalog.file import load_catalog

pytestmark = needs_linux


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    impatient(monkeypatch)
    return world


ROOT = Path(__file__).resolve().parents[2]
WANTED = ("--torch", TORCH, "--backend", "cpu")
YES = ("--yes", "--no-verify")


def test_a_new_environment_gets_torch_from_its_index_and_the_rest_from_the_default_one(
    world: World, install: Install
) -> None:
    world.add_torch("cpu")
    said = install("--venv", "env", *WANTED, *YES, "--json")
    assert said.exit == 0, said.err
    assert said.answer["state"] == "installed"
    assert said.answer["after"] == {
        "torch": f"{TORCH}+cpu",
        "filelock": "3.20.0",
        "typing-extensions": "4.15.0",
    }
    assert versions_in(Path("env")) == said.answer["after"]
    assert not world.index.asked_for("* /whl/*filelock*")
    assert Path("env/bin/torchrun").exists()


def test_the_steps_shown_are_the_steps_run(world: World, install: Install) -> None:
    world.add_torch("cpu")
    shown = install("--venv", "env", *WANTED, "--dry-run", "--json").answer
    assert shown["state"] == "planned"
    assert not Path("env").exists()
    done = install("--venv", "env", *WANTED, *YES, "--json").answer
    assert [step["argv"] for step in shown["steps"]] == [step["argv"] for step in done["steps"]]
    assert [step["exit"] for step in done["steps"]] == [0, 0]
    assert [step["exit"] for step in shown["steps"]] == [None, None]


def test_what_no_index_has_is_installed_into_the_new_environment_afterwards(
    world: World, install: Install
) -> None:
    world.add_torch("cpu")
    Path("requirements.txt").write_text(f"torch=={TORCH}\n-e .\n")
    words = ("--venv", "env", "-r", "requirements.txt", "--backend", "cpu", "--dry-run")
    said = install(*words)
    assert said.exit == 0, said.err
    assert f"uv pip install --python {Path('env/bin/python').absolute()} -e ." in said.out


def test_an_index_without_the_wheel_is_named_with_the_backends_that_fit_too(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_torch(FIRST, "1.0.0")
    with_a_gpu(monkeypatch)
    said = install("--venv", "env", "--torch", TORCH, *YES)
    assert said.exit == 3
    assert f"whl/{FIRST} has no torch=={TORCH}" in said.err and SECOND in said.err
    assert not Path("env").exists()


def test_a_failed_proof_puts_the_former_state_back(world: World, install: Install) -> None:
    """The small torch cannot compute, so that verify says no."""
    former = world.wheel("torch", "2.0.0+cpu", files={"torch/__init__.py": "", "torch/old.py": ""})
    world.fill(venv := world.venv(), former)
    (venv / "lib").joinpath("note.txt").write_text("not torch's")
    before = state_of(venv)
    world.add_torch("cpu")
    said = install("--python", str(venv), *WANTED, "--yes", "--json")
    assert said.exit == 1
    assert said.answer["state"] == "restored"
    assert said.answer["verdict"]["verdict"] == "failed"
    assert said.answer["after"] == said.answer["before"] == {"torch": "2.0.0+cpu"}
    assert state_of(venv) == before
    assert not (venv / ".gpusetup").exists()


ACCELERATED = ("cu130", "rocm6.4", "xpu")


def holding(world: World, backend: str, *others: Path, version: str = TORCH) -> Path:
    """An environment with a torch of this backend and what it needs."""
    torch = world.add_torch(backend, version)
    world.fill(venv := world.venv(), torch, *others)
    return venv


# --- an accelerator build on a machine without its GPU -------------------------------------------


@pytest.mark.parametrize("backend", ACCELERATED)
@pytest.mark.one_in(3)
def test_without_a_request_it_stays_and_the_three_reasons_are_named(
    world: World, install: Install, backend: str
) -> None:
    before = state_of(venv := holding(world, backend))
    for words in ((), ("--upgrade",), ("torch",)):
        said = install("--python", str(venv), *words, *YES)
        assert said.exit == 1
        assert "was not changed" in said.err
        assert "image on a machine without its GPU" in said.err
        assert "--backend cpu" in said.err
        assert "driver is missing" in said.err
        assert "gpusetup doctor" in said.err
    assert "+cpu" not in said.err and "whl/cpu" not in said.err
    assert state_of(venv) == before
    assert not world.index.asked


# --- an image for another host -------------------------------------------------------------------


def test_an_empty_image_says_which_backend_it_chose_and_why(world: World, install: Install) -> None:
    world.add_torch("cpu", load_catalog().releases[-1].torch)
    said = install("--venv", "env", "--dry-run")
    assert said.exit == 0, said.err
    assert "cpu, because no NVIDIA GPU was found here" in said.out
    assert "--gpu NAME" in said.out
    # Torch's index states no sizes, but the server of the file does.
    assert "?" not in said.out and "at least" not in said.out


# --- what serves, what is wrong ------------------------------------------------------------------


def test_torch_that_serves_is_unchanged_and_upgrade_takes_the_newest(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_gpu(monkeypatch)
    venv = holding(world, FIRST)
    said = install("--python", str(venv), *YES, "--json")
    assert (said.exit, said.answer["state"]) == (0, "unchanged"), said.err
    newest = said.answer["newest"]
    assert newest["torch"] != TORCH
    assert newest["command"].endswith(f"--upgrade --index {world.index.index_root}")
    assert not world.index.asked
    world.add_torch(newest["backend"], newest["torch"])
    said = install("--python", str(venv), "--upgrade", *YES)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == f"{newest['torch']}+{newest['backend']}"


# --- where the trouble is elsewhere --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("hidden-gpu", "cuda-visible-devices-hidden"),
        ("container-no-gpu", "container-no-gpu"),
        ("no-driver", "driver-missing"),
    ],
)
def test_trouble_elsewhere_comes_first_and_nothing_is_changed(
    name: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["install", "--dry-run", "--from", there(name)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and f"({cause})" in said.err
    assert "Installing torch would not fix that, so torch " in said.err
    assert cli.main(["install", "--dry-run", "--from", there(name), "--upgrade"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("Fix this too: ") and f"({cause})" in said.err
    assert "Commands" in said.out


def test_a_broken_install_is_installed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["install", "--dry-run", "--from", there("half-installed")]) == 0
    text = capsys.readouterr().out
    assert "are missing" in text
    assert "--reinstall-package=torch " in text


# --- a build for AMD or Intel: what only torch's own index has comes from there -------------------

BUILDS = (("rocm7.2", "triton-rocm"), ("xpu", "triton-xpu"))


def fill(world: World, backend: str, triton: str) -> None:
    """torch on its index with the Triton that only this index has; the default index has a
    placeholder under the same name, as the public one does."""
    needs = ("filelock", "typing-extensions>=4.8", f"{triton}==3.8.0")
    world.add_torch(backend, "2.13.0", requires=needs)
    world.index.add(f"whl/{backend}", world.wheel(triton, "3.8.0"))
    world.add_default(triton, "0.0.1")


@pytest.mark.parametrize(("backend", "triton"), BUILDS)
def test_the_triton_of_a_maker_comes_from_torchs_index(
    world: World, install: Install, backend: str, triton: str
) -> None:
    fill(world, backend, triton)
    words = ("torch", "--torch", "2.13.0", "--backend", backend, "--yes", "--no-verify")
    said = install("--venv", str(world.folder / "new"), *words, "--json")
    assert said.exit == 0, said.err
    assert said.answer["after"][triton] == "3.8.0"
    assert said.answer["after"]["filelock"] == "3.20.0"


def test_conda_changes_what_conda_installed_so_its_command_is_named(
    world: World, install: Install
) -> None:
    venv = world.venv()
    (venv / "conda-meta").mkdir()
    world.fill(venv, world.wheel("torch", "2.0.0", files={"torch/__init__.py": ""}))
    next(venv.glob("lib/*/site-packages/torch-*/INSTALLER")).write_text("conda")
    before = state_of(venv)
    said = install("--torch", "2.5.1", "--python", str(venv / "bin/python"), "--yes")
    assert (said.exit, state_of(venv)) == (3, before), said.err
    assert "`gpusetup resolve --installer conda`" in said.err


# --- what bad input gets -------------------------------------------------------------------------

USAGE = {
    "neither a terminal nor --yes": ((), "without a terminal"),
    "the same for an undo": (("--undo",), "`--yes` undoes without asking"),
    "two targets": (("--yes", "--python", "a", "--venv", "b"), "not allowed with argument"),
    "another machine for real": (("--yes", "--from", "rtx3050-laptop"), "--dry-run"),
    "no package": (("--yes", "--venv", "e", "a b c"), "'a b c' is not a valid package"),
    "no such backend": (("--yes", "--venv", "e", "--backend", "cu999"), "cu999"),
    "no URL": (("--yes", "--venv", "e", "--index", "here"), "not an http or https URL"),
}


@pytest.mark.parametrize(("words", "cause"), USAGE.values(), ids=USAGE.keys())
def test_a_wrong_question_gets_2(install: Install, words: tuple[str, ...], cause: str) -> None:
    said = install(*words)
    assert said.exit == 2
    assert cause in said.err
    assert not Path("e").exists()


def test_ctrl_c_in_a_long_download_ends_it_soon(world: World) -> None:
    """A real process: a wheel that comes in drops for a minute, and SIGINT after the first."""
    venv = world.venv()
    before = state_of(venv)
    noise = random.Random(3).randbytes(9_000_000)
    wheel = world.add_torch("cpu", files={"torch/lib/libtorch.so": noise})
    world.index.faults["/whl/cpu/torch/*.whl"] = Fault(drip_seconds=0.3)
    words = [sys.executable, "-m", "gpusetup", "install", "--python", str(venv), *WANTED, *YES]
    child = subprocess.Popen(
        [*words, "--index", world.index.index_root],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while child.poll() is None and not world.index.asked_for(f"GET */{wheel.name}"):
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert child.returncode == 130, said
    assert "interrupted" in said
    assert state_of(venv) == before


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


# --- a terminal ----------------------------------------------------------------------------------


def at_a_terminal(world: World, *words: str, answer: str = "y") -> tuple[int, str]:
    """Exit code and screen of `gpusetup install` where every question gets this answer."""
    argv = [*words, *WANTED, "--no-verify"]
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


@pytest.mark.parametrize("answer", ["y", ""])
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
