"""The GPUs and packages of `torch.utils.collect_env`; its other lines are rows of `sayings`.

Facts: torch/utils/collect_env.py of torch 0.4 to 2.13, and vLLM's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.causes.gpu_models import NO_NVIDIA_GPU
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Fact, Gpus
from gpusetup.report.text import Text

SHOWN = lazy(
    r"GPU models and configuration(?: \(e\.g\.[^)]{0,40}\))?\s?: ?(.{0,4000}?)"
    r"(?= ?[-*]* ?(?:Nvidia driver version|(?:cuDNN|PyTorch|Python|CUDA runtime|Libc|GCC) version|HIP runtime|Is (?:XNNPACK|CUDA|debug)"
    r"|Versions of|Any other|Additional context|(?:CPU|OS):|={8,}|```)|$)",
    re.I,
)
GPU_ENTRY = lazy(r"GPU (\d{1,3}): (.+?)(?= ?\(UUID| MIG \d| GPU \d{1,3}:|$)")
FOREIGN = lazy(r"\b(AMD|Radeon|gfx\d{3,4}|Intel|Arc|Apple M\d)", re.I)
NAMED = lazy(r"(?:nvidia|geforce|quadro|tesla|titan|[rg]tx|nvgpu|\b[ahlbv]\d{2,3}\b)", re.I)
BUILT = lazy(r"CUDA used to build PyTorch: (\S{1,12})")


def collect_env(text: Text) -> Iterator[Fact]:
    """The GPUs of every collect_env in the text, or what the lack of them shows."""
    for found in SHOWN.finditer(text.flat) if "gpu models and" in text.low else ():
        source, value = text.source(found.start()), found[1].strip(" *-")
        if value.startswith("No CUDA"):
            # Beside a CUDA build: nvidia-smi and nvcc gave nothing, torch has no device.
            built = BUILT.search(text.flat)
            kind = "smi-not-found" if built and built[1][0].isdigit() else NO_NVIDIA_GPU.id
            line = f"{built[0] if built else ''}, GPU models and configuration: No CUDA"
            yield Event(kind=kind, source=source, text=line)
        ours = [Gpu(name=name, nvml_index=n) for n, name in gpu_names(value)]
        if ours:
            yield Gpus(gpus=tuple(ours), source=source)
        if foreign := FOREIGN.search(value[:200]):
            vendor = "intel" if foreign[1].lower() in ("intel", "arc") else "amd"
            yield foreign_gpu(vendor, value[:80], source)


def gpu_names(value: str) -> list[tuple[int, str]]:
    """The GPUs of one entry: numbered, or names alone, as very old versions print.

    >>> gpu_names("GPU 0: NVIDIA A10 GPU 1: Tesla T4")
    [(0, 'NVIDIA A10'), (1, 'Tesla T4')]
    """
    names = [(int(n), name.strip()) for n, name in GPU_ENTRY.findall(value)]
    if not names:
        parts = (part.strip() for part in re.split(r"[,;]| and ", value[:120]))
        names = [(place, name) for place, name in enumerate(parts) if NAMED.search(name)]
    return [(n, name) for n, name in names if not FOREIGN.search(name)]


def foreign_gpu(vendor: str, name: str, source: str) -> Event:
    values = {"vendor": vendor, "name": name}
    return Event(kind="foreign-gpu", values=values, source=source, text=name)
