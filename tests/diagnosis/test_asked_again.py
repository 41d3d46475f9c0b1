"""No question asks for what its text shows: texts of our own, and the folders of labelled reports.

The folders are not part of the repository: `GPUSETUP_REPORTS` names them (with the system's
separator of paths), files of JSON with a `report` or a `text` each.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike

OUTPUTS = (
    # a piece of the reading, how its output begins in a text
    ("nvidia-smi -L", r"GPU \d+: .+\(UUID|\|\s+\d+\s+(?:NVIDIA|Tesla|GeForce|Quadro)"),
    ("lspci", r"\b[0-9a-f]{2}:[0-9a-f]{2}\.[0-9] (?:VGA|3D|Display)"),
    (alike.TORCHS_CUDA, r"\b\d\.\d+\.\d+\+(?:cu\d+|cpu|rocm)"),
    (alike.TORCHS_KERNELS, r"get_arch_list\(\)\S*\s+\[|\['sm_"),
    (alike.COLLECT_ENV, r"Is CUDA available:"),
    ("ls -l /dev/nvidia", r"(?m)^c[rw-]{9}.*?/dev/nvidia"),
    ("NCCL_DEBUG", r"NCCL INFO"),
    ("nvrm", r"NVRM: "),
    ("rocminfo", r"gcnArchName|Marketing Name"),
    ("torch.backends.mps", r"mps.is_available\(\)\S*\s*(?:True|False)"),
    ("PYTHONFAULTHANDLER", r"Fatal Python error|Current thread 0x"),
    ("py-spy", r"Thread 0x\w+ \((?:active|idle)|Thread \d+ \((?:active|idle)"),
    ("nvidia-smi topo", r"GPU0\s+GPU1"),
    ("while the program runs", r"(?m)^\|.* C +\S*python"),
)


def asked_again(text: str) -> str:
    """The output that an answer asks for and its text shows; "" if there is none."""
    reading = read_report(text).next_reading or ""
    for part, output in OUTPUTS:
        shown = re.search(output, text) if part in reading else None
        if shown:
            return f"{reading}: {shown[0]}"
    return ""


COMPLAINT = "It still does not work on my GPU and I do not know why.\n"
FORMS = (
    "torch 2.5.1+cu124, RTX 3060, driver 560.94, torch.cuda.is_available() is True",
    "collect_env:\nPyTorch version: 2.5.1+cu124\nIs CUDA available: True\n"
    "Nvidia driver version: 550.90.07\nGPU models and configuration: GPU 0: NVIDIA RTX A6000",
    ">>> print(torch.__version__, torch.version.cuda)\n2.6.0+cu126 12.6\nRTX 4070, Windows 11",
    "[pip3] torch==2.4.0+cu121\nGPU 0: NVIDIA L4 (UUID: GPU-1234)",
    'Thread 12 (active): "MainThread"\n    forward (model.py:12)\nIt hangs. RTX 3090',
    "Fatal Python error: Segmentation fault\nCurrent thread 0x00007f (most recent call first):\n"
    '  File "a.py", line 3\nUsing device: cuda, RTX 3080',
    "node:1:1 [0] NCCL INFO Bootstrap : Using eth0\nIt hangs with two GPUs, 2x RTX 4090",
    "node:1:1 [0] NCCL INFO comm 0x1 rank 0\n        GPU0    GPU1\nGPU0     X      SYS\n"
    "Training hangs with both GPUs, 2x A6000",
    "Name: gfx1030\nMarketing Name: AMD Radeon RX 6800\ntorch 2.6.0+rocm6.2.4 crashes",
    "macOS 15, M2\ntorch.backends.mps.is_available() True\nThe output is garbage",
)


@each("text", FORMS)
def test_what_a_text_shows_is_not_asked_for_again(text: str) -> None:
    assert not asked_again(f"{COMPLAINT}{text}")


def texts_of_reports() -> Iterator[tuple[str, str]]:
    for folder in filter(None, os.environ.get("GPUSETUP_REPORTS", "").split(os.pathsep)):
        for file in sorted(Path(folder).glob("*.json")):
            entry = json.loads(file.read_text(encoding="utf-8"))
            for name, labelled in ((file.name, entry), ("neighbour", entry.get("neighbour", {}))):
                text = labelled.get("report") or labelled.get("text")
                if text:
                    yield f"{file.name}, {name}", text


@pytest.mark.skipif("GPUSETUP_REPORTS" not in os.environ, reason="no folder of reports is named")
def test_no_labelled_report_is_asked_for_what_it_shows() -> None:
    asked = {name: asked_again(text) for name, text in texts_of_reports()}
    assert len(asked) > 0
    assert not {name: reading for name, reading in asked.items() if reading}


FOLLOW_UPS = (
    # one text, and the same with the output that was asked for: the next question is another
    ("My script hangs at the first batch. RTX 3060", 'Thread 12 (active): "MainThread"'),
    (
        "Training on one 3090 works fine. With two it hangs.",
        "n:1:1 [0] NCCL INFO Bootstrap : Using eth0",
    ),
    (
        "It prints Using device: cuda, and the GPU usage stays at 0 %",
        "|    0   N/A  N/A  123  C  python  4000MiB |",
    ),
)
