"""The GPUs that programs on top of torch name when they start, and lines that are only a name."""

from __future__ import annotations

import re
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
ALONE = lazy(
    r"^(?:GPU ?\d{0,2}:? ?|[-*] ?|Graphics card: ?)?((?:NVIDIA )?(?:GeForce |Quadro |Tesla |TITAN |RTX |GTX |GRID |[AHLBV]\d{2,3}\b)[\w .-]{0,44}?)(?: (?:with|@) .{1,20})?$",
    re.I,
)
MEMORY = lazy(
    r"[ ,]{1,2}\d{1,3} ?Gi?B? (?:v?ram|memory)\b"
    r"|(?:(?<=[345]090)|(?<=50[578]0)|(?<=40[789]0))[ ,]{1,2}\d{1,3} ?Gi?B?$",
    re.I,
)
"""What people add to the name: `24G memory`, `5090 32GB` of a board that is no other by it."""
SERIES = lazy(r"(?:\w+ ){0,2}[RG]TX ?\d0(?: |xx|$)")
READ, MOST = 200_000, 16


def program_gpus(text: Text) -> Iterator[Fact]:
    found = {
        int(number): Gpu(
            name=without_remarks(MEMORY.split(one["name"])[0].strip(" .")),
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
    if names := dict.fromkeys(named_lines(text)):
        alone = tuple(Gpu(name=name) for name in names)
        yield Gpus(gpus=alone[:MOST], source="report", trust=GUESS)


def named_lines(text: Text) -> Iterator[str]:
    """Lines that are nothing but a GPU's name: `print(torch.cuda.get_device_name(0))`."""
    for line in text.lines:
        found = ALONE.match(line.strip(" '\"")) if 5 < len(line) < 60 else None
        name = found[1].rstrip() if found else ""
        if re.search(r"\d", name) and not SERIES.match(name) and not name.endswith("."):
            yield without_remarks(MEMORY.split(name)[0].strip())


FOLLOWS = (
    "ada blackwell design edition generation gpu laptop max maxq mobile nvl pascal pcie q server super"
    " sxm ti turing volta with workstation x xp"
)
OF_A_NAME = frozenset(FOLLOWS.split())
"""Words of GPUs' names that follow a number."""


def without_remarks(name: str) -> str:
    """A GPU's name without the words that somebody wrote after it.

    >>> without_remarks("Tesla V100 gpu error issue"), without_remarks("RTX 4090 Laptop GPU")
    ('Tesla V100 gpu', 'RTX 4090 Laptop GPU')
    """
    words = name.split(" ")
    number = next((n for n, word in enumerate(words) if re.search(r"\d", word)), len(words))
    for at, word in enumerate(words):
        bare = word.lower().replace("-", "")
        short = word.isupper() and len(word) < 3
        if at > number and bare.isalpha() and bare not in OF_A_NAME and not short:
            return " ".join(words[:at])
    return name
