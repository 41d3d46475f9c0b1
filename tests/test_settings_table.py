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
    World,
    enter,
    needs_linux,
    new_world,
)

from gpusetup.install.settings.pip_config import pip_settings

pytestmark = needs_linux


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("settings")
    with new_world(folder) as world, pytest.MonkeyPatch.context() as set_:
        enter(world, set_)
        world.add_default("filelock", "3.20.0")
        world.add_default("typing-extensions", "4.15.0")
        world.add_torch("cpu")
        world.fill(world.venv(), world.wheel("old", "1"))
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


# --- files that are none -------------------------------------------------------------------------


def test_pips_files_in_its_own_order(tmp_path: Path) -> None:
    """https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order"""
    users, env, named = (tmp_path / name for name in ("users", "env", "named"))
    for folder, text in (
        (users / ".config/pip", "\ufeff[global]\nindex-url = users\nfind_links = /a\n"),
        (env, "[global]\nextra-index-url = env\n"),
    ):
        folder.mkdir(parents=True)
        (folder / "pip.conf").write_text(text, encoding="utf-8")
    found = pip_settings({}, users, str(env))
    assert (found["index-url"], found["find-links"]) == ("users", "/a")
    assert found["extra-index-url"] == "env"
    named.write_text("[install]\nindex-url = named\n")
    assert pip_settings({"PIP_CONFIG_FILE": str(named)}, users)["index-url"] == "named"
    assert pip_settings({"PIP_INDEX_URL": "mine"}, users)["index-url"] == "mine"
    assert pip_settings({"PIP_CONFIG_FILE": os.devnull}, users) == {}
