"""How many bytes per second a PCIe link can carry. Pure functions."""

from __future__ import annotations

LANE_BYTES = (0.0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)
"""A second, one way, by the generation of PCIe (PCI-SIG)."""


def pcie_limit(generation: float | None, lanes: float | None) -> float | None:
    """The bytes per second that a PCIe link of this generation and lane count carries in one
    direction; None if either is unknown.

    >>> pcie_limit(4, 16), pcie_limit(None, 16)
    (31504000000.0, None)
    """
    if generation is None or not lanes:
        return None
    # A generation that is newer than this table.
    if not 0 < generation < len(LANE_BYTES):
        return None
    return LANE_BYTES[int(generation)] * lanes


FULL_WITHOUT_A_LIMIT = ((11e9, 13.5e9), (22e9, 27e9))
"""Bytes a second, one way: what a full link with 16 lanes carries in practice, of PCIe 3 and of
PCIe 4 (theory: 15.8e9 and 31.5e9). Between the two, a rate says nothing without the link."""


def looks_full(rate: float) -> bool:
    """Whether this rate (bytes per second) is typical of a full PCIe 3 or 4 link with 16 lanes;
    used if the link itself is unknown.

    >>> looks_full(11.8e9), looks_full(17e9)
    (True, False)
    """
    return any(low <= rate <= high for low, high in FULL_WITHOUT_A_LIMIT)
