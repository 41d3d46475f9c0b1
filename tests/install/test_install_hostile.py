"""State and wheels of somebody else: nothing outside of the environment is ever touched, nor a file
of its own Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installing import (
    WANTED,
    Install,
    World,
    entry_state,
    needs_linux,
    site_of,
    state_of,
)

from gpusetup import cli

pytestmark = needs_linux

FORMER = "former-0123abcd"


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


def planted(world: World) -> Path:
    """A home folder with what nobody wants to lose."""
    home = world.folder / "home"
    for name in ("Documents/thesis.txt", ".ssh/id_ed25519", "Documents/former-0123abcd/x", "a.new"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"precious {name}")
    return home


def whole_state(folder: Path) -> dict[str, str]:
    return {str(path): state_now(path) for path in sorted(folder.rglob("*"))}


def state_now(path: Path) -> str:
    """As `entry_state`; of what is huge, no file or no folder only what it is."""
    found = path.lstat()
    if not path.is_symlink() and (found.st_size > 1 << 30 or not (path.is_file() or path.is_dir())):
        return f"kind {found.st_mode:o} {found.st_size}"
    return entry_state(path)


class Place:
    """An environment with a store that is to be spoiled."""

    def __init__(self, world: World, venv: Path, home: Path) -> None:
        self.world, self.venv, self.home = world, venv, home
        self.site = next(venv.glob("lib/python*/site-packages"))
        self.store = venv / ".gpusetup"
        self.store.mkdir(exist_ok=True)

    def write(self, name: str = "journal.json", **fields: Any) -> None:
        row = {"schema": "gpusetup.journal/2", "phase": "installing", "former": FORMER}
        row |= fields
        (self.store / name).write_text(json.dumps(row))

    def below(self, path: object) -> str:
        """As a journal names it: from the prefix on."""
        return os.path.relpath(str(path), self.venv)

    def moves(self, path: object, name: str = "journal.json") -> None:
        self.write(name, moves=[self.below(path)])

    def made(self, path: object) -> None:
        self.write(made=[self.below(path)])

    def keep(self, name: str = "00000") -> None:
        (self.store / FORMER).mkdir(exist_ok=True)
        (self.store / FORMER / name).write_text("hostile")


def through_a_link(place: Place, name: str) -> Path:
    (place.site / name).symlink_to(place.home / "Documents")
    return place.site / name / "thesis.txt"


def outside_of(place: Place) -> str:
    return str(place.home / "Documents")


Spoil = Callable[[Place], object]
JOURNALS: dict[str, Spoil] = {
    "made: behind a link": lambda p: p.made(through_a_link(p, "docs")),
    "moves: from outside": lambda p: (p.keep(), p.moves(f"{outside_of(p)}/thesis.txt")),
    "former: a link": lambda p: (
        (p.store / FORMER).symlink_to(p.home / "Documents"),
        p.moves(p.site / "x"),
    ),
    "venv: an environment that is in use": lambda p: p.write(phase="making", venv=True),
    "made: the environment's own Python": lambda p: p.write(made=["bin/python", "pyvenv.cfg"]),
    "deep and closed": lambda p: (p.store / "journal.json").write_text(
        '{"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    ),
    "huge": lambda p: os.truncate(touched(p.store / "journal.json"), 1 << 34),
    "a FIFO": lambda p: os.mkfifo(p.store / "journal.json"),
    "a device": lambda p: (p.store / "journal.json").symlink_to("/dev/zero"),
    "the store is a link": lambda p: (
        p.store.rmdir(),
        p.store.symlink_to(p.home / "Documents"),
    ),
    "the lock is a hard link": lambda p: (
        p.made(p.site / "x"),
        os.link(p.home / "Documents/thesis.txt", p.store / "lock"),
    ),
}


def touched(path: Path) -> Path:
    path.touch()
    return path


UNDOS: dict[str, Spoil] = {
    "from outside": lambda p: p.moves(f"{outside_of(p)}/thesis.txt", name="undo.json"),
    "kept elsewhere": lambda p: p.write("undo.json", former="../../home/Documents"),
    "former is a link": lambda p: (
        (p.store / FORMER).symlink_to(p.home / "Documents"),
        p.moves(p.site / "x", name="undo.json"),
    ),
}
HOW: dict[str, tuple[dict[str, Spoil], tuple[str, ...]]] = {
    "install": (JOURNALS, WANTED),
    "undo": (UNDOS, ("--undo", "--yes")),
}


@pytest.mark.parametrize(("how", "name"), [(how, name) for how in HOW for name in HOW[how][0]])
@pytest.mark.one_in(8)
def test_what_somebody_else_wrote_into_the_store(
    world: World, install: Install, how: str, name: str
) -> None:
    home, venv = planted(world), world.venv()
    spoils, words = HOW[how]
    spoils[name](Place(world, venv, home))
    before = whole_state(home), whole_state(venv)
    said = limited(lambda: install("--venv", str(venv), *words))
    assert said.exit in (2, 3), (said.out, said.err)
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in said.err
    assert how == "undo" or "hint: " in said.err
    assert (whole_state(home), whole_state(venv)) == before


def limited(call: Callable[[], Any], seconds: int = 20) -> Any:
    """The call; whoever reads from a FIFO or a device does not come back from it."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return call()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def test_doctor_looks_at_such_a_journal_and_comes_back(world: World) -> None:
    home, venv = planted(world), world.venv()
    JOURNALS["a FIFO"](Place(world, venv, home))
    before = whole_state(home / "Documents")
    argv = [sys.executable, "-m", "gpusetup", "doctor", "--python", str(venv), "--json"]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    said = subprocess.run(argv, capture_output=True, timeout=60, env=environment, check=False)
    assert said.returncode in (0, 1), said.stderr
    json.loads(said.stdout)
    assert whole_state(home / "Documents") == before


