"""torch's own words about a GPU that it has no kernels for, in the forms since 1.0.

Sources: `old_gpu_warn`, `incompatible_device_warn` and `_warn_unsupported_code` of
torch/cuda/__init__.py, torch 0.3 to 2.13.
"""

from __future__ import annotations

import re

from gpusetup.messages.search import Text, event
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, Claim, Facts, Gpus

NEEDLES = ("which is of cuda capability", "which is of compute capability", "is not compatible", "supports cuda capabilities")  # fmt: skip
WARNING = lazy(
    r"(?:Found GPU ?(?P<index>\d{1,3}|%d) (?P<found>%s|[\w .()/+-]{2,56}?) which is of (?:cuda|compute) capability (?:\(CC\) )?(?P<cc>\d{1,2}\.\d|%d\.%d)\.?"
    r"|(?P<said>(?:[\w()/+.-]{1,24} ){1,8})with CUDA capability (?P<sm>sm_\d{2,3}a?) is not compatible(?: with the current PyTorch|$|[^\w ])"
    r"|PyTorch install (?=supports CUDA capabilities))(?=(?P<rest>.{0,800}))"
)
KERNELS = lazy(r"^.{0,90}?supports CUDA capabilities((?: (?:sm|compute)_\d{2,3}[af]?){1,20})")
LISTED = r"- (\d{1,2}\.\d) which supports hardware CC >="
LIMITS = lazy(
    r"minimum cuda capability supported by this library is (\d{1,2}\.\d)"
    r"|supported by this version of PyTorch is \(?(\d{1,2}\.\d)\)? - \(?(\d{1,2}\.\d)\)?"
)
BRAND = r"(?:NVIDIA|GeForce|Quadro|Tesla|TITAN|GRID).*"


def capabilities(text: Text) -> Facts:
    """Warnings about the compute capability, as events and as GPUs."""
    found: dict[tuple[str | None, str], Gpu] = {}
    for start, window in text.near(*NEEDLES):
        for hit in WARNING.finditer(window):
            rest, number = hit["rest"].split("Found GPU")[0], hit["cc"] or hit["sm"]
            place, end = start + hit.start(), start + hit.start("rest")
            named = KERNELS.search(rest)
            listed = (f"sm_{one.replace('.', '')}" for one in re.findall(LISTED, rest))
            kernels = named[1].split() if named else [*listed]
            if kernels:
                value, source = " ".join(kernels), text.source(place)
                yield Claim("torch.kernels", value, source, SURE)
            if "%" in (number or ""):
                yield event(text, "gpu-not-in-wheel", place, end, {"side": "old"})
            elif number:
                brand = re.search(BRAND, hit["said"] or "")
                name = brand[0] if brand else hit["found"] or hit["said"].split()[-1]
                index = None if hit["index"] is None else int(hit["index"])
                gpu = Gpu(
                    name=name.strip(), cuda_index=index, compute_capability=Capability.parse(number)
                )
                found[hit["index"], gpu.name] = gpu
                kind, values = _judged(gpu, kernels, rest, by_name=hit["sm"] is not None)
                if kind:
                    yield event(text, kind, place, end, values)
    numbered = {name for index, name in found if index}
    if kept := tuple(gpu for (at, name), gpu in found.items() if at or name not in numbered):
        yield Gpus(kept, "torch's warning", HINT)


def _judged(
    gpu: Gpu, kernels: list[str], rest: str, *, by_name: bool
) -> tuple[str, dict[str, str]]:
    """What a warning shows of the GPU that it names: that it is older or newer than the kernels, or
    nothing but a later minor of the newest major, which runs them."""
    own = gpu.compute_capability or Capability(0, 0)
    values = {"gpu": gpu.name, "capability": str(own)}
    limits = LIMITS.search(rest)
    known = [Capability.parse(one) for one in limits.groups() if one] if limits else []
    if len(known) == 2 and known[0] <= own and own.major <= known[1].major:
        return "capability-warning", values
    known = known or [*map(Capability.parse, kernels)]
    if not (known or by_name or "too old" in rest):
        return "", {}
    old = own < max(known) if known else own <= Capability(7, 5)
    listed = {"kernels": " ".join(one.sm for one in known)} if known else {}
    return "gpu-not-in-wheel", {**values, "side": "old" if old else "new", **listed}
