"""The environment of a tool: a real `uv tool` puts back what its receipt names, and we say so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import uv
from installing import TORCH, World, needs_linux, run_uv, versions_in

from gpusetup import cli
from gpusetup.install.tool_environment import tool_command, tool_note

pytestmark = needs_linux
UV = str(uv.find_uv_bin())


@pytest.fixture
def tool(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool that stands on torch, as `uv tool install` makes it."""
    world.add_default("torch", "2.0.0")
    world.add_default("small", "1.0")
    world.add_default("trainer", "1.0", requires=("torch",), scripts={"trainer": "trainer:main"})
    for name in ("TOOL_DIR", "TOOL_BIN_DIR"):
        monkeypatch.setitem(world.environment, f"UV_{name}", str(world.folder / name.lower()))
    run_uv(world, "tool", "install", "--quiet", "trainer", "--with", "small")
    return world.folder / "tool_dir" / "trainer"


def run(world: World, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **world.environment}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_what_is_installed_into_it_is_said_to_be_put_back_and_the_printed_way_holds(
    world: World, tool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.add_torch("cpu", requires=())
    words = ("--index-root", world.index.index_root, "--python", str(tool), "--no-verify")
    given = ("--torch", TORCH, "--backend", "cpu", "--yes")
    capsys.readouterr()
    assert cli.main(["install", *words, *given]) == 0
    said = capsys.readouterr()
    way = f"uv tool install --torch-backend cpu --with small --with torch=={TORCH}+cpu trainer"
    assert way in said.out + said.err
    assert versions_in(tool)["torch"] == f"{TORCH}+cpu"
    capsys.readouterr()
    assert cli.main(["guard", "--python", str(tool)]) == 0
    assert way in capsys.readouterr().out
    assert run(world, UV, "tool", "upgrade", "trainer", "--reinstall").returncode == 0
    assert versions_in(tool)["torch"] == "2.0.0", "uv puts back what its receipt names"
    # torch's own index is not there: the loopback one stands in for what --torch-backend asks
    shelf = ("--index", f"{world.index.index_root}/cpu")
    plain = way.replace("--torch-backend cpu ", "").split()[1:]
    done = run(world, UV, *plain[:2], "--force", *shelf, *plain[2:])
    assert done.returncode == 0, done.stderr
    assert run(world, UV, "tool", "upgrade", "trainer", "--reinstall").returncode == 0
    found = versions_in(tool)
    assert (found["torch"], found["small"]) == (f"{TORCH}+cpu", "1.0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tool]\n",
        "tool = 1\n",
        "[[",
        "[tool]\nrequirements = []\n",
        '[tool]\nrequirements = [{ name = "a", git = "https://x" }]\n',
        '[tool]\nrequirements = [{ name = "a; rm -rf /" }]\n',
        '[tool]\nrequirements = [{ name = "--python" }]\n',
        '[tool]\nrequirements = ["a"]\n',
        f"[tool]\nrequirements = [{'[' * 9999}\n",
    ],
)
def test_a_receipt_that_no_command_says_again_gives_none(text: str, tmp_path: Path) -> None:
    assert tool_command(text, {"torch": "2.13.0+cpu"}) is None
    (tmp_path / "uv-receipt.toml").write_text(text)
    (note,) = tool_note(tmp_path, {"torch": "2.13.0+cpu"})
    assert "uv tool upgrade" in note and "`uv tool install" not in note
