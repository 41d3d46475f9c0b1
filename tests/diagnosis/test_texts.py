"""No answer about a text is stronger than its evidence, and no command changes what was not read.

Each text shows a mechanism from outside, with a text next to it in which one fact differs.
"""

from __future__ import annotations

import re

import pytest
from each_row import each

from gpusetup.api import read_report
from gpusetup.commands.doctor import exit_code
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, command_lines
from gpusetup.render.doctor import doctor_screen


def root_of(answer: DoctorAnswer) -> Finding:
    return next(finding for finding in answer.findings if finding.root)


def commands_of(answer: DoctorAnswer) -> str:
    return "\n".join(line for one in answer.findings for line in command_lines(one.fix))


def way_of(answer: DoctorAnswer) -> str:
    fix = root_of(answer).fix
    assert fix is not None
    return fix.text


def screen_of(answer: DoctorAnswer) -> str:
    return " ".join(doctor_screen(answer).for_terminal(width=100, colour=False).split())


NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
NMS = "RuntimeError: operator torchvision::nms does not exist\n"
CUBLAS = "ImportError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
LISTED = "/opt/app/.venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12\n"
NO_DEVICE_DRIVER = (
    "$ docker run --gpus all ubuntu nvidia-smi\ndocker: Error response from daemon: "
    'could not select device driver "" with capabilities: [[gpu]].\n'
)


# --- a cause that a reading denies ----------------------------------------------------------------

REFUTED = [
    # what the text shows, the cause, what is ruled out
    (f"{NO_KERNEL}PyTorch version: 2.9.1+cu128\nRTX 5090\n", "extension-arch-mismatch", True),
    (
        f"{CUBLAS}torch 2.5.1+cu124\n$ find / -name 'libcublas*'\n{LISTED}",
        "library-not-on-path",
        True,
    ),
    (f"{CUBLAS}torch 2.5.1+cu124\n", "cuda-lib-missing", False),
    (f"nvidia-container-toolkit-1.17.8-1.x86_64\n{NO_DEVICE_DRIVER}", "docker-other-daemon", True),
    (NO_DEVICE_DRIVER, "container-toolkit-missing", False),
]


@each("text, cause, is_refuted", REFUTED)
def test_a_cause_that_a_reading_denies_is_not_given(
    text: str, cause: str, is_refuted: bool
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    assert bool(answer.ruled_out) is is_refuted
    if is_refuted:
        # Nothing is installed over what was read to be right, and the answer says why.
        assert "install" not in commands_of(answer)
        assert answer.ruled_out[0].because in screen_of(answer)


@each(
    "text, cause, question",
    [
        ("My program ignores my Radeon RX 6800, it falls back to CPU.", "amd-gpu", "version.hip"),
        (
            "UserWarning: cudaGetDeviceCount() returned cudaErrorNotSupported, likely using older "
            "driver or on CPU machine",
            "vgpu-no-compute",
            "nvidia-smi",
        ),
    ],
)
def test_a_makers_name_or_one_word_is_no_cause(text: str, cause: str, question: str) -> None:
    answer = read_report(text)
    assert answer.cause == "unknown"
    assert cause in {ruled_out.id for ruled_out in answer.ruled_out}
    assert question in (answer.next_reading or "")


# --- certain only by proof ------------------------------------------------------------------------

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total "
    "capacity of 23.99 GiB of which {free} is free."
)
PROVEN_AND_NOT = [
    # the cause, the text that proves it, the text that only suggests it
    ("out-of-memory", FULL.format(asked="512.00 MiB", free="80.00 MiB"), "CUDA out of memory."),
    (
        "torch-cpu-build",
        "RTX 3090\nAssertionError: Torch not compiled with CUDA enabled",
        "AssertionError: Torch not compiled with CUDA enabled",
    ),
]


@each("cause, proven, suggested", PROVEN_AND_NOT)
def test_a_cause_is_certain_where_its_text_proves_it(
    cause: str, proven: str, suggested: str
) -> None:
    certain, likely = read_report(proven), read_report(suggested)
    assert (certain.cause, certain.certainty) == (cause, "certain")
    assert (likely.cause, likely.certainty) == (cause, "likely")


# --- what is changed ------------------------------------------------------------------------------

