"""Before torch is changed, whoever holds the environment is asked: each has a way of its own."""

from __future__ import annotations

import re

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, command_lines

OLD_BUILD = (
    "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 "
    "sm_90.\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n"
)


def warning(folder: str) -> str:
    """torch's warning about a new GPU, from a torch that lies in a folder."""
    return (
        f"{folder}torch/cuda/__init__.py:235: UserWarning: NVIDIA GeForce RTX 5090 with CUDA "
        f"capability sm_120 is not compatible with the current PyTorch installation.\n{OLD_BUILD}"
    )


def root_of(answer: DoctorAnswer) -> Finding:
    return next(finding for finding in answer.findings if finding.root)


def way_of(answer: DoctorAnswer) -> str:
    fix = root_of(answer).fix
    assert fix is not None
    return fix.text


def installations(answer: DoctorAnswer) -> list[str]:
    """The commands that put a torch into the environment that is there."""
    lines = command_lines(root_of(answer).fix)
    return [line for line in lines if re.search(r"pip install|gpusetup install(?!.*--venv)", line)]


IN_AN_IMAGE = "/usr/local/lib/python3.12/dist-packages/"
CLOSED = (
    # what the text shows, what the way names
    (
        f"docker run --gpus all vllm/vllm-openai:v0.8.5 --model m\n{warning(IN_AN_IMAGE)}",
        "another tag of vllm/vllm-openai",
    ),
    (
        "NVIDIA Release 25.08 (build 197421315)\nPyTorch Version 2.8.0a0+34c6371\n"
        "Container image Copyright (c) 2025, NVIDIA CORPORATION & AFFILIATES.\n"
        "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
        "(found version 12040).\ndriver 550.54.15, torch.cuda.is_available() False",
        "Keep the image's torch",
    ),
)


@each("text, way", CLOSED)
def test_where_another_holds_the_environment_pip_is_not_the_way(text: str, way: str) -> None:
    answer = read_report(text)
    assert way in way_of(answer)
    assert not installations(answer)


PROGRAMS = (
    # what the text shows, what its own way is, the Python that pip is given
    (
        "D:\\ComfyUI_windows_portable>.\\python_embeded\\python.exe -s ComfyUI\\main.py\n"
        + warning("D:\\ComfyUI_windows_portable\\python_embeded\\Lib\\site-packages\\"),
        "update_comfyui_and_python_dependencies.bat",
        "python_embeded",
    ),
    (
        'venv "C:\\AI\\stable-diffusion-webui\\venv\\Scripts\\Python.exe"\n'
        + warning("C:\\AI\\stable-diffusion-webui\\venv\\lib\\site-packages\\"),
        "TORCH_COMMAND",
        "stable-diffusion-webui\\venv",
    ),
)


@each("text, way, python", PROGRAMS)
def test_a_programs_own_way_comes_first_and_pip_is_its_own(
    text: str, way: str, python: str
) -> None:
    answer = read_report(text)
    before, _, installation = way_of(answer).partition("in its environment")
    assert way in before
    assert "Install torch" in installation
    lines = installations(answer)
    assert lines
    assert all(python in line for line in lines)


def test_in_a_container_pips_lines_are_the_dockerfiles() -> None:
    answer = read_report(
        f"docker run --gpus all -it trainer python train.py\n"
        f"{warning('/app/.venv/lib/python3.11/site-packages/')}torch 2.5.1+cu124"
    )
    fix = root_of(answer).fix
    assert fix is not None
    assert not fix.commands
    (way,) = fix.alternatives
    assert "Dockerfile" in fix.text
    assert "whl/cu128" in way.commands[0]
    assert "gpusetup install" not in fix.text
