"""A table of what uv's and pip's configuration may say: none of it leads anywhere else.

Where packages come from is the user's to say; of another target, another Python, another form of
answer, nothing counts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import (
    TORCH,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    state_of,
)

from gpusetup.install.settings.environment import asking_environment
from gpusetup.install.settings.pip_config import pip_settings, variable

pytestmark = needs_linux

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
ALL = {"torch": f"{TORCH}+cpu", "filelock": "3.20.0", "typing-extensions": "4.15.0"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("settings")
    with new_world(folder) as world, pytest.MonkeyPatch.context() as set_:
        enter(world, set_)
        world.add_default("filelock", "3.20.0")
        world.add_default("typing-extensions", "4.15.0")
        world.add_torch("cpu")
        world.fill(world.venv(), world.wheel("old", "1"))
        world.fill(world.venv_with_pip(), world.wheel("old", "1"))
        yield world


@pytest.fixture
def home(world: World) -> Iterator[Path]:
    """A home with no configuration, which is left so."""
    home = world.folder / "home"
    shutil.rmtree(home)
    home.mkdir()
    os.chdir(home)
    yield home
    os.chdir(home)


def planned(world: World, capsys: pytest.CaptureFixture[str], program: str) -> None:
    """What would be installed is what it is without the setting, and nothing is touched."""
    venv = world.folder / ("with-pip" if program == "pip" else "env")
    before = state_of(venv)
    there = entries(world.folder / "home")
    said = installer(world, capsys)(
        *("--python", str(venv), "--installer", program, "--dry-run", "--json"), *WANTED
    )
    assert said.exit == 0, said.err
    assert said.answer["after"] == ALL
    assert state_of(venv) == before
    assert entries(world.folder / "home") == there


def entries(folder: Path) -> list[Path]:
    """What is in a home, but for what uv (a lock) and pip's question for rustc leave there."""
    own = {".local", ".rustup"}
    return [path for path in sorted(folder.rglob("*")) if not own & set(path.parts)]


PIP: dict[str, str] = {
    "target": "elsewhere",
    "prefix": "elsewhere",
    "root": "elsewhere",
    "user": "true",
    "no-user": "true",
    "require-hashes": "true",
    "no-deps": "true",
    "require-virtualenv": "true",
    "ignore-installed": "true",
    "force-reinstall": "true",
    "upgrade": "true",
    "upgrade-strategy": "eager",
    "no-binary": ":all:",
    "only-binary": ":none:",
    "platform": "win_amd64",
    "python-version": "3.6",
    "implementation": "pp",
    "abi": "none",
    "report": "report.json",
    "log": "pip.log",
    "quiet": "3",
    "verbose": "3",
    "timeout": "0.001",
    "default-timeout": "0.001",
    "retries": "99",
    "progress-bar": "off",
    "no-color": "true",
    "no-input": "false",
    "exists-action": "w",
    "src": "sources",
    "requirement": "missing.txt",
    "editable": ".",
    "dry-run": "false",
    "python": "/nowhere/python",
    "disable-pip-version-check": "false",
    "compile": "true",
    "no-compile": "true",
    "no-clean": "true",
    "break-system-packages": "true",
    "no-build-isolation": "true",
    "use-pep517": "true",
    "ignore-requires-python": "true",
    "no-warn-script-location": "true",
    "config-settings": "a=b",
    "global-option": "x",
    "root-user-action": "ignore",
    "isolated": "true",
    "debug": "true",
    "check-build-dependencies": "true",
    "a-word-of-tomorrow": "x",
    "trusted-host": "127.0.0.1",
    "cert": "/nowhere/ca.pem",
    "client-cert": "/nowhere/me.pem",
    "cache-dir": "pip-cache",
    "prefer-binary": "true",
    "keyring-provider": "disabled",
}


