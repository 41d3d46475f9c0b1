"""What an answer to a text says: each line once, one command that decides, a way for this place."""

from __future__ import annotations

import re

from each_row import each
from report_asked import NO_DRIVER, NOT_FOUND, UNAVAILABLE, answered

TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600001 milliseconds"
)


@each(
    "text, reading",
    [
        (UNAVAILABLE, r'python -c "import torch; .*torch\.cuda\.init\(\)"'),
        (f"Windows 11\n{NO_DRIVER}", "Get-CimInstance .*"),
        (TIMEOUT, r"export NCCL_DEBUG=INFO  # .*"),
        (f"using Google Colab\n{UNAVAILABLE}", "!python -c .*"),
        ("root@3f2a9c1b7d4e:/workspace# python t.py\nRuntimeError: CUDA error: initialization "
         "error", r"sudo dmesg .*  # on the host"),
        ("RuntimeError: CUDA error: initialization error", "sudo dmesg .*nvrm.*"),
    ],
)  # fmt: skip
def test_the_reading_is_one_of_the_place_that_the_text_shows(text: str, reading: str) -> None:
    told = answered(text).next_reading
    assert told is not None and re.fullmatch(reading, told), told


COMPOSE = f"""\
services:
  train:
    image: registry.example.com/train:4
    command: python train.py

train-1  | {NO_DRIVER}
"""
SMI = (
    "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8 |\n"
    "|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |      N/A |\n"
)


@each(
    "text",
    [
        f"root@3f2a9c1b7d4e:/workspace# nvidia-smi\n{NOT_FOUND}",
        f"$ podman run --rm my/image python train.py\n{NO_DRIVER}",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
         f"root@8c1f0a2b3d4e:/workspace# nvidia-smi\n{NOT_FOUND}",
        COMPOSE,
    ],
)  # fmt: skip
def test_a_container_that_was_given_no_gpu_comes_before_a_host_without_a_driver(text: str) -> None:
    answer = answered(text)
    assert (answer.cause, answer.certainty) == ("container-no-gpu", "likely")
    assert answer.next_reading == "nvidia-smi  # on the host"


@each(
    "text, cause",
    [
        (f"me@ubuntu:~$ nvidia-smi\n{NOT_FOUND}", "driver-missing"),
        (COMPOSE.replace("    command", "    gpus: all\n    command"), "unknown"),
        (f"the services: we use\nimage: none\n{NO_DRIVER}", "driver-missing"),
        (f"$ docker run --gpus all my/image nvidia-smi\n{SMI}", "ok"),
    ],
)  # fmt: skip
def test_a_host_or_a_container_with_a_gpu_is_not_one_without(text: str, cause: str) -> None:
    assert answered(text).cause == cause


def test_a_container_beside_a_host_whose_driver_answers_is_certain() -> None:
    inside = f"$ docker run -it my/image bash\nroot@3f2a9c1b7d4e:/# nvidia-smi\n{NOT_FOUND}"
    answer = answered(f"{inside}\n\non the host:\n{SMI}")
    assert (answer.cause, answer.certainty) == ("container-no-gpu", "certain")
    assert answer.other_causes == ()
