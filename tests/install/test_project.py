"""`install --project`: what to add to a uv project's file; real uv locks what is pasted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uv
from index_server import IndexServer, build_wheel, index_server
from installing import bare_environment

from gpusetup.cli import main

WORDS = ("install", "--project", "--from", "rtx3050-laptop", "--torch", "2.5.1")
SYSTEMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "win_amd64")
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    """torch and torchvision for a GPU and for the CPU, and the default index, which has torch for a
    Mac."""
    folder = tmp_path_factory.mktemp("projects")
    with index_server(folder / "served") as index:

        def add(shelf: str, name: str, version: str, tag: str) -> None:
            index.add(shelf, build_wheel(folder / shelf, name, version, tag=tag))

        for name, version in (("torch", "2.5.1"), ("torchvision", "0.20.1")):
            for backend in ("cpu", "cu124"):
                for system in SYSTEMS:
                    add(f"whl/{backend}", name, f"{version}+{backend}", f"cp311-cp311-{system}")
            add("simple", name, version, "cp311-none-macosx_11_0_arm64")
        for name in ("mkdocs", "rich"):
            add("simple", name, "14.0", "py3-none-any")
        yield index


def asked(capsys: Out, *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def by_uv(folder: Path, index: IndexServer, *words: str) -> None:
    """uv by itself takes what was pasted; the test fails if it does not."""
    done = subprocess.run(
        [uv.find_uv_bin(), *words, "--no-cache", "--python", sys.executable],
        cwd=folder,
        env={**bare_environment(folder.parent, index.simple), "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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

note: this folder has no pyproject.toml: create one first with `uv init --bare`
""".replace("WHERE", "sys_platform == 'linux' or sys_platform == 'win32'")


def test_it_is_shown_and_nothing_is_written(here: Path, capsys: Out) -> None:
    assert main([*WORDS, "torchvision", "rich"]) == 0
    assert capsys.readouterr().out == SHOWN
    assert not [*here.iterdir()]
    main(["install", "--project", "--gpu", "RTX 3090", "--driver", "580.95.05"])
    assert "whl/cu" in capsys.readouterr().out


def test_where_torch_stays_the_rest_of_the_file_is_still_to_be_installed(
    here: Path, capsys: Out
) -> None:
    (here / "requirements.txt").write_text("torch\n", encoding="utf-8")
    assert main(["install", "--project", "--from", "healthy"]) == 0
    assert "uv pip install --python" in capsys.readouterr().out


PROJECT = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.10"
dependencies = [
    "torch>=2",  # the engine
]
"""


def test_uv_locks_what_was_pasted(here: Path, index: IndexServer, capsys: Out) -> None:
    answer = asked(capsys, *WORDS, "--index", index.index_root)
    (here / "pyproject.toml").write_text("\n".join((PROJECT, *answer["lines"], "")))
    add = answer["steps"][0]["argv"]
    assert shlex.join(add) == "uv add torch==2.5.1"
    by_uv(here, index, *add[1:], "--no-sync")
    locked = (here / "uv.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked and "2.5.1+cpu" not in locked
    assert 'version = "2.5.1"\n' in locked  # the Mac's, from the default index


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


def test_uv_locks_extras_that_exclude_each_other(
    here: Path, index: IndexServer, capsys: Out
) -> None:
    """Each extra gets the build of its own index, in one lock."""
    file = here / "pyproject.toml"
    file.write_text(EXTRAS)
    answer = asked(capsys, *WORDS, "--index", index.index_root)
    file.write_text("\n".join((EXTRAS, *answer["lines"], "")))
    assert [shlex.join(step["argv"]) for step in answer["steps"]] == [
        "uv add --no-sync --optional cpu torch==2.5.1 torchvision==0.20.1",
        "uv add --no-sync --optional cu124 torch==2.5.1",
        "uv sync --extra cu124",
    ]
    for step in answer["steps"][:-1]:
        by_uv(here, index, *step["argv"][1:])
    locked = (here / "uv.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked and 'version = "2.5.1+cpu"' in locked
    assert "conflicts = [[" in locked


SCRIPT = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["torch", "rich"]
# ///
import torch
"""


@pytest.mark.parametrize("text", [SCRIPT, "import torch\n"], ids=["with a block", "without"])
def test_uv_writes_torch_and_its_index_into_a_script(
    here: Path, index: IndexServer, capsys: Out, text: str
) -> None:
    (here / "script.py").write_text(text)
    answer = asked(capsys, *WORDS, "script.py", "--index", index.index_root)
    assert (here / "script.py").read_text() == text
    by_uv(here, index, *answer["steps"][0]["argv"][1:])
    by_uv(here, index, "lock", "--script", "script.py")
    locked = (here / "script.py.lock").read_text(encoding="utf-8")
    assert 'version = "2.5.1+cu124"' in locked
    assert not any("script.py" in word for word in answer["after"])