def test_a_cache_that_others_could_fill_is_not_used(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = world.folder / "shared"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("GPUSETUP_CACHE_DIR", str(cache))
    said = install("--venv", str(world.folder / "env"), *WANTED)
    assert said.exit == 3
    assert f"Others own the cache {cache}" in said.err and "GPUSETUP_CACHE_DIR" in said.err
    assert list(cache.iterdir()) == []


# --- wheels whose files are not theirs alone ------------------------------------------------------

OWN_FILES = {
    "scripts/deactivate": "bin/deactivate",
    "data/pyvenv.cfg": "pyvenv.cfg",
    "data/lib/python3.11/x.py": "lib/python3.11/x.py",
}
"""As a wheel brings them below `mine-2.0.data`, and below the prefix."""


@pytest.mark.parametrize("path", OWN_FILES)
def test_a_wheel_with_a_file_of_the_environment_itself_is_refused_before_anything_changes(
    world: World, install: Install, path: str
) -> None:
    files = {"mine/__init__.py": "", f"mine-2.0.data/{path}": "#!python\nx"}
    world.add_default("mine", "2.0", files=files)
    before = state_of(venv := world.venv("env"))
    said = install("--venv", str(venv), *WANTED, "mine==2.0")
    assert said.exit == 3, said.err
    own = f"lists a file of the environment's own Python: {OWN_FILES[path]!r}"
    assert own in said.err and "nothing was changed" in said.err
    assert state_of(venv) == before
    assert not (venv / ".gpusetup/journal.json").exists()


def test_an_installed_package_that_lists_such_a_file_is_not_replaced(
    world: World, install: Install
) -> None:
    venv, own_file = world.venv(), "bin/activate"
    world.fill(venv, world.wheel("torch", "2.0.0", files={"torch/__init__.py": ""}))
    record = site_of(venv) / "torch-2.0.0.dist-info/RECORD"
    record.write_text(f"{record.read_text()}../../../{own_file},,\n")
    before = state_of(venv)
    said = install("--venv", str(venv), *WANTED, "--dry-run")
    assert said.exit == 3, said.err
    assert "lists a file of the environment's own Python" in said.err
    assert own_file in said.err and "nothing was changed" in said.err
    assert state_of(venv) == before


ENDLESS = "1" * 5_000


@pytest.mark.parametrize("command", ["doctor", "install --dry-run"])
def test_a_package_with_an_endless_version(
    world: World, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    venv = world.venv()
    for name in ("torch", "torchvision", "evil"):
        info = site_of(venv) / f"{name}-1.0.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {ENDLESS}\n"
        (info / "METADATA").write_text(f"{head}Requires-Dist: torch>={ENDLESS}\n")
        (info / "RECORD").write_text("")
    package = site_of(venv) / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text(f"__version__ = '{ENDLESS}'\ncuda = '{ENDLESS}.1'\n")
    assert cli.main([*command.split(), "--python", str(venv)]) in (0, 1)
    assert "itself failed" not in capsys.readouterr().err
