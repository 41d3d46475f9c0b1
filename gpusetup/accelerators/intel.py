"""Intel's GPUs on which PyTorch validates its XPU builds, by their PCI ids.

Sources: the PCI ID database (2023-04-11), Linux' include/drm/intel/pciids.h for the generations
after it, and "Getting Started on Intel GPU" of PyTorch's documentation, edition 2.15 of 2026-09-29,
for the hardware that is validated.
"""

from __future__ import annotations

from gpusetup.accelerators.other_gpus import has_xpu

ROWS = (
    # Xe-HPG
    ("56a0", "Arc A770"),
    ("56a1", "Arc A750"),
    ("56a2", "Arc A580"),
    ("56a5", "Arc A380"),
    ("56a6", "Arc A310"),
    ("5690 5691 5692 5693 5694", "Arc A-series Mobile"),
    ("56b1", "Arc Pro A40/A50"),
    # Xe-HPC
    ("0bd5 0bd6", "Data Center GPU Max 1550"),
    ("0bd9 0bda 0bdb", "Data Center GPU Max 1100"),
    # Xe-LPG, in processors
    ("7d55", "Arc Graphics (Meteor Lake-H)"),
    ("7d51 7dd1", "Arc Graphics (Arrow Lake-H)"),
    # Xe2
    ("64a0 6420 64b0", "Arc Graphics (Lunar Lake)"),
    ("e20b", "Arc B580"),
    ("e20c", "Arc B570"),
    ("e211", "Arc Pro B60"),
    ("e212", "Arc Pro B50"),
    # Xe3
    ("b080 b081 b082 b090 b0a0", "Arc Graphics (Panther Lake)"),
)
NAMES = {device_id: name for device_ids, name in ROWS for device_id in device_ids.split()}


def name_with_xpu(device_id: str | None, name: str | None = None) -> str | None:
    """The name of an Intel GPU that PyTorch's XPU builds support, from its name or its PCI id; None
    for other Intel graphics. Without a name, an unknown id counts as a processor's old integrated
    graphics, because there are hundreds of these.

    >>> name_with_xpu("56a0"), name_with_xpu("9bc5"), name_with_xpu(None, "Intel Arc B580")
    ('Arc A770', None, 'Intel Arc B580')
    """
    known = name or NAMES.get((device_id or "").lower())
    return known if known and has_xpu(known) else None