UNCHANGED = [
    # what the text shows, what is in no command, what the way says
    (
        "uv sync\nerror: Distribution `decord==0.6.0 @ registry+https://x.example/simple` can't be "
        "installed because it doesn't have a source distribution or wheel for the current "
        "platform\n"
        "hint: You're on Linux (`manylinux_2_39_aarch64`), but `decord` (v0.6.0) only has "
        "wheels for "
        "the following platforms: `manylinux2010_x86_64`",
        "gpusetup install",
        "do not need to change torch",
    ),
    (
        "My job on a rented node of RunPod (8x H100 SXM) ends with Error 802: system not yet "
        "initialized\nfabric manager never reported Completed",
        "systemctl",
        "provider",
    ),
    (
        "hint: You're on Linux (`musllinux_1_2_x86_64`), but `torch` (v2.6.0) only has wheels for "
        "the following platforms: `manylinux_2_28_x86_64`",
        "gpusetup install",
        "with glibc",
    ),
]


@each("text, absent, way", UNCHANGED)
def test_only_what_failed_and_can_be_reached_is_changed(text: str, absent: str, way: str) -> None:
    answer = read_report(text)
    assert absent not in commands_of(answer)
    assert way in way_of(answer)


# --- a full GPU -----------------------------------------------------------------------------------

OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 23.64 GiB of which 1.10 GiB is free. Of the allocated memory {used} is allocated "
    "by PyTorch, and {unused} is reserved by PyTorch but unallocated."
)

MEMORY = [
    # what stands beside the message, torch's unused memory, whether the allocator is set, the way
    ("", "9.00 GiB", True, "in pieces that are too small"),
    ("", "60.00 MiB", False, "smaller batch"),
    ('  File "/opt/ComfyUI/comfy/model_management.py", line 9', "60.00 MiB", False, "--lowvram"),
]  # fmt: skip


@each("beside, unused, is_set, way", MEMORY)
def test_a_full_gpu_is_answered_by_the_texts_numbers(
    beside: str, unused: str, is_set: bool, way: str
) -> None:
    answer = read_report(f"{beside}\n{OUT.format(used='20.00 GiB', unused=unused)}")
    assert answer.cause == "out-of-memory"
    assert ("expandable_segments" in commands_of(answer)) is is_set
    assert way in way_of(answer)


# --- a change only for what was read --------------------------------------------------------------


def test_a_companion_waits_for_the_torch_that_is_there() -> None:
    answer = read_report(f"my conda env is fresh, and then\n{NMS}")
    fix = answer.findings[0].fix
    assert answer.cause == "torchvision-mismatch" and fix is not None
    assert [(need.what, need.state) for need in fix.needs] == [("torch", "unread")]
    assert fix.commands == () and "torch.__version__" in (answer.next_reading or "")
    known = read_report(f"{NMS}torch   2.6.0+cu124\ntorchvision   0.20.1+cu124\n")
    assert "torchvision==0.21.0" in commands_of(known)


def test_a_screen_that_cannot_be_reached_enrols_no_key() -> None:
    text = (
        "SecureBoot enabled\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
        "driver.\nUbuntu 22.04{where}\n"
    )
    there = read_report(text.format(where=" on a VM at Azure, I only have ssh to the machine."))
    assert "mokutil --import" not in commands_of(there)
    assert "signed kernel modules" in screen_of(there)
    assert "mokutil --import" in commands_of(
        read_report(text.format(where=" on the PC at my desk."))
    )


# --- whose environment it is ----------------------------------------------------------------------

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


# --- healthy, and asked -------------------------------------------------------------------------

HEALTHY = [
    "torch 2.9.1+rocm6.4, torch.cuda.is_available() True, RX 7900 XTX, Ubuntu 24.04. Works great.",
    "Do I need CUDA 12.4 if my driver is 570.86.10? I want torch 2.5.1 built for CUDA 12.4.",
    "torch: 2.6.0+cu124, RTX 4070\nModuleNotFoundError: No module named 'triton'\n"
    "100%|##########| 20/20 [00:02<00:00,  8.61it/s]\n",
]


@pytest.mark.parametrize("text", HEALTHY)
def test_a_working_stack_and_a_plain_question_end_with_0(text: str) -> None:
    judged = read_report(text)
    assert (judged.cause, exit_code(judged, strict=False)) == ("ok", 0)
    assert judged.next_reading is None


@each(
    "text, asks",
    [
        ("8x H100, torch 2.7.1+cu128, the training freezes at its first step.", "NCCL_DEBUG=INFO"),
        ("lxc ml ERROR conf.c:lxc_setup:3940 - Failed to run mount hooks", "nvidia-container-cli"),
        ("hi, my RTX 4090 does not work with this program, please help", "torch.__version__"),
        ("my RTX 5090 gives errors in this program, please help", "torch.__version__"),
    ],
)
def test_an_unknown_answer_asks_by_stage(text: str, asks: str) -> None:
    answer = read_report(text)
    assert answer.cause == "unknown"
    assert asks in (answer.next_reading or "")
