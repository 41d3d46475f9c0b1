"""Ways in which a password comes to us; none leads into a file, an answer, a log or a command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from installing import WANTED, World, installer, needs_linux

pytestmark = needs_linux

SECRET = "geheim0815"
LOGIN = f"wer:{SECRET}@"


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


class Seen:
    """What others on this machine see while a run lasts: argument lists."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        honest = subprocess.Popen

        def start(words: Sequence[str], **options: Any) -> Any:
            self.text += "\n" + " ".join(words)
            return honest(words, **options)

        monkeypatch.setattr(subprocess, "Popen", start)


Way = Callable[[World, pytest.MonkeyPatch], tuple[str, ...]]
"""Plants the secret; the words to add to the command."""


def lock(world: World, path: str = "/simple/*") -> None:
    world.index.login, world.index.locked = ("wer", SECRET), path


def with_login(url: str, login: str = LOGIN) -> str:
    return url.replace("://", f"://{login}")


def default_index(world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
    lock(world)
    set_.setenv("UV_DEFAULT_INDEX", with_login(world.index.simple))
    return ()


def index_root(world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    lock(world, "/whl/*")
    return ("--index", with_login(world.index.index_root))


def netrc(world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    lock(world, "*")
    path = world.folder / "home/.netrc"
    path.write_text(f"machine 127.0.0.1 login wer password {SECRET}\n")
    path.chmod(0o600)
    return ()


def proxy(_world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
    set_.delenv("NO_PROXY")
    for name in ("HTTP_PROXY", "http_proxy"):
        set_.setenv(name, f"http://{LOGIN}127.0.0.1:9")
    return ()


def wrong_password(world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    lock(world, "/whl/*")
    world.index.login = ("wer", "another")
    return ("--index", with_login(world.index.index_root))


WAYS: dict[str, Way] = {
    "--index": index_root,
    "UV_DEFAULT_INDEX": default_index,
    ".netrc": netrc,
    "a proxy": proxy,
    "a wrong password": wrong_password,
}
FAILS = ("a proxy", "a wrong password")


@pytest.mark.parametrize("name", WAYS)
def test_a_password_is_used_and_told_to_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = WAYS[name](world, monkeypatch)
    seen = Seen(monkeypatch)
    said = installer(world, capsys)("--venv", str(world.folder / "env"), *WANTED, "--json", *words)
    assert (said.exit in (1, 2, 3)) if name in FAILS else (said.exit == 0), said.err
    assert SECRET not in said.out + said.err
    assert SECRET not in seen.text
    for path in world.folder.rglob("*"):
        of_uv = "uv-cache" in path.parts  # only its owner can read it; it keeps pages of indexes
        if path.is_file() and path.name != ".netrc" and not of_uv:
            assert SECRET.encode() not in path.read_bytes(), path


PASSWORDS = (f"x/{SECRET}", f"[{SECRET}", f"x@y/{SECRET}", f"x#{SECRET}", f"x?{SECRET}")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.one_in(4)
def test_a_password_with_letters_that_a_url_cannot_hold_is_told_to_nobody(
    world: World, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    world.index.login, world.index.locked = ("u", password), "/whl/*"
    words = ("--index", with_login(world.index.index_root, f"u:{password}@"))
    said = installer(world, capsys)("--venv", str(world.folder / "env"), *WANTED, *words)
    is_used = password in PASSWORDS[:2]
    assert said.exit == 0 if is_used else said.exit in (0, 1, 2, 3), said.err
    assert SECRET not in said.out + said.err
