"""`install --project`: the pins in a uv project's file; real uv locks what is written."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from index_server import build_wheel, index_server
from installing import bare_environment

from gpusetup.cli import main

PROJECT = """\
# my project
[project]
name = "x"   # the name
version = "0"
requires-python = ">=3.11"
dependencies = [
    "numpy",   # numbers
    "torch>=2",  # the engine
    "torchvision; sys_platform == 'linux'",
]

[tool.ruff]
line-length = 100  # wide
"""


def pinned(text: str, *words: str, torch: str = "2.5.1", code: int = 0) -> str:
    """A project's file after `install --project` for the laptop; "latest": the newest torch."""
    asked = () if torch == "latest" else ("--torch", torch)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pyproject.toml")
        file.write_bytes(text.encode())
        argv = ("install", "--from", "rtx3050-laptop", *asked, *words, "--project", str(file))
        assert main([*argv, "--yes"]) == code
        return file.read_bytes().decode()


PINNED = """\
# my project
[project]
name = "x"   # the name
version = "0"
requires-python = ">=3.11"
dependencies = [
    "numpy",   # numbers
    "torch==2.5.1",  # the engine
    "torchvision==0.20.1; sys_platform == \\"linux\\"",
]

[tool.ruff]
line-length = 100  # wide

[tool.uv.sources]
torch = [{index = "pytorch", marker = "WHERE"}]
torchvision = [{index = "pytorch", marker = "WHERE"}]

[[tool.uv.index]]
name = "pytorch"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
""".replace(
    "WHERE",
    "sys_platform == 'linux' and platform_machine == 'x86_64' or sys_platform == 'linux' and "
    "platform_machine == 'aarch64' or sys_platform == 'win32'",
)


def test_another_backend_replaces_the_index() -> None:
    once = pinned(PROJECT)
    twice = pinned(once, "--backend", "cu121")
    assert "cu124" not in twice
    assert twice.count("[[tool.uv.index]]") == 1
    assert "aarch64" not in twice  # torch 2.5.1 has no cu121 build: there the default index stays


def test_other_indexes_and_sources_stay() -> None:
    mine = PROJECT + (
        '\n[tool.uv.sources]\nmylib = { path = "../mylib" }\n'
        '\n[[tool.uv.index]]\nname = "corporate"\nurl = "https://example.com/simple"\n'
    )
    changed = pinned(mine, torch="latest")
    assert 'mylib = { path = "../mylib" }' in changed
    assert '[[tool.uv.index]]\nname = "corporate"\nurl = "https://example.com/simple"\n' in changed
    assert changed.startswith(PROJECT.split('    "torch>=2"')[0])


def test_torch_is_added_to_a_project_without_it() -> None:
    changed = pinned('[project]\nname = "x"\nversion = "0"\n')
    assert 'dependencies = ["torch==2.5.1"]' in changed


# --- the command ---------------------------------------------------------------------------------


def project_in(folder: Path, text: str = PROJECT) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


WORDS = ("install", "--from", "rtx3050-laptop", "--torch", "2.5.1", "--project")


def test_a_dry_run_shows_the_diff_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project_in(tmp_path)
    assert main([*WORDS, str(path), "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"] == "planned"
    assert '+    "torch==2.5.1",  # the engine' in answer["diff"]
    assert path.read_text(encoding="utf-8") == PROJECT


def test_a_described_gpu_gets_its_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = ("--gpu", "RTX 3090", "--driver", "580.95.05")
    main(["install", "--project", str(project_in(tmp_path)), "--dry-run", *described])
    assert "whl/cu" in capsys.readouterr().out


def test_written_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project_in(tmp_path)
    assert main([*WORDS, str(path), "--yes"]) == 0
    assert path.read_text(encoding="utf-8") == PINNED
    assert [file.name for file in tmp_path.iterdir()] == ["pyproject.toml"]
    assert main([*WORDS, str(path), "--yes"]) == 0
    assert "Nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("a = [", "cannot be edited"),
        ("", "cannot be edited"),
        ("[project]\ndependencies = 3\n", ""),
        ("[project]\ndependencies = 'torch'\n", ""),
        ('[project]\nname="x"\n[tool]\nuv = 3\n', ""),
        ('[project]\nname="x"\n[tool.uv]\nindex = 3\n', ""),
    ],
)
def test_a_bad_project_file_gets_2_and_stays(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pyproject.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main([*WORDS, str(path), "--yes"]) == 2
    assert said in capsys.readouterr().err
    assert (path.read_text(encoding="utf-8") if path.exists() else None) == text


IN_BASE = (
    PROJECT.replace(">=3.11", ">=3.10")
    .replace('    "numpy",   # numbers\n', "")
    .replace("    \"torchvision; sys_platform == 'linux'\",\n", "")
)


def test_uv_locks_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        path = project_in(folder, IN_BASE)
        assert main([*WORDS, str(path), "--index", index.index_root, "--yes"]) == 0
        capsys.readouterr()
        done = subprocess.run(
            [find_uv_bin(), "lock", "--no-cache", "--python", sys.executable],
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


def test_a_project_that_names_torch_in_its_extras_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    extras = '[project.optional-dependencies]\ncpu = ["torch"]\ncu124 = ["torch"]\n\n[tool.ruff]'
    text = PROJECT.replace("[tool.ruff]", extras)
    assert pinned(text, code=1) == text
    assert "names torch in its extras or groups" in capsys.readouterr().err


# --- the file as somebody keeps it ----------------------------------------------------------------


def written(file: Path) -> int:
    return main(
        ["install", "--from", "rtx3050-laptop", "--torch", "2.5.1", "--project", str(file), "--yes"]
    )


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "shared" / "project.toml"
    real.parent.mkdir()
    real.write_text(PROJECT, encoding="utf-8")
    link = tmp_path / "pyproject.toml"
    link.symlink_to(real)
    assert written(link) == 0
    assert link.is_symlink() and real.read_text(encoding="utf-8") == PINNED
