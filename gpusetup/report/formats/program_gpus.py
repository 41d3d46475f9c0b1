"""The GPUs that programs on top of torch name when they start."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, Fact, Gpus
from gpusetup.report.text import Text

NAME = r"(?P<name>(?:NVIDIA |Nvidia |nvidia )?(?:GeForce|Quadro|Tesla|TITAN|Titan|RTX|GTX|GRID|[AHLBVT]\d{1,3}0?0?|GH200|GB\d{2,3})[\w .-]{0,40}?)"  # fmt: skip
STARTED = lazy(
    rf"(?:(?:'GPU |CUDA:|Device:? cuda:|device[ =]{{1,3}}'?cuda:|Using GPU |Name:\W{{1,6}}cuda:|- gpu|\bGPU )(?P<numbers>\d(?:,\d{{1,2}}){{0,15}})(?:': '| \(|'?.{{0,20}}name='| : \d{{3,6}}MB \| |:? )"
    r"|get_device_name\((?:0|device)?\)\)?\W{1,10}?|Torch detected GPU: |CudaDeviceProperties\(name='|gpu\.name: |(?<!\S)(?=[^.]{4,60}\. Num GPUs = )"
    rf"|GPU(?: (?:name|type|model))?(?: is)?: (?:NVIDIA )?){NAME}(?: \(arch=(?P<capability>\d\.\d)\)|(?=[,'\"();]|\. | VRAM\b| VAE\b| :| >>>| ===| - gpu| [-*] | [a-z_]+[.:]|$))"
)
"""ultralytics, ComfyUI, mmcv, detectron2, Unsloth, SD.Next, fastai, xformers, torch's own repr."""
SIZED = lazy(
    r"(?:GPU (\d{1,3})[;)].{0,10}? |total capaci?ty of )(\d{1,5}(?:\.\d{1,3})?) GiB(?: total capacity| of which)"
)
"""torch's message about memory: the GPU is known by its size alone."""
READ, MOST = 200_000, 16


def program_gpus(text: Text) -> Iterator[Fact]:
    found = {
        int(number): Gpu(
            name=one["name"].strip(" ."),
            cuda_index=int(number),
            compute_capability=Capability.parse(one["capability"]) if one["capability"] else None,
        )
        for one in reversed(list(STARTED.finditer(text.flat, 0, READ)))
        for number in (one["numbers"] or "0").split(",")
    }
    if found:
        gpus = tuple(gpu for _, gpu in sorted(found.items()))[:MOST]
        yield Gpus(gpus=gpus, source="report", trust=HINT)
    if sized := SIZED.search(text.flat) if "total capac" in text.low else None:
        size = int(float(sized[2]) * (1 << 30))
        gpu = Gpu(name="unknown", cuda_index=int(sized[1] or 0), memory_total_bytes=size)
        yield Gpus(gpus=(gpu,), source=text.source(sized.start()), trust=GUESS)
