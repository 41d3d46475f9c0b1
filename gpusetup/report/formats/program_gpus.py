"""The GPUs that programs on top of torch name when they start, and in tables of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import GUESS, HINT, USUAL, Fact, Gpus
from gpusetup.report.text import Text


def program_gpus(text: Text) -> Iterator[Fact]:
    for reader in (detectron, properties, started, devices, named_lines):
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


STARTED_WORDS = ("'gpu 0", "gpu: ", "num gpus", "detected gpu", "- gpu0", "cuda:", "using gpu", "gpu name", "gpu type", "gpu model", "get_device_name")  # fmt: skip
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


def started(text: Text) -> Iterator[Fact]:
    """The lines with which ultralytics, ComfyUI and others name the GPU."""
    low = text.low
    if not any(word in low for word in STARTED_WORDS):
        return
    found: list[Gpu] = []
    for pattern in STARTED:
        for index, name, size in pattern.findall(text.flat[:200_000]):
            found.append(_started_gpu(index, name, size))
        if found:
            unique = {gpu.cuda_index: gpu for gpu in reversed(found)}
            gpus = tuple(sorted(unique.values(), key=lambda gpu: gpu.cuda_index or 0))
            yield Gpus(gpus=gpus, source="report", trust=HINT)
            return


def _started_gpu(index: str, name: str, size: str) -> Gpu:
    number = int(index or 0)
    name = MEMORY.split(name)[0]
    if "." in size:
        capability = Capability.parse(size)
        return Gpu(name=name.strip(), cuda_index=number, compute_capability=capability)
    memory = int(size) << 20 if size else None
    return Gpu(name=name.strip(), cuda_index=number, memory_total_bytes=memory)


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


def named_lines(text: Text) -> Iterator[Fact]:
    """A line that is nothing but a GPU's name: `print(torch.cuda.get_device_name(0))`."""
    names: list[tuple[str, int]] = []
    for number, line in enumerate(text.lines):
        bare = line.strip(" '\"")
        if 5 < len(line) < 60 and (found := ALONE.match(bare)) and _is_name(found.group(1)):
            names.append((_without_remarks(MEMORY.split(found.group(1))[0].strip()), number))
    if names:
        gpus = tuple(dict.fromkeys(Gpu(name=name) for name, _ in names))
        yield Gpus(gpus=gpus[:8], source=f"report, line {names[0][1] + 1}", trust=GUESS)


FOLLOWS = (
    "ada blackwell design edition generation gpu laptop max maxq mobile nvl pascal pcie q server super"
    " sxm ti turing volta with workstation x xp"
)
OF_A_NAME = frozenset(FOLLOWS.split())
"""Words of GPUs' names that follow a number."""


def _without_remarks(name: str) -> str:
    """A GPU's name without the words that somebody wrote after it.

    >>> _without_remarks("Tesla V100 gpu error issue"), _without_remarks("RTX 4090 Laptop GPU")
    ('Tesla V100 gpu', 'RTX 4090 Laptop GPU')
    """
    words = name.split(" ")
    number = next((n for n, word in enumerate(words) if any(map(str.isdigit, word))), len(words))
    for at in range(number + 1, len(words)):
        word = words[at].lower().strip("-")
        if word.isalpha() and word not in OF_A_NAME and not (words[at].isupper() and len(word) < 3):
            return " ".join(words[:at])
    return name


def _is_name(name: str) -> bool:
    """
    >>> _is_name("RTX 5090"), _is_name("RTX 50 series card"), _is_name("RTX")
    (True, False, False)
    """
    of_a_series = re.match(r"(?:\w+ ){0,2}[RG]TX ?\d0(?: |xx|$)", name)
    return any(map(str.isdigit, name)) and not (of_a_series or name.rstrip().endswith("."))
