"""The commands that `resolve` prints for uv, pip and conda, to the word; and what they do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from index_server import build_wheel, index_server

from gpusetup.cli import main

INDEX = "https://download.pytorch.org/whl"
T4 = "--os linux --machine x86_64 --python 3.11 --gpu T4"
GH200 = "--os linux --machine aarch64 --python 3.11 --gpu 'GH200 480GB' --driver 580.95.05"
MAC = "--os macos --machine aarch64 --python 3.11"
DRIVER = "--driver 580.95.05"
Said = pytest.CaptureFixture[str]


def lines(capsys: Said, words: str, installer: str) -> list[str]:
    capsys.readouterr()
    main(["resolve", *shlex.split(words), "--json"])
    commands = json.loads(capsys.readouterr().out)["commands"]
    return [" ".join(argv) for argv in commands.get(installer, ())]


FAMILY = "torch==2.5.1+cu124 torchvision==0.20.1+cu124 torchaudio==2.5.1+cu124"
EXACT = {
    "uv": [
        f"uv pip install --no-deps --index {INDEX}/cu124 --default-index {INDEX}/cu124 {FAMILY}",
        f"uv pip install {FAMILY}",
    ],
    "pip": [
        f"python -m pip install --no-deps --index-url {INDEX}/cu124 {FAMILY}",
        f"python -m pip install {FAMILY}",
    ],
    "conda": [
        "conda create --name torch --override-channels --channel conda-forge python=3.11",
        "conda activate torch",
        "conda install --yes --name torch --override-channels --channel pytorch --channel nvidia "
        "--channel conda-forge pytorch::pytorch==2.5.1 pytorch::torchvision==0.20.1 "
        "pytorch::torchaudio==2.5.1 pytorch-cuda=12.4 mkl<2024.1",
    ],
}


@pytest.mark.parametrize("installer", EXACT)
def test_torchs_family_comes_from_its_index_and_the_rest_from_the_users_own(
    installer: str, capsys: Said
) -> None:
    found = lines(capsys, f"{T4} {DRIVER} --torch 2.5.1", installer)
    assert found == EXACT[installer]


@pytest.mark.parametrize(
    ("words", "installer", "said"),
    [
        (f"{T4} {DRIVER}", "uv", "torchaudio==2.11.0+cu130"),
        (f"{T4} {DRIVER}", "conda", "pytorch-gpu=2.13.0 torchvision cuda-version=13.0"),
        (GH200, "uv", "torch==2.15.0+cu130 torchvision==0.29.2"),
        (MAC, "uv", f"--default-index {INDEX}/cpu --reinstall-package=torch"),
        (f"{T4} {DRIVER} --index http://mirror/whl/", "pip", "--index-url http://mirror/whl/"),
    ],
)
def test_what_a_command_names(words: str, installer: str, said: str, capsys: Said) -> None:
    found = lines(capsys, words, installer)
    # conda's family comes last, after the new environment.
    first, *rest = found[::-1] if installer == "conda" else found
    assert said in first
    assert not any("reinstall" in line for line in rest)


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.one_in(4)
def test_the_real_installer_takes_each_thing_from_its_own_index(
    installer: str, tmp_path: Path, capsys: Said
) -> None:
    """An installed CPU torch is replaced; the default index has newer CPU builds and is not asked
    for torch's own, only for what torch needs."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache")}
    here = tmp_path / "venv"
    uv = (sys.executable, "-m", "uv")

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=90)

    without = ("--without-pip",) if installer == "uv" else ()
    assert run(sys.executable, "-m", "venv", *without, str(here)).returncode == 0
    python = str(here / "bin" / "python")
    with index_server(tmp_path / "index") as index:
        for shelf, name, version in (
            ("whl/cu124", "torch", "2.5.1+cu124"),
            ("whl/cu124", "torch", "2.9.0+cu124"),
            ("whl/cu124", "torchvision", "0.20.1+cu124"),
            ("whl/cu124", "torchaudio", "2.5.1+cu124"),
            ("simple", "torch", "2.5.1"),
            ("simple", "torch", "2.15.0"),
        ):
            wheel = build_wheel(tmp_path / shelf, name, version, requires=("filelock",))
            index.add(shelf, wheel)
        index.add("simple", build_wheel(tmp_path / "simple", "filelock", "3.20.0"))
        mirror = {"UV_DEFAULT_INDEX": index.simple, "PIP_INDEX_URL": index.simple}
        env |= mirror | {"UV_INDEX": index.simple, "PIP_EXTRA_INDEX_URL": index.simple}
        cpu = run(*uv, "pip", "install", "--python", python, "--no-deps", "torch==2.5.1")
        assert cpu.returncode == 0, cpu.stderr
        index.asked.clear()
        words = f"{T4} {DRIVER} --torch 2.5.1 --index {index.index_root}"
        for line in lines(capsys, words, installer):
            argv = line.split()
            whole = (*uv, *argv[1:3], "--python", python, *argv[3:])
            done = run(*(whole if installer == "uv" else (python, *argv[1:])))
            assert done.returncode == 0, done.stderr
        installed = run(python, "-c", "import torch, filelock; print(torch.__version__)")
        assert installed.stdout.strip() == "2.5.1+cu124"
        assert index.asked_for("GET /simple/filelock/") >= 1
        assert index.asked_for("GET /whl/cu124/filelock/") == 0
