"""The tables that programs beside torch print of it: lightning's, transformers', xformers', the container's.

Facts: `lightning`'s collect_env_details.py since 0.7, `transformers env` since 4.50,
`python -m xformers.info`, `nvidia-container-cli info`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.fragments import DRIVER_VERSION, TORCH_RELEASE
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Fact, Gpus, claims, saying
from gpusetup.report.text import Text

TORCH = rf"({TORCH_RELEASE})"
DRIVER = rf"({DRIVER_VERSION})"
NAME = r"([A-Z][\w .()+-]{2,56}?)"

ROWS = (
    saying("torch.version", "pytorch.version:", rf"\bpytorch\.version: {TORCH}", SURE),
    saying("torch.cuda_available", "pytorch.cuda:", r"\bpytorch\.cuda: available", SURE, value=True),
    saying("torch.cuda_available", "pytorch.cuda:", r"\bpytorch\.cuda: not available", SURE, value=False),
    saying("torch.version", "version (accelerator?)", rf"PyTorch version \(accelerator\?\): {TORCH}", SURE),
    saying("torch.cuda_available", "version (accelerator?)", r"PyTorch version \(accelerator\?\): \S{3,40} \(CUDA\)", SURE, value=True),
    saying("torch.cuda_available", "version (accelerator?)", r"PyTorch version \(accelerator\?\): \S{3,40} \(NA\)", SURE, value=False),
    saying("torch.installed", "torch", r"-packages[/\\]{1,2}torch[/\\]{1,2}__init__\.py\b|\btorch/lib/lib\w{2,30}\.so: undefined symbol", SURE, value=True),
    saying("os.machine", "platform: linux-", r"Platform: Linux-[\w.+-]{3,80}?-(x86_64|aarch64)-with", HINT),
    saying("os.family", "os:", r"\bsystem: (?:- )?OS: Linux\b", USUAL, value="linux"),
    saying("os.family", "os:", r"\bsystem: (?:- )?OS: Windows\b", USUAL, value="windows"),
    saying("os.family", "os:", r"\bsystem: (?:- )?OS: Darwin\b", USUAL, value="macos"),
    saying("driver.version", "nvrm version:", rf"NVRM version: {DRIVER} CUDA version: \d", SURE),
    saying("driver.cuda", "nvrm version:", r"NVRM version: [\d.]{5,12} CUDA version: (\d{1,2}\.\d)", SURE),
)  # fmt: skip
LIBC = lazy(r"Platform: Linux-[\w.+-]{3,120}?-with-glibc(\d\.\d{1,2})\b")


def tables(text: Text) -> Iterator[Fact]:
    yield from claims(text, ROWS)
    yield from libc(text)
    for reader in (lightning, xformers, container):
        yield from reader(text)


def libc(text: Text) -> Iterator[Fact]:
    """The end of `platform.platform()`."""
    found = LIBC.search(text.flat) if "-with-glibc" in text.low else None
    if found:
        source = text.source(found.start())
        yield Claim(subject="os.libc", value=f"glibc {found.group(1)}", source=source, trust=HINT)


# --- GPUs -----------------------------------------------------------------------------------------

LISTED = lazy(r"\bcuda: (?:[-*] )?GPU: (.{3,900}?) (?:[-*] )?available: (?:True|False)\b", re.I)
BETWEEN = lazy(r" [-*] |(?<!NVIDIA) (?=(?:NVIDIA|GeForce|Quadro|Tesla|TITAN)\b)")
NOBODYS = ("none", "-", "")


def lightning(text: Text) -> Iterator[Fact]:
    """One line a GPU under `CUDA: GPU:`, with dashes or without."""
    found = LISTED.search(text.flat) if "gpu:" in text.low else None
    if not found:
        return
    parts = (part.strip(" -*") for part in BETWEEN.split(found.group(1)))
    names = [part for part in parts if part.lower() not in NOBODYS and len(part) < 60]
    if names:
        gpus = tuple(Gpu(name=name, cuda_index=place) for place, name in enumerate(names[:16]))
        yield Gpus(gpus=gpus, source=text.source(found.start()), trust=USUAL)


XFORMERS = lazy(
    rf"(?:gpu\.compute_capability: (?P<capability>\d{{1,2}}\.\d) )?gpu\.name: (?P<name>{NAME[1:-1]})(?= [a-z]\w*[._]\w| ```|$)"
)


def xformers(text: Text) -> Iterator[Fact]:
    yield from _one_gpu(text, "gpu.name:", XFORMERS)


CONTAINER = lazy(
    rf"Device Minor: \d{{1,2}} Model: (?P<name>{NAME[1:-1]}) Brand: .{{0,200}}?Architecture: (?P<capability>\d{{1,2}}\.\d)"
)


def container(text: Text) -> Iterator[Fact]:
    """`nvidia-container-cli info`."""
    yield from _one_gpu(text, "device minor:", CONTAINER)


def _one_gpu(text: Text, needle: str, pattern: re.Pattern[str]) -> Iterator[Fact]:
    found = [*pattern.finditer(text.flat)][:16] if needle in text.low else []
    if found:
        gpus = tuple(
            Gpu(
                name=one["name"].strip(),
                compute_capability=Capability.parse(one["capability"])
                if one["capability"]
                else None,
            )
            for one in found
        )
        yield Gpus(gpus=gpus, source=text.source(found[0].start()), trust=USUAL)