@pytest.mark.parametrize("key", PIP)
@pytest.mark.one_in(96)
def test_pips_file(
    world: World,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str,
) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE")
    section = "global" if len(key) % 2 else "install"
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(f"[{section}]\n{key} = {PIP[key]}\n")
    planned(world, capsys, "pip")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("key", PIP)
@pytest.mark.one_in(96)
def test_pips_variable(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str,
) -> None:
    monkeypatch.setenv(variable(key), PIP[key])
    planned(world, capsys, "pip")


UV_PIP = (
    *("all-extras = true", 'annotation-style = "line"', "break-system-packages = true"),
    *("compile-bytecode = true", 'custom-compile-command = "x"', "emit-build-options = true"),
    *("emit-find-links = true", "emit-index-annotation = true", "emit-index-url = true"),
    *("emit-marker-expression = true", 'extra = ["x"]', "generate-hashes = true"),
    *('keyring-provider = "disabled"', 'link-mode = "copy"', "no-annotate = true"),
    *('no-binary = [":all:"]', "no-build = true", "no-build-isolation = true", "no-deps = true"),
    *('no-emit-package = ["filelock"]', "no-header = true", "no-sources = true"),
    *("no-strip-extras = true", "no-strip-markers = true", 'only-binary = [":none:"]'),
    *('output-file = "elsewhere"', 'prefix = "elsewhere"', 'python = "3.99"'),
    *('python-platform = "windows"', 'python-version = "3.9"', "reinstall = true"),
    *('reinstall-package = ["old"]', "require-hashes = true", "strict = true", "system = true"),
    *('target = "elsewhere"', 'torch-backend = "cu126"', "universal = true", "upgrade = true"),
    *('upgrade-package = ["old"]', "verify-hashes = true", 'a-word-of-tomorrow = "x"'),
)
UV_TOP = (
    *('cache-dir = "uv-cache-of-mine"', "compile-bytecode = true", "concurrent-downloads = 1"),
    *('fork-strategy = "fewest"', "no-cache = true"),
    *('python-downloads = "never"', 'python-preference = "only-managed"', "preview = true"),
    *('required-version = ">=99"', 'resolution = "highest"', 'prerelease = "allow"'),
    *("reinstall = true", "upgrade = true", "no-sources = true", 'publish-url = "https://x"'),
    *('allow-insecure-host = ["127.0.0.1"]', "a-word-of-tomorrow = 5", "[pip]"),
)


