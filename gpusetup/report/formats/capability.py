"""torch's own words about a GPU that it has no kernels for, in the forms since 1.0.

Sources: `old_gpu_warn`, `incorrect_binary_warn`, `incompatible_device_warn` and
`_warn_unsupported_code` of torch/cuda/__init__.py, torch 0.3 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, Claim, Fact, Gpus
from gpusetup.report.messages import event
from gpusetup.report.text import Text

WORD = lazy(r"[\w()/+.-]{1,24}")
WORDS = 8
"""A name has no more of them."""
INCOMPATIBLE = lazy(
    r" with CUDA capability (?P<sm>sm_\d{2,3}a?) is not compatible(?: with the current PyTorch|$|[^\w ])"
    r"(?:.{0,90}?supports CUDA capabilities(?P<kernels>(?: (?:sm|compute)_\d{2,3}[af]?){1,20}))?"
)
LIST_ALONE = lazy(
    r"PyTorch install supports CUDA capabilities(?P<kernels>(?: (?:sm|compute)_\d{2,3}[af]?){1,20})"
)
TOO_OLD = lazy(
    r"Found GPU ?(?P<index>\d{1,3}|%d) (?P<name>%s|[\w .()/+-]{2,56}?) which is of (?:cuda|compute) capability (?:\(CC\) )?(?P<cc>\d{1,2}\.\d|%d\.%d)\.?"
    r"(?=(?P<rest>.{0,800}))"
)
WRONG_BINARY = lazy(
    r"Found GPU ?(?P<index>\d{1,3}) (?P<name>[\w .()/+-]{2,56}?) which requires CUDA_VERSION >= \d{4,5} .{0,120}?compiled with CUDA_VERSION (?P<built>\d{4,5})"
)
LEAST = lazy(r"minimum cuda capability supported by this library is (\d{1,2}\.\d)")
RANGE = lazy(r"supported by this version of PyTorch is \(?(\d{1,2}\.\d)\)? - \(?(\d{1,2}\.\d)\)?")  # fmt: skip
LISTED = lazy(r"- (\d{1,2}\.\d) which supports hardware CC >=")


def capabilities(text: Text) -> Iterator[Fact]:
    """Warnings about the compute capability, as events and as GPUs."""
    found: list[Gpu] = []
    source = None
    for reader in (incompatible, too_old, wrong_binary, list_alone):
        for fact in reader(text):
            if isinstance(fact, Gpu):
                found.append(fact)
            else:
                source = source or getattr(fact, "source", None)
                yield fact
    if found:
        yield Gpus(gpus=_each_once(found), source=source or "torch's warning", trust=HINT)


def _each_once(found: list[Gpu]) -> tuple[Gpu, ...]:
    """Numbered GPUs by their number; others by their name, where no number has it."""
    numbered = {gpu.name for gpu in found if gpu.cuda_index is not None}
    kept = (gpu for gpu in found if gpu.cuda_index is not None or gpu.name not in numbered)
    return tuple({(gpu.cuda_index, gpu.name): gpu for gpu in kept}.values())


def incompatible(text: Text) -> Iterator[Fact | Gpu]:
    """`NAME with CUDA capability sm_120 is not compatible with the current PyTorch`."""
    for start, window in text.near("is not compatible"):
        for found in INCOMPATIBLE.finditer(window):
            capability = Capability.parse(found["sm"])
            kernels = (found["kernels"] or "").split()
            said = _name_before(window[: found.start()])
            name = _trimmed(said)
            first, last = start + found.start() - len(said), start + found.end()
            yield Gpu(name=name, compute_capability=capability)
            yield _not_in_wheel(text, first, last, name, capability, kernels)
            yield from _kernels(text, first, kernels)


def list_alone(text: Text) -> Iterator[Fact]:
    """The warning's second line, where somebody quotes it without the first."""
    if "is not compatible" in text.low:
        return
    for start, window in text.near("supports cuda capabilities"):
        for found in LIST_ALONE.finditer(window):
            yield from _kernels(text, start + found.start(), found["kernels"].split())


def _kernels(text: Text, place: int, kernels: list[str]) -> Iterator[Fact]:
    if kernels:
        value = " ".join(kernels)
        yield Claim(subject="torch.kernels", value=value, source=text.source(place), trust=SURE)


