"""With a package beside torch: an index that gave no answer is named, and is no "no"."""

from __future__ import annotations

import pytest
from index_server import JSON_PAGE, Fault
from installing import WANTED, Install, World, needs_linux, state_of

pytestmark = needs_linux

NO_ANSWERS = {
    "another login": (Fault(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'}), "401"),
    "forbidden": (Fault(status=403), "403"),
    "broken JSON": (Fault(body=b'{"files": [', kind=JSON_PAGE), "unexpected JSON"),
    "another kind": (Fault(body=b"Please log in", kind="text/plain"), "Content-Type"),
    "a circle": (Fault(status=302, headers={"Location": "?again"}), "/"),
    "not now": (Fault(status=503), "503"),
}
PAGES = {"torch's page": "/whl/cpu/torch/", "the package's page": "/simple/mine/"}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", NO_ANSWERS)
@pytest.mark.one_in(3)
def test_an_index_that_gives_no_answer_is_named(
    world: World, install: Install, page: str, name: str
) -> None:
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    venv = world.venv()
    before = state_of(venv)
    fault, cause = NO_ANSWERS[name]
    world.index.faults[PAGES[page]] = fault

    said = install("--venv", str(venv), *WANTED, "mine==1.0")

    assert said.exit == 3, said.err
    assert "No torch" not in said.err
    assert cause in said.err and "127.0.0.1" in said.err
    assert state_of(venv) == before


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_not_there_is_a_no(world: World, install: Install, page: str) -> None:
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    world.index.faults[PAGES[page]] = Fault(status=404)
    said = install("--venv", str(world.venv()), *WANTED, "mine==1.0")
    assert said.exit == 1, said.err
    missing = "mine" if "mine" in PAGES[page] else "torch"
    assert f"None of the indexes has {missing}" in said.err


def test_a_wrong_mirror_is_named(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_torch("cpu")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{world.index.url}/wrong/simple")
    said = install("--venv", str(world.venv()), *WANTED)
    assert said.exit == 3
    assert "filelock was not found" in said.err


def test_a_setting_that_forbids_the_network_is_named(world: World, install: Install) -> None:
    world.add_torch("cpu")
    file = world.folder / "home/.config/uv/uv.toml"
    file.parent.mkdir(parents=True)
    file.write_text("offline = true\n")
    said = install("--venv", str(world.venv()), *WANTED)
    assert said.exit == 3
    assert "network was disabled" in " ".join(said.err.split())
