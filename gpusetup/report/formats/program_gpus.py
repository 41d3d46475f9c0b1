"""The GPUs that torch, its messages and its tables name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, USUAL, Fact, Gpus
from gpusetup.report.text import Text


def program_gpus(text: Text) -> Iterator[Fact]:
    for reader in (detectron, properties, devices):
        yield from reader(text)


TABLE = lazy(r"\bGPU (\d{1,3}(?:,\d{1,3}){0,15}):?  {0,30}([A-Z][\w .()/-]{3,60}?)(?: \(arch=(\d\.\d)\))?(?= {2}|$|\s*\n)")  # fmt: skip


def detectron(text: Text) -> Iterator[Fact]:
    """`GPU 0,1  GeForce GTX TITAN X (arch=5.2)` of detectron2 and mmcv."""
    if "gpu 0" not in text.low:
        return
    for number, line in enumerate(text.lines):
        line = line.rpartition(" - INFO - ")[2] if " - INFO - " in line[:120] else line
        found = TABLE.match(line.strip()) if "GPU 0" in line and "UUID" not in line else None
        if found and ("," in found.group(1) or "arch=" in line):
            capability = Capability.parse(found.group(3)) if found.group(3) else None
            gpus = tuple(
                Gpu(name=found.group(2).strip(), cuda_index=int(n), compute_capability=capability)
                for n in found.group(1).split(",")
            )
            yield Gpus(gpus=gpus, source=f"report, line {number + 1}", trust=HINT)
            return


NAME = r"((?:NVIDIA |Nvidia |nvidia )?(?:GeForce|Quadro|Tesla|TITAN|Titan|RTX|GTX|GRID|[AHLBVT]\d{1,3}0?0?|GH200|GB\d{2,3})[\w .-]{0,40}?)"  # fmt: skip
STARTED = (
    lazy(rf"'GPU (\d)(?:,\d{{1,2}}){{0,15}}': '{NAME}'()"),
    lazy(rf"CUDA:(\d) \({NAME}, (\d{{3,6}})(?:\.\d+)?(?:MiB|MB)\)"),
    lazy(rf"Device:? cuda:(\d) {NAME}(?= :|$| VAE)()"),
    lazy(rf"Using GPU (\d) \({NAME}\) of compute capability (\d\.\d) with"),
    lazy(rf"device[ =]{{1,3}}?'?cuda:(\d)'?.{{0,20}}name='{NAME}'()"),
    lazy(rf"get_device_name\((?:0|device)?\)\)?\W{{1,10}}?(){NAME}(?=['\"\n]|$| >>>)()"),
    lazy(rf"Name:\W{{1,6}}cuda:(\d) {NAME}(?= :)()"),
    lazy(rf"Torch detected GPU: (){NAME} VRAM (\d{{3,6}})\b"),
    lazy(rf"(?<!\S)(){NAME}\. Num GPUs = ()"),
    lazy(rf"- gpu(\d) : \d{{3,6}}MB \| {NAME}(?= ===| - gpu|$)()"),
    lazy(rf"GPU(?: (?:name|type|model))?(?: is)?: ()(?:NVIDIA )?{NAME}(?=$| \(| ,|;| [-*] )()"),
)


PROPERTIES = lazy(r"CudaDeviceProperties\(name='([^']{3,60})', major=(\d{1,2}), minor=(\d), total_memory=(\d{3,7})MB")  # fmt: skip


def properties(text: Text) -> Iterator[Fact]:
    """`_CudaDeviceProperties(name='Tesla T4', major=7, minor=5, total_memory=15109MB, ...)`."""
    found = dict.fromkeys(PROPERTIES.findall(text.flat[:200000]))
    if found:
        gpus = tuple(
            Gpu(
                name=name,
                compute_capability=Capability(int(major), int(minor)),
                memory_total_bytes=int(memory) << 20,
            )
            for name, major, minor, memory in found
        )
        yield Gpus(gpus=gpus[:16], source="torch.cuda.get_device_properties", trust=USUAL)


def devices(text: Text) -> Iterator[Fact]:
    """The GPU of an OOM message, known by its size alone."""
    found = re.search(
        r"(?:GPU (\d{1,3})[;)].{0,10}? |total capaci?ty of )(\d{1,5}(?:\.\d{1,3})?) GiB(?: total capacity| of which)",
        text.flat,
    ) if "total capac" in text.low else None  # fmt: skip
    if found:
        size = int(float(found.group(2)) * (1 << 30))
        index = int(found.group(1) or 0)
        gpu = Gpu(name="unknown", cuda_index=index, memory_total_bytes=size)
        yield Gpus(gpus=(gpu,), source=text.source(found.start()), trust=GUESS)
