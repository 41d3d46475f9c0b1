"""A lack of NVIDIA GPUs in `torch.utils.collect_env`; its other lines are rows of `sayings`.

Facts: torch/utils/collect_env.py of torch 0.4 to 2.13, and vLLM's.
"""

from __future__ import annotations

import re

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Facts

SHOWN = lazy(
    r"GPU models and configuration(?: \(e\.g\.[^)]{0,40}\))?\s?: ?(.{0,4000}?)"
    r"(?= ?[-*]* ?(?:Nvidia driver version|(?:cuDNN|PyTorch|Python|CUDA runtime|Libc|GCC) version|HIP runtime|Is (?:XNNPACK|CUDA|debug)"
    r"|Versions of|Any other|Additional context|(?:CPU|OS):|={8,}|```)|$)",
    re.I,
)
FOREIGN = lazy(r"\b(AMD|Radeon|gfx\d{3,4}|Intel|Arc|Apple M\d)", re.I)
BUILT = lazy(r"CUDA used to build PyTorch: (\S{1,12})")


def collect_env(text: Text) -> Facts:
    """What the lack of NVIDIA GPUs in a collect_env shows."""
    for found in SHOWN.finditer(text.flat) if "gpu models and" in text.low else ():
        source, value = text.source(found.start()), found[1].strip(" *-")
        if value.startswith("No CUDA"):
            # Beside a CUDA build: nvidia-smi and nvcc gave nothing, torch has no device.
            built = BUILT.search(text.flat)
            kind = "smi-not-found" if built and built[1][0].isdigit() else "no-nvidia-gpu"
            line = f"{built[0] if built else ''}, GPU models and configuration: No CUDA"
            yield Event(kind=kind, source=source, text=line)
        if foreign := FOREIGN.search(value[:200]):
            vendor = "intel" if foreign[1].lower() in ("intel", "arc") else "amd"
            yield foreign_gpu(vendor, value[:80], source)


def foreign_gpu(vendor: str, name: str, source: str) -> Event:
    values = {"vendor": vendor, "name": name}
    return Event(kind="foreign-gpu", values=values, source=source, text=name)
