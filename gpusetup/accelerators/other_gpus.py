"""GPUs of AMD, Intel and Apple as people name them: `RX 7900 XTX`, `gfx1151`, `Arc A770`, `M3 Max`.

Sources: AMD's boards as in `amd.py`; Intel's as in "Getting Started on Intel GPU" of PyTorch's
documentation (hardware prerequisite, edition 2.15 of September 2026); Apple's chips are called M
and a number, with or without Pro, Max or Ultra, and PyTorch's page on the MPS backend names no chip
that it leaves out.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import gfx_of
from gpusetup.accelerators.makers import AMD, APPLE, INTEL, Maker, other_maker
from gpusetup.model.machine import Gpu

APPLE_CHIP = r"(?:apple\s+)?(m[1-9])(?:\s+(pro|max|ultra))?"
"""The whole of a name. NVIDIA's Tesla M10 to M60 have two digits; only the Tesla M4 has one."""
INTEL_WITH_XPU = (
    r"\barc\b|\b[ab](?:3[18]0|5[78]0|770)m?\b|\bb(?:60|50)\b|\bmax\s?1[15][05]0\b|\bponte vecchio\b"
)
"""What PyTorch's XPU builds are validated on: Arc A and B, with the Core Ultra's Arc graphics, and
Data Center GPU Max."""
INTEL_WITHOUT_XPU = r"\b(?:uhd|hd graphics|iris)\b"
"""Intel's older graphics, which that list does not have."""


def maker_named(text: str) -> Maker | None:
    """The maker of a GPU that is named; None for NVIDIA's and for unknown names.

    >>> names = ("RX 7900 XTX", "gfx1151", "Arc A770", "M3 Max", "UHD 770", "RTX 3050", "A100")
    >>> [maker.id if maker else None for maker in map(maker_named, names)]
    ['amd', 'amd', 'intel', 'apple', 'intel', None, None]
    """
    plain = text.strip().lower()
    by_word = other_maker(plain)
    if re.fullmatch(APPLE_CHIP, plain) or by_word == APPLE.id:
        return APPLE
    if re.search(INTEL_WITH_XPU, plain) or re.search(INTEL_WITHOUT_XPU, plain):
        return INTEL
    if by_word == INTEL.id or re.search(str(INTEL.models), plain):
        return INTEL
    if gfx_of(plain) or by_word == AMD.id or re.search(str(AMD.models), plain):
        return AMD
    return None


def other_gpu(text: str, maker: Maker) -> Gpu:
    """A GPU of such a maker, with its target where the name tells it.

    >>> other_gpu("m3 max", APPLE).name, other_gpu("RX 7900 XTX", AMD).target
    ('Apple M3 Max', 'gfx1100')
    """
    name = " ".join(text.split())
    if maker is APPLE:
        chip = re.fullmatch(APPLE_CHIP, name.lower())
        words = ("Apple", *(part.title() for part in chip.groups() if part)) if chip else (name,)
        return Gpu(name=" ".join(words), maker=maker.id)
    return Gpu(name=name, maker=maker.id, target=gfx_of(name.lower()) if maker is AMD else None)


def has_xpu(name: str) -> bool:
    """Whether PyTorch's XPU builds are made for a GPU of Intel.

    >>> has_xpu("Arc A770"), has_xpu("Intel UHD Graphics 770")
    (True, False)
    """
    plain = name.lower()
    return re.search(INTEL_WITH_XPU, plain) is not None or not re.search(INTEL_WITHOUT_XPU, plain)
