"""No question asks for what its text shows."""

from __future__ import annotations

import re

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
    "Fatal Python error: Segmentation fault\nCurrent thread 0x00007f (most recent call first):\n"
    '  File "a.py", line 3\nUsing device: cuda, RTX 3080',
    "node:1:1 [0] NCCL INFO comm 0x1 rank 0\n        GPU0    GPU1\nGPU0     X      SYS\n"
    "Training hangs with both GPUs, 2x A6000",
    "Name: gfx1030\nMarketing Name: AMD Radeon RX 6800\ntorch 2.6.0+rocm6.2.4 crashes",
    "macOS 15, M2\ntorch.backends.mps.is_available() True\nThe output is garbage",
)


@each("text", FORMS)
def test_what_a_text_shows_is_not_asked_for_again(text: str) -> None:
    assert not asked_again(f"{COMPLAINT}{text}")
