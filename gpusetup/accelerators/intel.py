"""Intel's GPUs: their PCI ids, their Xe generations, and which of them torch's XPU builds support.

Sources: the PCI ID database (2023-04-11), Linux' include/drm/intel/pciids.h for the generations
after it, and
"Getting Started on Intel GPU" of PyTorch's documentation, edition 2.15 of 2026-09-29, for the
hardware that is validated.
"""

from __future__ import annotations

from typing import Literal

from gpusetup.model.frozen import Frozen

Generation = Literal["Xe-LP", "Xe-HPG", "Xe-HPC", "Xe-LPG", "Xe2", "Xe3"]


class IntelDevice(Frozen):
    """The GPU with one of Intel's PCI ids."""

    name: str
    generation: Generation
    has_xpu: bool = True
    """Whether PyTorch lists the GPU as hardware on which its XPU builds are validated."""


ROWS: tuple[tuple[Generation, str, str], ...] = (
    ("Xe-HPG", "56a0", "Arc A770"),
    ("Xe-HPG", "56a1", "Arc A750"),
    ("Xe-HPG", "56a2", "Arc A580"),
    ("Xe-HPG", "56a5", "Arc A380"),
    ("Xe-HPG", "56a6", "Arc A310"),
    ("Xe-HPG", "5690", "Arc A770M"),
    ("Xe-HPG", "5691", "Arc A730M"),
    ("Xe-HPG", "5692", "Arc A550M"),
    ("Xe-HPG", "5693", "Arc A370M"),
    ("Xe-HPG", "5694", "Arc A350M"),
    ("Xe-HPG", "56b1", "Arc Pro A40/A50"),
    ("Xe-HPC", "0bd5 0bd6", "Data Center GPU Max 1550"),
    ("Xe-HPC", "0bd9 0bda 0bdb", "Data Center GPU Max 1100"),
    ("Xe-LPG", "7d55", "Arc Graphics (Meteor Lake-H)"),
    ("Xe-LPG", "7d51 7dd1", "Arc Graphics (Arrow Lake-H)"),
    ("Xe2", "64a0 6420 64b0", "Arc Graphics (Lunar Lake)"),
    ("Xe2", "e20b", "Arc B580"),
    ("Xe2", "e20c", "Arc B570"),
    ("Xe2", "e211", "Arc Pro B60"),
    ("Xe2", "e212", "Arc Pro B50"),
    ("Xe3", "b080 b081 b082 b090 b0a0", "Arc Graphics (Panther Lake)"),
)
"""The generation, PCI ids and name of hardware on which PyTorch validates its XPU builds."""

DEVICES = {
    device_id: IntelDevice(name=name, generation=generation)
    for generation, device_ids, name in ROWS
    for device_id in device_ids.split()
}

KERNEL_DRIVERS = ("i915", "xe")
"""The Linux kernel drivers for Intel GPUs: xe for Xe2 and later, i915 for older generations."""


def intel_device(device_id: str | None, name: str | None = None) -> IntelDevice | None:
    """The Intel GPU with a PCI id; None for old graphics and for ids that the table does not list.

    >>> intel_device("56a0").generation, intel_device("9bc5")
    ('Xe-HPG', None)
    """
    device = DEVICES.get((device_id or "").lower())
    if device is None or not name:
        return device
    return IntelDevice(name=name, generation=device.generation, has_xpu=device.has_xpu)


def device_has_xpu(device_id: str | None, name: str | None = None) -> bool:
    """Whether PyTorch's XPU builds support an Intel GPU. A GPU whose id is unknown and that has no
    name counts as a processor's old integrated graphics, because there are hundreds of these.

    >>> device_has_xpu("56a0"), device_has_xpu("9bc5"), device_has_xpu(None, "Intel Arc B580")
    (True, False, True)
    """
    if intel_device(device_id) is not None:
        return True
    return bool(name) and generation_named(name or "") is not None


def generation_named(name: str) -> Generation | None:
    """The Xe generation of a GPU, from its name; None if the name does not tell.

    >>> generation_named("Arc A770"), generation_named("Arc B580"), generation_named("UHD 770")
    ('Xe-HPG', 'Xe2', None)
    """
    lower_name = name.lower()
    for device in DEVICES.values():
        if device.name.lower() in lower_name:
            return device.generation
    return None
