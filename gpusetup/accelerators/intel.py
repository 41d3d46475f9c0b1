"""Intel's GPUs on which PyTorch validates its XPU builds, by their PCI ids.

Sources: the PCI ID database (2023-04-11), Linux' include/drm/intel/pciids.h for the generations
after it, and "Getting Started on Intel GPU" of PyTorch's documentation, edition 2.15 of 2026-09-29,
for the hardware that is validated.
"""

from __future__ import annotations

ROWS = (
    # Xe-HPG
    ("56a0", "Arc A770"),
    ("56a1", "Arc A750"),
    ("56a2", "Arc A580"),
    ("56a5", "Arc A380"),
    ("56a6", "Arc A310"),
    ("5690", "Arc A770M"),
    ("5691", "Arc A730M"),
    ("5692", "Arc A550M"),
    ("5693", "Arc A370M"),
    ("5694", "Arc A350M"),
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
KERNEL_DRIVERS = ("i915", "xe")
"""The Linux kernel drivers for Intel GPUs: xe for Xe2 and later, i915 for older generations."""


def intel_name(device_id: str | None) -> str | None:
    """The name of the Intel GPU with a PCI id; None for old graphics and for unknown ids.

    >>> intel_name("56a0"), intel_name("9bc5")
    ('Arc A770', None)
    """
    return NAMES.get((device_id or "").lower())


def device_has_xpu(device_id: str | None, name: str | None = None) -> bool:
    """Whether PyTorch's XPU builds support an Intel GPU. A GPU whose id is unknown and that has no
    name counts as a processor's old integrated graphics, because there are hundreds of these.

    >>> device_has_xpu("56a0"), device_has_xpu("9bc5"), device_has_xpu(None, "Intel Arc B580")
    (True, False, True)
    """
    said = (name or "").lower()
    return intel_name(device_id) is not None or any(known.lower() in said for _, known in ROWS)