def _name_before(said: str) -> str:
    """The words at the end of a text that may be a name.

    >>> _name_before("warn: GeForce GTX 960M")
    'GeForce GTX 960M'
    """
    words = said.rsplit(" ", WORDS)[-WORDS:]
    strange = [place for place, word in enumerate(words) if not WORD.fullmatch(word)]
    return " ".join(words[strange[-1] + 1 :] if strange else words)


def _trimmed(name: str) -> str:
    """Without what stood before it on the line."""
    brand = re.search(r"(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID).*", name)
    return (brand.group() if brand else name.split(" ")[-1]).strip()


def side(capability: Capability, kernels: list[str]) -> str:
    """Whether a GPU is older or newer than what a build has kernels for.

    >>> side(Capability(7, 0), ["sm_75", "sm_90"]), side(Capability(12, 0), ["sm_90"])
    ('old', 'new')
    """
    known = [Capability.parse(kernel) for kernel in kernels]
    if not known:
        return "new" if capability > Capability(7, 5) else "old"
    return "old" if capability < max(known) else "new"


def _not_in_wheel(
    text: Text, first: int, last: int, name: str, capability: Capability, kernels: list[str]
) -> Fact:
    values = {"gpu": name, "capability": str(capability), "side": side(capability, kernels)}
    if kernels:
        values["kernels"] = " ".join(kernels)
    return event(text, "gpu-not-in-wheel", first, last, values)


def wrong_binary(text: Text) -> Iterator[Fact | Gpu]:
    """`Found GPU0 NAME which requires CUDA_VERSION >= 10000`, torch 0.3 to 1.5."""
    for start, window in text.near("which requires cuda_version"):
        for found in WRONG_BINARY.finditer(window):
            name = found["name"].strip()
            yield Gpu(name=name, cuda_index=int(found["index"]))
            values = {"gpu": name, "side": "new"}
            yield event(
                text, "gpu-not-in-wheel", start + found.start(), start + found.end(), values
            )


def too_old(text: Text) -> Iterator[Fact | Gpu]:
    """`Found GPU0 NAME which is of cuda capability 3.5.` and what is said after it."""
    for needle in ("which is of cuda capability", "which is of compute capability"):
        for start, window in text.near(needle):
            for found in TOO_OLD.finditer(window):
                yield from _found_gpu(text, start, found)


def _found_gpu(text: Text, start: int, found: re.Match[str]) -> Iterator[Fact | Gpu]:
    first, last = start + found.start(), start + found.start("rest")
    if "%" in found["cc"]:
        values = {"side": "old"}
        yield event(text, "gpu-not-in-wheel", first, last, values)
        return
    name, capability = found["name"].strip(), Capability.parse(found["cc"])
    yield Gpu(name=name, cuda_index=int(found["index"]), compute_capability=capability)
    rest = found["rest"].split("Found GPU")[0]
    kernels = [f"sm_{one.replace('.', '')}" for one in LISTED.findall(rest)]
    limits = RANGE.search(rest)
    if limits and _runs_in(capability, *map(Capability.parse, limits.groups())):
        values = {"gpu": name, "capability": str(capability)}
        yield event(text, "capability-warning", first, last, values)
        return
    if limits:
        kernels = [Capability.parse(one).sm for one in limits.groups()]
    elif least := LEAST.search(rest):
        kernels = [Capability.parse(least.group(1)).sm]
    if kernels or "too old" in rest or _named_none(rest, capability):
        yield _not_in_wheel(text, first, last, name, capability, kernels)
    if LISTED.search(rest):
        yield from _kernels(text, first, kernels)


def _named_none(rest: str, capability: Capability) -> bool:
    """Said without a list: a GPU of a later minor may run the kernels of its major."""
    lone = capability.major < 8 or str(capability).endswith(".0")
    return lone and "does not include kernels" in rest


def _runs_in(capability: Capability, least: Capability, most: Capability) -> bool:
    """A later minor of the newest major runs its kernels.

    >>> _runs_in(Capability(12, 1), Capability(8, 0), Capability(12, 0))
    True
    """
    return capability >= least and capability.major <= most.major
