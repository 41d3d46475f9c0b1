"""AMD's GPUs by their PCI ids: the chip's target, and a name to display.

If the driver is loaded, the Linux kernel reports the target (`probe/other_makers.py`). The ids are
for machines without a loaded driver, and for Windows.

Source: the PCI ID database (pci-ids.ucw.cz, 2023-04-11, as Debian's package `pci.ids` has it); the
ids of 2024 to 2026 from lines of newer editions that public repositories quote, read in November
2026. Which chip has which target is LLVM's table (see `amd.py`).
"""

from __future__ import annotations

from gpusetup.accelerators.amd import gfx_of
from gpusetup.model.frozen import Frozen


class AmdDevice(Frozen):
    """The GPU with one of AMD's PCI ids."""

    target: str
    name: str
    """The name that the PCI ID database has in brackets. It may list several cards that share the
    id."""


ROWS = (
    ("gfx803", "67df 67c4 67c7 67d4 67d7 67ef 67ff 67e3 6fdf 7300", "Radeon RX 400/500 series"),
    ("gfx900", "687f 6861 6863 6868 6860", "Radeon RX Vega 56/64"),
    ("gfx906", "66af", "Radeon VII"),
    ("gfx906", "66a0 66a1", "Radeon Instinct MI50/MI60"),
    ("gfx908", "738c 738e 7388", "Instinct MI100"),
    ("gfx90a", "740f", "Instinct MI210"),
    ("gfx90a", "7408 740c", "Instinct MI250X/MI250"),
    ("gfx942", "74a0", "Instinct MI300A"),
    ("gfx942", "74a1 74a9 74b5 74bd", "Instinct MI300X"),
    ("gfx942", "74a2", "Instinct MI308X"),
    ("gfx942", "74a5 74b9", "Instinct MI325X"),
    ("gfx1010", "731f", "Radeon RX 5600/5700 XT"),
    ("gfx1010", "7312 7310", "Radeon Pro W5700"),
    ("gfx1012", "7340", "Radeon RX 5500"),
    ("gfx1012", "7341 7347", "Radeon Pro W5500"),
    ("gfx1030", "73bf 73af 73a5", "Radeon RX 6800/6900 XT/6950 XT"),
    ("gfx1030", "73a3 73a1 73a2 73ab", "Radeon PRO W6800"),
    ("gfx1031", "73df", "Radeon RX 6700 XT/6750 XT"),
    ("gfx1032", "73ff 73ef", "Radeon RX 6600/6650 XT"),
    ("gfx1032", "73e3 73e1", "Radeon PRO W6600"),
    ("gfx1034", "743f 7424", "Radeon RX 6400/6500 XT"),
    ("gfx1033", "163f", "Van Gogh (Steam Deck)"),
    ("gfx1035", "1681", "Radeon 680M"),
    ("gfx1036", "164e", "Raphael (graphics of a Ryzen 7000)"),
    ("gfx1100", "744c", "Radeon RX 7900 XT/7900 XTX/7900 GRE"),
    ("gfx1100", "7448", "Radeon Pro W7900"),
    ("gfx1101", "747e", "Radeon RX 7700 XT/7800 XT"),
    ("gfx1102", "7480 7483", "Radeon RX 7600"),
    ("gfx1103", "15bf 15c8", "Radeon 740M/780M (Phoenix)"),
    ("gfx1150", "150e", "Radeon 880M/890M (Strix Point)"),
    ("gfx1151", "1586", "Radeon 8050S/8060S (Strix Halo)"),
    ("gfx1152", "1114", "Radeon 840M/860M (Krackan)"),
    ("gfx1200", "7590", "Radeon RX 9060 XT"),
    ("gfx1201", "7550", "Radeon RX 9070/9070 XT"),
    ("gfx90c", "1636 1638 164c 15e7", "graphics of a Ryzen 4000 or 5000 (Renoir, Cezanne)"),
    ("gfx902", "15dd 15d8", "graphics of a Ryzen 2000 or 3000 (Raven, Picasso)"),
)
"""Target, PCI ids, name."""

DEVICES = {
    device_id: AmdDevice(target=target, name=name)
    for target, device_ids, name in ROWS
    for device_id in device_ids.split()
}


def amd_device(device_id: str | None, name: str | None = None) -> AmdDevice | None:
    """The AMD GPU with a PCI id, or else the one with the name from the system's own PCI list.

    >>> amd_device("744c").target, amd_device(None, "AMD Radeon RX 9070 XT").target
    ('gfx1100', 'gfx1201')
    """
    # The name in the system's own PCI list can tell apart cards that share an id.
    if name and (target := gfx_of(name)):
        return AmdDevice(target=target, name=name)
    return DEVICES.get((device_id or "").lower())
