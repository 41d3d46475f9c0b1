"""Apple's chips M1 to M5, and how much of their memory torch can use.

Sources: Apple's newsroom for the chips (M1 2020, M2 2022, M3 2023, M4 2024, M5 2025); PyTorch's
page on the MPS backend for the system requirements; pytorch issue 164943 and pull request
177390 for the oldest macOS.
"""

from __future__ import annotations

LARGE_MEMORY_BYTES = 36 << 30
"""With more memory than this, a Mac has the larger share."""
SHARE_OF_LARGE = 0.75
SHARE_OF_SMALL = 2 / 3
"""The share of a Mac's memory that Metal recommends as a working set, from which torch allocates
(`torch.mps.recommended_max_memory()`): 48 of 64 GiB on an M2 Max (llama.cpp issue 1870), 10.67 of
16 GiB on an M1. Newer chips have a larger share (11.84 of 16 GiB on an M3; 17.76 of 24 GiB in
sglang pull request 29949), but the smaller share is used for all."""
OLDEST_MACOS = "14.0"
TORCH_ON_MACOS_14 = "2.9"
"""The oldest macOS on which torch supports MPS, and the torch since which it is needed. Earlier
versions of torch need 12.3 or 13.0."""


def metal_bytes(memory_bytes: int) -> int:
    """How many bytes torch can use of a Mac's memory.

    >>> metal_bytes(64 << 30) >> 30, metal_bytes(16 << 30) >> 20
    (48, 10922)
    """
    is_large = memory_bytes > LARGE_MEMORY_BYTES
    return int(memory_bytes * (SHARE_OF_LARGE if is_large else SHARE_OF_SMALL))
