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

note: there is no pyproject.toml here: `uv init --bare` makes one first
""".replace(
    "WHERE",
    "sys_platform == 'linux' or sys_platform == 'win32'",
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
    assert "== 'aarch64'" not in capsys.readouterr().out  # torch 2.5.1 has no such build of cu121


def test_a_described_gpu_gets_its_index(capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--project", "--gpu", "RTX 3090", "--driver", "580.95.05"])
    assert "whl/cu" in capsys.readouterr().out


@pytest.mark.parametrize("own", ["", "[tool.uv]\nenvironments = [\"sys_platform == 'linux'\"]"])
def test_uv_locks_what_was_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own: str
) -> None:
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
        text = "\n".join((PROJECT, *answer["lines"], own, ""))
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
    assert own or 'version = "2.5.1"\n' in locked  # the Mac's, from the default index


EXTRAS = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.11"
dependencies = []

[project.optional-dependencies]
cpu = ["torch", "torchvision"]
cu124 = ["torch>=2"]
docs = ["mkdocs"]

"""


def uv_by_itself(folder: Path, home: Path, default: str, *words: str) -> str:
    """What uv says of a project or a script; the test fails if uv does."""
    from uv import find_uv_bin

    done = subprocess.run(
        [find_uv_bin(), *words, "--no-cache", "--python", sys.executable],
        cwd=folder,
        env={**bare_environment(home, default), "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_uv_locks_extras_that_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each extra gets the build of its own index, in one lock."""
    shelf = tmp_path / "wheels"
    shelf.mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    file = folder / "pyproject.toml"
    file.write_text(EXTRAS, encoding="utf-8")
    with index_server(tmp_path / "served") as index:
        for backend in ("cpu", "cu124"):
            for tag in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "win_amd64"):
                for name, version in (("torch", "2.5.1"), ("torchvision", "0.20.1")):
                    full = f"{version}+{backend}"
                    wheel = build_wheel(shelf, name, full, tag=f"cp311-cp311-{tag}")
                    index.add(f"whl/{backend}", wheel)
        for name, version in (("torch", "2.5.1"), ("torchvision", "0.20.1"), ("mkdocs", "1.6")):
            tag = "cp311-none-macosx_11_0_arm64" if name != "mkdocs" else "py3-none-any"
            index.add("simple", build_wheel(shelf, name, version, tag=tag))
        assert main([*WORDS, "--index", index.index_root, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        file.write_text("\n".join((EXTRAS, *answer["lines"], "")), encoding="utf-8")
        steps = [shlex.join(step["argv"]) for step in answer["steps"]]
        assert steps == [
            "uv add --no-sync --optional cpu torch==2.5.1 torchvision==0.20.1",
            "uv add --no-sync --optional cu124 torch==2.5.1",
            "uv sync --extra cu124",
        ]
        for step in answer["steps"][:-1]:
            uv_by_itself(folder, tmp_path, index.simple, *step["argv"][1:])
        locked = (folder / "uv.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked
    assert 'version = "2.5.1+cpu"' in locked
    assert "conflicts = [[" in locked


@pytest.mark.parametrize(
    "text",
    [
        "[project",
        "project = 3",
        "[project]\noptional-dependencies = 5",
        '[project.optional-dependencies]\n"a b" = ["torch"]\ncpu = "torch"\nx = [3, {y = 1}]',
        "a = " + "[" * 5000,
    ],
)
def test_a_strangers_project_file_never_ends_the_command(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert main([*WORDS]) == 0
    assert "uv add torch==2.5.1" in capsys.readouterr().out


SCRIPT = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = ["torch", "torchvision", "rich"]
# ///
import torch
"""


@pytest.mark.parametrize("text", [SCRIPT, "import torch\n"], ids=["with a block", "without"])
def test_uv_locks_a_script_with_what_was_pasted(
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = tmp_path / "wheels"
    shelf.mkdir()
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    with index_server(tmp_path / "served") as index:
        for tag in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "win_amd64"):
            for name, version in (("torch", "2.5.1"), ("torchvision", "0.20.1")):
                wheel = build_wheel(shelf, name, f"{version}+cu124", tag=f"cp311-cp311-{tag}")
                index.add("whl/cu124", wheel)
        for name, version in (("torch", "2.5.1"), ("torchvision", "0.20.1"), ("rich", "14.0")):
            tag = "cp311-none-macosx_11_0_arm64" if name != "rich" else "py3-none-any"
            index.add("simple", build_wheel(shelf, name, version, tag=tag))
        words = [*WORDS, "script.py", "--index", index.index_root, "--json"]
        assert main(words) == 0
        answer = json.loads(capsys.readouterr().out)
        lines = "\n".join(answer["lines"])
        first = "# ///\nimport" if "# ///" in text else "import"
        script.write_text(text.replace(first, f"{lines}\n{first}"), encoding="utf-8")
        for step in answer["steps"][:-1]:
            uv_by_itself(tmp_path, tmp_path, index.simple, *step["argv"][1:])
        uv_by_itself(tmp_path, tmp_path, index.simple, "lock", "--script", "script.py")
        locked = (tmp_path / "script.py.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked
    assert ("torchvision" in locked) == ("torchvision" in text)
    assert not any("script.py" in word for word in answer["after"])


@pytest.mark.parametrize(
    "text",
    [
        "# /// script\n# dependencies = [\n# ///\n",
        "# /// script\n# a = 1\n# ///\n\n# /// script\n# b = 2\n# ///\n",
    ],
)
def test_a_script_whose_block_cannot_be_read_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text(text, encoding="utf-8")
    assert main([*WORDS, "s.py"]) == 2
    assert "s.py" in capsys.readouterr().err


def test_uv_locks_amds_build_with_the_triton_of_its_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = tmp_path / "wheels"
    with index_server(tmp_path / "served") as index:
        tag = "cp311-cp311-manylinux_2_28_x86_64"
        needs = ("triton-rocm==3.8.0",)
        torch = build_wheel(shelf, "torch", "2.13.0+rocm7.2", tag=tag, requires=needs)
        index.add("whl/rocm7.2", torch)
        index.add("whl/rocm7.2", build_wheel(shelf, "triton-rocm", "3.8.0"))
        # The public index has a placeholder under this name.
        index.add("simple", build_wheel(shelf, "triton-rocm", "0.0.1"))
        words = ("--backend", "rocm7.2", "--torch", "2.13.0", "--index", index.index_root)
        assert main(["install", "--project", *words, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        folder = tmp_path / "project"
        folder.mkdir()
        text = "\n".join((PROJECT, *answer["lines"], ""))
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        add = answer["steps"][0]["argv"]
        uv_by_itself(folder, tmp_path, index.simple, *add[1:], "--no-sync")
        locked = (folder / "uv.lock").read_text(encoding="utf-8")
    assert 'version = "2.13.0+rocm7.2"' in locked
    assert 'name = "triton-rocm"\nversion = "3.8.0"' in locked