@pytest.mark.parametrize("text", [*(f"[pip]\n{row}" for row in UV_PIP), *UV_TOP])
@pytest.mark.one_in(24)
def test_uvs_file(world: World, home: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (home / "uv.toml").write_text(f"{text}\n")
    planned(world, capsys, "uv")


UV_VARIABLES = {
    **dict.fromkeys(
        (
            *("UV_REQUIRE_HASHES", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_NO_BINARY"),
            *("UV_COMPILE_BYTECODE", "UV_NO_BUILD", "UV_NO_BUILD_ISOLATION", "UV_FROZEN"),
            *("UV_LOCKED", "UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON", "UV_VENV_SEED"),
            *("UV_VENV_CLEAR", "UV_PREVIEW", "UV_ISOLATED", "UV_NO_VERIFY_HASHES", "UV_NO_SYNC"),
            *("UV_NO_SOURCES", "UV_NO_WRAP", "UV_LOG_CONTEXT", "UV_OFFLINE_NOT", "UV_QUIET"),
        ),
        "1",
    ),
    "UV_TORCH_BACKEND": "cu126",
    "UV_PYTHON": "3.99",
    "UV_PROJECT": "/nowhere",
    "UV_WORKING_DIRECTORY": "/nowhere",
    "UV_PROJECT_ENVIRONMENT": "elsewhere",
    "UV_CUSTOM_COMPILE_COMMAND": "x",
    "UV_PYTHON_PREFERENCE": "only-managed",
    "UV_REQUEST_TIMEOUT": "0",
    "UV_HTTP_TIMEOUT": "0",
    "UV_HTTP_RETRIES": "99",
    "UV_LINK_MODE": "symlink",
    "UV_RESOLUTION": "highest",
    "UV_PRERELEASE": "allow",
    "UV_OUTPUT_FORMAT": "json",
    "UV_BUILD_CONSTRAINT": "missing.txt",
    "UV_SOMETHING_OF_TOMORROW": "x",
    "RUST_LOG": "debug",
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("name", "value"), UV_VARIABLES.items())
@pytest.mark.one_in(24)
def test_uvs_variable(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    planned(world, capsys, "uv")


def test_the_table_is_as_long_as_it_was_promised() -> None:
    assert 2 * len(PIP) + len(UV_PIP) + len(UV_TOP) + len(UV_VARIABLES) >= 200


# --- files that are none -------------------------------------------------------------------------

NO_PIP_CONF: dict[str, bytes] = {
    "no section": b"index-url = https://me:secret@i.example/simple\n",
    "a key twice": b"[global]\nindex-url = a\nindex-url = https://me:secret@i.example\n",
    "a section twice": b"[global]\n[global]\n",
    "a line that is none": b"[global]\nsecret\n",
    "bytes": bytes(range(256)),
    "TOML": b'index = ["secret"]\n[global]\n',
}


@pytest.mark.parametrize("body", NO_PIP_CONF.values(), ids=NO_PIP_CONF.keys())
def test_a_pip_conf_that_is_none_is_told_and_not_passed_over(
    world: World,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    body: bytes,
) -> None:
    """Without it, packages would come from elsewhere."""
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_bytes(body)
    said = installer(world, capsys)("--venv", "env", *WANTED)
    assert said.exit == 2, said.err
    assert "pip.conf is no configuration of pip" in said.err and "hint: mend it" in said.err
    assert "secret" not in said.err
    assert not Path("env").exists()


def test_what_is_no_file_is_no_configuration(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE")
    (home / ".config/pip/pip.conf").mkdir(parents=True)
    (home / ".pip").mkdir()
    os.mkfifo(home / ".pip/pip.conf")
    os.mkfifo(home / "uv.toml")
    planned(world, capsys, "uv")


def test_pips_files_in_its_own_order(tmp_path: Path) -> None:
    """https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order"""
    shared, users, env, named = (tmp_path / name for name in ("shared", "users", "env", "named"))
    for folder, text in (
        (shared / "pip", "[install]\nindex-url = shared\n"),
        (users / ".config/pip", "\ufeff[global]\nindex-url = users\nfind_links = /a\n"),
        (env, "[global]\nextra-index-url = env\n"),
    ):
        folder.mkdir(parents=True)
        (folder / "pip.conf").write_text(text, encoding="utf-8")
    environ = {"XDG_CONFIG_DIRS": str(shared)}
    found = pip_settings(environ, users, str(env))
    assert found["index-url"] == "shared"
    assert (found["find-links"], found["extra-index-url"]) == ("/a", "env")
    named.write_text("[install]\nindex-url = named\n")
    found = pip_settings({**environ, "PIP_CONFIG_FILE": str(named)}, users)
    assert found["index-url"] == "named" and "find-links" not in found
    assert pip_settings({**environ, "PIP_INDEX_URL": "mine"}, users)["index-url"] == "mine"
    assert pip_settings({**environ, "PIP_CONFIG_FILE": os.devnull}, users) == {}


def test_what_pip_is_told_it_is_told_by_variables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nextra-index-url =\n  https://a\n  https://b\ntarget = /t\nproxy = http://p:1\n"
    )
    told = asking_environment({"XDG_CONFIG_DIRS": str(tmp_path / "none")}, tmp_path)
    assert told["PIP_EXTRA_INDEX_URL"] == "https://a https://b"
    assert told["PIP_CONFIG_FILE"] == os.devnull and "PIP_TARGET" not in told
    assert told["PIP_PROXY"] == told["HTTPS_PROXY"] == "http://p:1"
