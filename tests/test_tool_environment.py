"""The environment of a tool: a real `uv tool` puts back what its receipt names, and we say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from installing import TORCH, World, needs_linux, run_uv, versions_in

from gpusetup import cli

pytestmark = needs_linux


def test_what_is_installed_into_it_is_said_to_be_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.add_default("torch", "2.0.0")
    world.add_default("trainer", "1.0", requires=("torch",), scripts={"trainer": "trainer:main"})
    for name in ("TOOL_DIR", "TOOL_BIN_DIR"):
        monkeypatch.setitem(world.environment, f"UV_{name}", str(world.folder / name.lower()))
    run_uv(world, "tool", "install", "--quiet", "trainer")
    tool = Path(world.folder, "tool_dir", "trainer")
    world.add_torch("cpu", requires=())
    words = ("--index", world.index.index_root, "--python", str(tool), "--no-verify")
    assert cli.main(["install", *words, "--torch", TORCH, "--backend", "cpu", "--yes"]) == 0
    said = capsys.readouterr()
    way = f"`uv tool install` --torch-backend cpu --with torch=={TORCH}+cpu"
    assert way in " ".join((said.out + said.err).split())
    run_uv(world, "tool", "upgrade", "trainer", "--reinstall")
    assert versions_in(tool)["torch"] == "2.0.0", "uv puts back what its receipt names"
