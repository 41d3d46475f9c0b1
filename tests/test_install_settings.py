"""Settings of uv and pip: where packages come from is the user's to say, and only that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from installing import (
    TORCH,
    Install,
    World,
    needs_linux,
    versions_in,
)

from gpusetup.errors import BadInput
from gpusetup.install.settings.uv_config import (
    settings_of,
    users_settings,
    uv_files,
)

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
ALL = {"torch": f"{TORCH}+cpu", "filelock": "3.20.0", "typing-extensions": "4.15.0"}


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


@needs_linux
@pytest.mark.parametrize("where", ["a folder", "a page", "a page with a login"])
@pytest.mark.parametrize("setting", ["UV_FIND_LINKS", "PIP_FIND_LINKS", "uv.toml"])
@pytest.mark.one_in(6)
def test_what_only_the_users_links_have_is_found_and_what_the_index_has_too_comes_once(
    world: World,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    setting: str,
    where: str,
) -> None:
    venv = world.venv()
    wheels = [world.wheel("only-linked", "1.0"), world.wheel("filelock", "3.20.0")]
    links = [str(place := tmp_path / "links")]
    place.mkdir()
    for wheel in wheels:
        shutil.copy(wheel, place / wheel.name)
        if where != "a folder":
            world.index.add("linked", wheel)
    if where != "a folder":
        root = world.index.simple.replace("/simple", "/linked")
        root = root.replace("://", "://me:hidden@") if where == "a page with a login" else root
        links = [f"{root}/{name}/" for name in ("only-linked", "filelock")]
    if where == "a page with a login":
        world.index.login, world.index.locked = ("me", "hidden"), "/linked/*"
    if setting == "uv.toml":
        Path("uv.toml").write_text(f"find-links = {links}\n")
    else:
        monkeypatch.setenv(setting, ("," if setting.startswith("UV") else " ").join(links))
    if setting.startswith("PIP"):
        monkeypatch.delenv("UV_DEFAULT_INDEX")
    said = install("--python", str(venv), *WANTED, "only-linked")
    assert said.exit == 0, (said.err, said.out)
    assert versions_in(venv).items() >= {**ALL, "only-linked": "1.0"}.items()
    assert "hidden" not in said.out + said.err


def test_files_of_uv_in_their_order_lists_add_up_and_the_first_value_counts(
    tmp_path: Path,
) -> None:
    home, project = tmp_path / "home", tmp_path / "work" / "deep"
    project.mkdir(parents=True)
    (home / ".config/uv").mkdir(parents=True)
    (home / ".config/uv/uv.toml").write_text(
        'resolution = "lowest"\nextra-index-url = ["https://b"]\n[pip]\ntarget = "x"\n'
    )
    (tmp_path / "work/pyproject.toml").write_text(
        '[tool.uv]\nresolution = "highest"\nextra-index-url = ["https://a"]\n'
        'find-links = ["wheels"]\n'
    )
    files = uv_files({}, home, project)[:2]
    assert files == (tmp_path / "work/pyproject.toml", home / ".config/uv/uv.toml")
    assert settings_of(files) == {
        "resolution": "highest",
        "extra-index-url": ["https://a", "https://b"],
        "find-links": [str(tmp_path / "work/wheels")],
        "pip": {},
    }
    assert uv_files({"UV_NO_CONFIG": "1"}, home, project) == ()
    assert uv_files({"UV_CONFIG_FILE": "/x/uv.toml"}, home, project) == (Path("/x/uv.toml"),)


def test_a_folder_that_was_deleted_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert users_settings({"UV_NO_CONFIG": "1"}, tmp_path) == {}


def test_a_configuration_that_is_no_toml_is_told(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("index = [")
    with pytest.raises(BadInput, match="is no TOML"):
        settings_of((tmp_path / "uv.toml",))


@pytest.mark.parametrize("row", ['name = "own"', "url = 3", 'url = ["https://i/simple"]'])
@pytest.mark.parametrize("head", ["[[index]]\n{}", "index = [{{{}}}]", "index = ['https://i', {}]"])
def test_an_index_without_a_url_is_told(tmp_path: Path, row: str, head: str) -> None:
    (tmp_path / "uv.toml").write_text(head.format(row if "'" not in head else "'x'"))
    with pytest.raises(BadInput, match=r"uv\.toml: an index has no `url`"):
        settings_of((tmp_path / "uv.toml",))
