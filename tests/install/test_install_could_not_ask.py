"""With a package beside torch: an index that gave no answer is named, and is no "no"."""

from __future__ import annotations

import pytest
from index_server import Fault
from installing import WANTED, Install, World, needs_linux, state_of

pytestmark = needs_linux

PAGES = {"torch's page": "/whl/cpu/torch/", "the package's page": "/simple/mine/"}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize(("status", "code"), [(401, 3), (403, 3), (503, 3), (404, 1)])
@pytest.mark.one_in(2)
def test_only_a_page_that_is_not_there_is_a_no(
    world: World, install: Install, page: str, status: int, code: int
) -> None:
    world.add_torch("cpu")
    world.add_default("mine", "1.0")
    venv = world.venv()
    before = state_of(venv)
    world.index.faults[page] = Fault(status=status)
    said = install("--venv", str(venv), *WANTED, "mine==1.0")
    assert said.exit == code, said.err
    missing = "mine" if "mine" in page else "torch"
    cause = f"None of the indexes has {missing}" if code == 1 else str(status)
    assert cause in said.err
    assert code == 1 or ("127.0.0.1" in said.err and "No torch" not in said.err)
    assert state_of(venv) == before


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
