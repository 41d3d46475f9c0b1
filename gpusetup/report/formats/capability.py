"""torch's own words about a GPU that it has no kernels for, in the forms since 1.0.

Sources: `old_gpu_warn`, `incompatible_device_warn` and `_warn_unsupported_code` of
torch/cuda/__init__.py, torch 0.3 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, Claim, Fact, Facts, Gpus
from gpusetup.report.messages import event
from gpusetup.report.text import Text

KERNELS = r"supports CUDA capabilities(?P<kernels>(?: (?:sm|compute)_\d{2,3}[af]?){1,20})"
INCOMPATIBLE = lazy(
    r"(?P<said>(?:[\w()/+.-]{1,24} ){1,8})with CUDA capability (?P<sm>sm_\d{2,3}a?) is not compatible(?: with the current PyTorch|$|[^\w ])"
    rf"(?:.{{0,90}}?{KERNELS})?"
)
LIST_ALONE = lazy(rf"PyTorch install {KERNELS}")
"""The warning's second line, where somebody quotes it without the first."""
TOO_OLD = lazy(
    r"Found GPU ?(?P<index>\d{1,3}|%d) (?P<name>%s|[\w .()/+-]{2,56}?) which is of (?:cuda|compute) capability (?:\(CC\) )?(?P<cc>\d{1,2}\.\d|%d\.%d)\.?"
    r"(?=(?P<rest>.{0,800}))"
)
LEAST = r"minimum cuda capability supported by this library is (\d{1,2}\.\d)"
RANGE = r"supported by this version of PyTorch is \(?(\d{1,2}\.\d)\)? - \(?(\d{1,2}\.\d)\)?"
LISTED = r"- (\d{1,2}\.\d) which supports hardware CC >="
BRAND = r"(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID).*"


def capabilities(text: Text) -> Facts:
    """Warnings about the compute capability, as events and as GPUs."""
    found: dict[tuple[int | None, str], Gpu] = {}
    for fact in (*incompatible(text), *too_old(text)):
        if isinstance(fact, Gpu):
            found[fact.cuda_index, fact.name] = fact
        else:
            yield fact
    numbered = {name for index, name in found if index is not None}
    kept = (
        gpu for (index, name), gpu in found.items() if index is not None or name not in numbered
    )
    if gpus := tuple(kept):
        yield Gpus(gpus=gpus, source="torch's warning", trust=HINT)


def incompatible(text: Text) -> Iterator[Fact | Gpu]:
    """`NAME with CUDA capability sm_120 is not compatible with the current PyTorch`."""
    whole = "is not compatible" in text.low
    needle = "is not compatible" if whole else "supports cuda capabilities"
    for start, window in text.near(needle):
        for found in (INCOMPATIBLE if whole else LIST_ALONE).finditer(window):
            kernels, place = (found["kernels"] or "").split(), start + found.start()
            if whole:
                said = found["said"].strip()
                brand = re.search(BRAND, said)
                name = brand[0] if brand else said.rpartition(" ")[2]
                gpu = Gpu(name=name, compute_capability=Capability.parse(found["sm"]))
                yield gpu
                yield not_in_wheel(text, place, start + found.end(), gpu, kernels)
            yield from kernels_of(text, place, kernels)


def kernels_of(text: Text, place: int, kernels: list[str]) -> Facts:
    if kernels:
        value = " ".join(kernels)
        yield Claim(subject="torch.kernels", value=value, source=text.source(place), trust=SURE)


def not_in_wheel(text: Text, first: int, last: int, gpu: Gpu, kernels: list[str]) -> Fact:
    """Whether the GPU is older or newer than what the build has kernels for."""
    known = [*map(Capability.parse, kernels)] or [Capability(7, 5)]
    capability = gpu.compute_capability or known[0]
    old = capability < max(known) if kernels else capability <= known[0]
    values = {"gpu": gpu.name, "capability": str(capability), "side": "old" if old else "new"}
    values |= {"kernels": " ".join(kernels)} if kernels else {}
    return event(text, "gpu-not-in-wheel", first, last, values)


def too_old(text: Text) -> Iterator[Fact | Gpu]:
    """`Found GPU0 NAME which is of cuda capability 3.5.` and what is said after it."""
    for needle in ("which is of cuda capability", "which is of compute capability"):
        for start, window in text.near(needle):
            for found in TOO_OLD.finditer(window):
                first, last = start + found.start(), start + found.start("rest")
                yield from found_gpu(text, found, first, last)


def found_gpu(text: Text, found: re.Match[str], first: int, last: int) -> Iterator[Fact | Gpu]:
    if "%" in found["cc"]:
        yield event(text, "gpu-not-in-wheel", first, last, {"side": "old"})
        return
    name, capability = found["name"].strip(), Capability.parse(found["cc"])
    gpu = Gpu(name=name, cuda_index=int(found["index"]), compute_capability=capability)
    yield gpu
    rest = found["rest"].split("Found GPU")[0]
    listed = [f"sm_{one.replace('.', '')}" for one in re.findall(LISTED, rest)]
    limits = re.search(RANGE, rest) or re.search(LEAST, rest)
    range_of = [Capability.parse(one) for one in limits.groups()] if limits else []
    if len(range_of) == 2 and range_of[0] <= capability and capability.major <= range_of[1].major:
        # A later minor of the newest major runs its kernels.
        values = {"gpu": name, "capability": str(capability)}
        yield event(text, "capability-warning", first, last, values)
        return
    kernels = [one.sm for one in range_of] or listed
    lone = capability.major < 8 or str(capability).endswith(".0")
    if kernels or "too old" in rest or (lone and "does not include kernels" in rest):
        yield not_in_wheel(text, first, last, gpu, kernels)
    yield from kernels_of(text, first, listed)
