"""conda's `conda-meta/pinned`: what conda itself installed of torch's family."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

NAMES = ("pytorch", "torch", "libtorch", "torchvision", "torchaudio", "pytorch-cuda", "pytorch-gpu")
"""What conda's channels call torch, its parts and its companions."""
BEGIN, END = "# gpusetup guard: from here", "# gpusetup guard: to here"
RECORD_NAME = re.compile(r"(?P<name>[a-z0-9_.-]+)-(?P<version>[\w.!+]+)-(?P<build>[\w.!+]+)\.json")


def pinned_specs(folder: Path) -> tuple[str, ...]:
    """What conda's records say of torch's family: `pytorch ==2.5.1 py3.11_cuda12.4_cudnn9_0`.

    The build is named too: of one version there is one for the CPU and one for each CUDA.
    """
    try:
        names = sorted(path.name for path in folder.glob("*.json"))
    except OSError:
        return ()
    found = (RECORD_NAME.fullmatch(name) for name in names)
    return tuple(
        f"{one['name']} =={one['version']} {one['build']}"
        for one in found
        if one is not None and one["name"] in NAMES
    )


def with_pins(before: bytes, specs: Iterable[str]) -> bytes:
    """The file with our lines between two marks; every other byte stays.

    >>> with_pins(b"numpy <2", ["pytorch ==2.5.1 a"]).decode().splitlines()[0]
    'numpy <2'
    """
    lines = tuple(specs)
    kept = re.sub(rb"(?ms)^" + re.escape(BEGIN.encode()) + rb".*?^" + MARKED_END, b"", before)
    if not lines:
        return kept
    gap = b"" if not kept or kept.endswith(b"\n") else b"\n"
    return kept + gap + "\n".join((BEGIN, *lines, END, "")).encode()


MARKED_END = re.escape(END.encode()) + rb"(\r?\n|\Z)"
