"""GPUs of AMD, Intel and Apple as people name them: `RX 7900 XTX`, `gfx1151`, `Arc A770`, `M3 Max`.

Sources: AMD's boards as in `amd.py`; Intel's as in "Getting Started on Intel GPU" of PyTorch's
documentation (hardware prerequisite, edition 2.15 of September 2026); Apple's chips are called M
and a number, with or without Pro, Max or Ultra. PyTorch's page on the MPS backend excludes none of
them.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import AMD_INDEX_TARGETS, BUILT_FOR, RELATIVES, gfx_of
from gpusetup.accelerators.makers import AMD, APPLE, INTEL, Maker, other_maker
from gpusetup.model.machine import Gpu, MakerStack

APPLE_CHIP = r"(?:apple\s+)?(m[1-9])(?:\s+(pro|max|ultra))?(?:\s+\d{1,3}\s?gi?b)?"
"""A complete name of an Apple chip, with or without the Mac's memory. A single digit keeps out
NVIDIA's Tesla M10 to M60; only the Tesla M4 also matches."""
INTEL_WITHOUT_XPU = re.compile(r"\b(?:uhd|hd graphics|iris)\b|\bcore ultra [3579] \d{3}[ukfs]?\b")
"""Intel's older graphics, and processors without Arc graphics. PyTorch's list of validated hardware
does not include them."""


def maker_named(text: str) -> Maker | None:
    """The maker of a GPU, from its name; None for NVIDIA and for unknown names.

    >>> names = ("RX 7900 XTX", "gfx1151", "Arc A770", "M3 Max", "UHD 770", "RTX 3050", "A100")
    >>> [maker.id if maker else None for maker in map(maker_named, names)]
    ['amd', 'amd', 'intel', 'apple', 'intel', None, None]
    """
    name = text.strip().lower()
    maker_word = other_maker(name)
    if maker_word == APPLE.id or re.fullmatch(APPLE_CHIP, name):
        return APPLE
    # Both makers have a pattern of model names; `str` says so to the type checker.
    if maker_word == INTEL.id or re.search(str(INTEL.models), name):
        return INTEL
    if gfx_of(name) or maker_word == AMD.id or re.search(str(AMD.models), name):
        return AMD
    return None


def other_gpu(text: str, maker: Maker) -> Gpu:
    """A GPU of a maker other than NVIDIA, with its target if the name tells it.

    >>> other_gpu("m3 max", APPLE).name, other_gpu("RX 7900 XTX", AMD).target
    ('Apple M3 Max', 'gfx1100')
    """
    name = " ".join(text.split())
    target = gfx_of(name.lower()) if maker is AMD else None
    chip = re.fullmatch(APPLE_CHIP, name.lower()) if maker is APPLE else None
    if chip:
        name = " ".join(("Apple", *(word.title() for word in chip.groups() if word)))
    return Gpu(name=name, maker=maker.id, target=target)


def has_xpu(name: str) -> bool:
    """Whether PyTorch's XPU builds support an Intel GPU, judging by the GPU's name.

    >>> has_xpu("Arc A770"), has_xpu("Intel UHD Graphics 770")
    (True, False)
    """
    return INTEL_WITHOUT_XPU.search(name.lower()) is None


SMALL_TARGETS = ("gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1152")
"""The targets of the integrated graphics in ordinary Ryzen processors, with two to twelve compute
units and shared memory."""


def is_small(stack: MakerStack) -> bool:
    """Whether all GPUs are integrated graphics of ordinary Ryzen processors, which are rarely worth
    using for computing."""
    targets = {gpu.target for gpu in stack.gpus}
    return stack.maker == AMD.id and bool(targets) and targets <= {*SMALL_TARGETS}


def has_a_build(stack: MakerStack) -> bool:
    """Whether torch has a build for any of the GPUs. Of AMD's, one with an unknown target has none.

    For the integrated graphics of most processors there is none, and the CPU build is the right
    choice.
    """
    if stack.maker != AMD.id:
        return True
    targets = [gpu.target for gpu in stack.gpus]
    with_kernels = {*BUILT_FOR, *RELATIVES, *AMD_INDEX_TARGETS}
    return any(target in with_kernels for target in targets)
