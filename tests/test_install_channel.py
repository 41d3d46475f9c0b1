"""`install --torch nightly`: a channel's newest build, with what goes with it, by a real index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from installing import (
    TAG,
    Install,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    state_of,
    versions_in,
    with_a_gpu,
)

pytestmark = needs_linux
NIGHTLY = ("--torch", "nightly")
DAYS = ("2.99.0.dev20261117", "2.99.0.dev20261118", "2.99.0.dev20261119")
SHELF = "whl/nightly/cu130"


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three days of torch; torchvision is a day late. What torch requires exactly lies on the
    channel's index only, under a name that the default index has as well."""
    with new_world(tmp_path_factory.mktemp("nightly")) as found:
        for day in DAYS:
            wheel = found.wheel(
                "torch",
                f"{day}+cu130",
                tag=TAG,
                requires=("triton==3.9.0+git1234", "filelock"),
                files={"torch/__init__.py": f'__version__ = "{day}+cu130"\n'},
            )
            found.index.add(SHELF, wheel)
        for day in DAYS[:2]:
            wheel = found.wheel(
                "torchvision",
                day.replace("2.99.0", "0.99.0") + "+cu130",
                tag=TAG,
                requires=(f"torch=={day}", "numpy"),
            )
            found.index.add(SHELF, wheel)
        found.index.add(SHELF, found.wheel("triton", "3.9.0+git1234"))
        for name in ("triton", "filelock", "numpy", "plain"):
            found.add_default(name, "1.0")
        yield found


@pytest.fixture
def install(
    shelves: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Install:
    enter(shelves, monkeypatch)
    with_a_gpu(monkeypatch)
    return installer(shelves, capsys)


def test_a_nightly_comes_and_is_said_to_be_unproven(install: Install, shelves: World) -> None:
    venv = str(shelves.folder / "env")
    said = install(*NIGHTLY, "torchvision", "--venv", venv, "--yes", "--no-verify", "--json")
    assert said.exit == 0, said.out + said.err
    assert versions_in(shelves.folder / "env") == {
        "torch": f"{DAYS[1]}+cu130",
        "torchvision": "0.99.0.dev20261118+cu130",
        "triton": "3.9.0+git1234",
        "filelock": "1.0",
        "numpy": "1.0",
    }
    assert "unproven" in said.err
    again = install(*NIGHTLY, "--venv", venv, "--yes", "--no-verify", "--json")
    assert again.answer["state"] == "unchanged", again.out


def test_the_proof_runs_and_what_it_refuses_is_put_back(install: Install, shelves: World) -> None:
    venv = shelves.venv("proven")
    shelves.fill(venv, shelves.wheel("plain", "1.0"))
    before = state_of(venv)
    said = install(*NIGHTLY, "--python", str(venv / "bin/python"), "--yes", "--json")
    assert said.exit == 1, said.out + said.err
    assert said.answer["state"] == "restored", said.out
    assert said.answer["verdict"]["verdict"] == "failed"
    assert state_of(venv) == before


def test_a_dry_run_names_the_newest_day(install: Install, shelves: World) -> None:
    said = install(*NIGHTLY, "--venv", str(shelves.folder / "none"), "--dry-run")
    assert said.exit == 0, said.err
    assert f"{DAYS[2]}+cu130" in said.out + said.err and "unproven" in said.out + said.err


@pytest.mark.parametrize(
    "words",
    [("plain",), ("--installer", "conda"), ("--download", "x"), ("--wheelhouse", "x")],
)
def test_what_does_not_go_with_a_channel_is_refused(
    install: Install, shelves: World, words: tuple[str, ...]
) -> None:
    said = install(*NIGHTLY, *words, "--venv", str(shelves.folder / "none"), "--dry-run")
    assert said.exit == 2, said.out + said.err
    assert "nightly" in said.err


def test_a_channel_without_such_a_page_blocks(install: Install, shelves: World) -> None:
    said = install("--torch", "test", "--venv", str(shelves.folder / "none"), "--dry-run")
    assert said.exit == 3 and "/whl/test/" in said.err, said.err
