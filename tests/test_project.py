"""`install --project`: what to add to a uv project's file; real uv locks what is pasted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from index_server import build_wheel, index_server
from installing import bare_environment

from gpusetup.cli import main

PROJECT = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.10"
dependencies = [
    "torch>=2",  # the engine
]
"""
WORDS = ("install", "--project", "--from", "rtx3050-laptop", "--torch", "2.5.1")

SHOWN = """\
Add to pyproject.toml
[[tool.uv.index]]
name = "pytorch"
url = "https://download.pytorch.org/whl/cu124"
explicit = true

[tool.uv.sources]
torch = [{ index = "pytorch", marker = "WHERE" }]
torchvision = [{ index = "pytorch", marker = "WHERE" }]

Then
  uv add torch==2.5.1 torchvision==0.20.1 rich
""".replace(
    "WHERE",
    "sys_platform == 'linux' and platform_machine == 'x86_64' or sys_platform == 'linux' and "
    "platform_machine == 'aarch64' or sys_platform == 'win32'",
)


def test_it_is_shown_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "torchvision", "rich"]) == 0
    assert capsys.readouterr().out == SHOWN
    assert not [*tmp_path.iterdir()]


def test_a_platform_without_that_build_keeps_the_default_index(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([*WORDS, "--backend", "cu121"])
    assert "aarch64" not in capsys.readouterr().out  # torch 2.5.1 has no such build of cu121


def test_a_described_gpu_gets_its_index(capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--project", "--gpu", "RTX 3090", "--driver", "580.95.05"])
    assert "whl/cu" in capsys.readouterr().out


def test_uv_locks_what_was_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from uv import find_uv_bin

    shelf = tmp_path / "wheels"
    shelf.mkdir()
    with index_server(tmp_path / "served") as index:
        for backend in ("cpu", "cu124"):
            for tag in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "win_amd64"):
                wheel = build_wheel(shelf, "torch", f"2.5.1+{backend}", tag=f"cp311-cp311-{tag}")
                index.add(f"whl/{backend}", wheel)
        mac = build_wheel(shelf, "torch", "2.5.1", tag="cp311-none-macosx_11_0_arm64")
        index.add("simple", mac)
        folder = tmp_path / "project"
        folder.mkdir()
        assert main([*WORDS, "--index", index.index_root, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        text = "\n".join((PROJECT, *answer["lines"], ""))
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        add = answer["steps"][0]["argv"]
        assert shlex.join(add) == "uv add torch==2.5.1"
        done = subprocess.run(
            [find_uv_bin(), *add[1:], "--no-sync", "--no-cache", "--python", sys.executable],
            cwd=folder,
            env={**bare_environment(tmp_path, index.simple), "UV_PYTHON_DOWNLOADS": "never"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        locked = (folder / "uv.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked and "2.5.1+cpu" not in locked
    assert 'version = "2.5.1"\n' in locked  # the Mac's, from the default index
