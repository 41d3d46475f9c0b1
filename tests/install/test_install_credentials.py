"""Ways in which a password comes to us; none leads into a file, an answer, a log or a command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from installing import WANTED, World, installer, needs_linux

pytestmark = needs_linux

SECRET = "geheim0815"
LOGIN = f"wer:{SECRET}@"
PLANTED = (".netrc", "netrc", "uv.toml", "pip.conf", "pyproject.toml", "keyring")
"""The files in which we put it ourselves."""


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("PIP_CONFIG_FILE", "NETRC", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
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


def with_login(url: str) -> str:
    return url.replace("://", f"://{LOGIN}")


def lock(world: World, path: str = "/simple/*") -> None:
    world.index.login, world.index.locked = ("wer", SECRET), path


def variable(name: str, text: str = "{url}", *, alone: bool = True) -> Way:
    def plant(world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
        if alone:
            no_default(set_)
            lock(world)
        set_.setenv(name, text.format(url=with_login(world.index.simple)))
        return ()

    return plant


def no_default(set_: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        set_.delenv(name)


def file(place: str, text: str, *more: str) -> Way:
    def plant(world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
        no_default(set_)
        lock(world)
        path = world.folder / "home" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(url=with_login(world.index.simple), plain=world.index.simple))
        return more

    return plant


def index_root(world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    lock(world, "/whl/*")
    return ("--index", with_login(world.index.index_root))


def netrc(world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
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


def package_address(_world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (f"big @ http://{LOGIN}127.0.0.1:9/big-1.0-py3-none-any.whl",)


def wrong_password(world: World, _set: pytest.MonkeyPatch) -> tuple[str, ...]:
    world.index.login = ("wer", "another")
    return ("--index", with_login(world.index.index_root))


def keyring(world: World, set_: pytest.MonkeyPatch) -> tuple[str, ...]:
    program = world.folder / "bin/keyring"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {SECRET}\n")
    program.chmod(0o755)
    import os

    set_.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    set_.setenv("UV_KEYRING_PROVIDER", "subprocess")
    set_.setenv("UV_DEFAULT_INDEX", world.index.simple.replace("://", "://wer@"))
    lock(world, "/simple/*/")
    return ()


WAYS: dict[str, Way] = {
    "--index": index_root,
    "UV_DEFAULT_INDEX": variable("UV_DEFAULT_INDEX"),
    "PIP_INDEX_URL": variable("PIP_INDEX_URL"),
    "pip.conf": file(".config/pip/pip.conf", "[global]\nindex-url = {url}\n"),
    "uv.toml": file(".config/uv/uv.toml", 'index-url = "{url}"\n'),
    "[[index]]": file(".config/uv/uv.toml", "[[index]]\nurl = '{url}'\ndefault = true\n"),
    ".netrc": netrc,
    "a keyring": keyring,
    "a package's address": package_address,
    "a proxy": proxy,
    "a wrong password": wrong_password,
}
FAILS = ("a proxy", "a wrong password", "a package's address")


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.one_in(16)
def test_a_password_is_used_and_told_to_nobody(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    words = WAYS[name](world, monkeypatch)
    seen = Seen(monkeypatch)
    said = installer(world, capsys)("--venv", str(world.folder / "env"), *WANTED, "--json", *words)
    assert (said.exit in (1, 2, 3)) if name in FAILS else (said.exit == 0), said.err
    assert SECRET not in said.out + said.err
    assert SECRET not in seen.text
    for path in world.folder.rglob("*"):
        of_uv = "uv-cache" in path.parts  # only its owner can read it; it keeps pages of indexes
        if path.is_file() and path.name not in PLANTED and not of_uv:
            assert SECRET.encode() not in path.read_bytes(), path


NOT_ENCODED = {
    "slash": f"x/{SECRET}",
    "slash first": f"/{SECRET}",
    "slash and at": f"x@y/{SECRET}",
    "hash": f"x#{SECRET}",
    "question mark": f"x?{SECRET}",
    "space": f"x {SECRET}",
    "digits and slash": f"12/{SECRET}",
}


@pytest.mark.parametrize("password", NOT_ENCODED.values(), ids=NOT_ENCODED)
@pytest.mark.parametrize("place", ["UV_DEFAULT_INDEX", "UV_INDEX", "PIP_INDEX_URL", "--index"])
@pytest.mark.one_in(4)
def test_a_password_with_letters_that_a_url_cannot_hold_is_told_to_nobody(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    password: str,
) -> None:
    world.add_default("mine", "1.0")
    words: tuple[str, ...] = ()
    login = f"://u:{password}@"
    if place == "--index":
        words = ("--index", world.index.index_root.replace("://", login))
    else:
        no_default(monkeypatch)
        monkeypatch.setenv(place, world.index.simple.replace("://", login))
    environment = str(world.folder / "env")
    said = installer(world, capsys)("--venv", environment, *WANTED, "--dry-run", "mine", *words)
    assert said.exit in (0, 1, 2, 3), said.err
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("password", [f"x/{SECRET}", f"[{SECRET}", f"[b]{SECRET}"])
def test_a_password_with_a_slash_or_a_bracket_is_used(
    world: World, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    world.index.login, world.index.locked = ("u", password), "/whl/*"
    root = world.index.index_root.replace("://", f"://u:{password}@")
    environment = str(world.folder / "env")
    said = installer(world, capsys)("--venv", environment, *WANTED, "--index", root)
    assert said.exit == 0, said.err
    assert SECRET not in said.out + said.err


def test_uvs_stored_passwords_are_used(world: World) -> None:
    """`uv auth login` keeps them in the person's data folder."""
    lock(world)
    folder = world.folder / "home/.local/share/uv/credentials"
    folder.mkdir(parents=True)
    row = {"service": f"{world.index.url}/", "username": "wer", "scheme": "basic"}
    lines = "\n".join(f'{key} = "{value}"' for key, value in {**row, "password": SECRET}.items())
    (folder / "credentials.toml").write_text(f"[[credential]]\n{lines}\n")
    done = start(world, "install", "--venv", "env", *WANTED)
    assert done.returncode == 0, done.stderr


def start(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """gpusetup as a process of its own, in the home of this world."""
    argv = [sys.executable, "-m", "gpusetup", *words, "--index", world.index.index_root]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
