"""How many bytes per second a PCIe link can carry. Pure functions."""

from __future__ import annotations

LANE_BYTES = (0.0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)
"""Bytes per second and lane in one direction, indexed by PCIe generation (PCI-SIG)."""


def pcie_limit(generation: float | None, lanes: float | None) -> float | None:
    """The bytes per second that a PCIe link of this generation and lane count carries in one
    direction; None if either is unknown.

    >>> pcie_limit(4, 16), pcie_limit(None, 16)
    (31504000000.0, None)
    """
    if generation is None or not lanes:
        return None
    # The rate is unknown if the generation is newer than this table.
    if not 0 < generation < len(LANE_BYTES):
        return None
    return LANE_BYTES[int(generation)] * lanes


FULL_WITHOUT_A_LIMIT = ((11e9, 13.5e9), (22e9, 27e9))
"""Ranges of bytes per second in one direction that a full link with 16 lanes reaches in practice,
for PCIe 3 and PCIe 4 (in theory 15.8e9 and 31.5e9). A rate between the ranges cannot be judged if
the link is unknown."""


def looks_full(rate: float) -> bool:
    """Whether this rate (bytes per second) is typical of a full PCIe 3 or 4 link with 16 lanes.
    Used if the link itself is unknown.

    >>> looks_full(11.8e9), looks_full(17e9)
    (True, False)
    """
    return any(low <= rate <= high for low, high in FULL_WITHOUT_A_LIMIT)
