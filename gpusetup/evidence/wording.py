"""Decides whether words are a program's output or a person's own sentence."""

from __future__ import annotations

import re

PRINTED = re.compile(
    # Errors and warnings: `RuntimeError`, `error 35`, `fatal:`, `WARNING`.
    r"\b[A-Z]\w*(?:Error|Exception|Warning|Failed)\b|(?i:\berror:? ?\d)"
    r"|(?i:\b(?:error|fatal|warning)\b[\]:])|\bNo module named\b|\b(?:WARNING|ERROR|CRITICAL)\b"
    # Files and codes: `libcudart.so`, `sm_86`, `0x1f`.
    r"|\.(?:so|dll|dylib|pyd?|whl|cuh?|hpp|exe)\b|\b(?:sm|compute|gfx)_?\d{2,4}\b|0x[0-9A-Fa-f]{2}"
    # Error messages of a shell.
    r"|command not found|No such file|is not recognized as|^(?:ba|z)?sh: "
    # A source file with a line number, and NCCL's prefix: `misc/ibvwrap.cc:278 NCCL WARN`.
    r"|\w\.(?:c|cc|cpp|h|py):\d|\bNCCL (?:WARN|INFO)\b"
    # Words of the driver, and constants of CUDA.
    r"|\bNVRM\b|\bXid\b|NVIDIA-SMI|\bNVML\b|\b(?:CUDA|CUDNN|CUBLAS|NCCL|HIP)_[A-Z]"
    # Calls and sizes: `cudaMalloc`, `torch.cuda`, `main()`, `2.5 GiB`.
    r"|\bcuda[A-Z]\w+|\bcu[A-Z]\w+|torch\.\w+|\w+\(\)|\d+(?:\.\d+)? ?[KMG]i?B\b"
    # Versions such as `2.5.1+cu124` and `==2.5`, Python's prompt, paths, tables, shell prompts,
    # settings.
    r"|\d\+(?:cpu|cu\d|rocm|xpu)|==\d|>>> |[\w.]+/[\w.]+/|[A-Z]:\\|^\s*[\[{|+$#]|\w+=\S"
    # A line of Google's logging library, glog: `E0312 10:11`.
    r"|^[EWIF]\d{4} \d\d:\d\d"
    # A line that is a label and a version: `Nvidia driver version: 470.256.02`.
    r"|^\s*\w[\w ]{2,40} version: v?\d[\w.+-]*\s*$"
    # A container engine's own answer: `docker: Error response from daemon: could not …`.
    r"|^(?:docker|podman|nerdctl): |\bError response from daemon\b"
)
"""Matches parts that occur in programs' output and rarely in sentences: names of errors and their
numbers, files, addresses, sizes, calls, versions with a build."""


def is_program_output(words: str) -> bool:
    """Whether words look like a program's output, which a person may quote in a sentence.

    >>> is_program_output("RuntimeError: CUDA error: out of memory")
    True
    >>> is_program_output("Nvidia driver version: 470.256.02")
    True
    >>> is_program_output("my card falls off the bus whenever I train")
    False
    """
    return PRINTED.search(words) is not None
