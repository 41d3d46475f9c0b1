"""AMD's GPU targets (such as `gfx1201`): which board has which target, and for which targets
torch's builds have kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.versions import parsed

BUILT_FOR = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101"),
    *("gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"),
)
"""The targets for which torch's ROCm wheels have kernels: PYTORCH_ROCM_ARCH in
.ci/docker/manywheel/build.sh of PyTorch's branch release/2.13 (ROCm 7.2), read in November 2026."""
SERVED_CARDS = (
    "Radeon RX 6800 to 6950, the series RX 7000 and 9000, the graphics of Ryzen AI, and Instinct "
    "MI100 and newer"
)
"""The cards with the targets of `BUILT_FOR`, in words for somebody who does not know the target.
gfx900 and gfx906 are left out because of `LAST_ROCM`."""
BUILT_FOR_ROCM = "7.2"
"""The newest ROCm version in that script."""
RELATIVES = dict.fromkeys(
    ("gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036"), ("gfx1030", "10.3.0")
)
"""A target without kernels -> a related target whose kernels it can run, and the value of
HSA_OVERRIDE_GFX_VERSION that selects these kernels. gfx1103 is not among them, because with the
kernels of gfx1100 it ends in page faults and hangs (pytorch/pytorch pull request 179653), and it
has kernels of its own."""
FIRST_ROCM = {
    **dict.fromkeys(("gfx1101", "gfx1102"), "6.3"),
    **dict.fromkeys(("gfx1200", "gfx1201"), "6.4"),
    **dict.fromkeys(("gfx950", "gfx1150", "gfx1151"), "7.0"),
    "gfx1103": "7.2",
}
"""A target -> the first ROCm version for which torch's wheels have kernels for the target (from the
conditions on ROCM_VERSION in the same script, read in November 2026). Targets that are not listed
have always had kernels."""
LAST_ROCM = dict.fromkeys(("gfx900", "gfx906"), "6.3")
"""A target -> the last ROCm version whose rocBLAS has files for the target. torch's wheels for
newer versions still contain torch's own kernels, but every matrix product fails with "Cannot read
TensileLibrary.dat" (ROCm/ROCm issue 4625 for 6.4, pytorch/pytorch issue 179865 for the wheel of
7.2)."""
BOARDS = (
    (r"\bRX ?5[67]00|Radeon Pro W5700", "gfx1010"),
    (r"\bRX ?(?:5300|5500)", "gfx1012"),
    (r"\bRX ?6[678]00S\b|\bRX ?66\d0M\b", "gfx1032"),
    (r"\bRX ?6[78][05]0M\b", "gfx1031"),
    (r"\bRX ?(?:68|69)\d0|\bW6800\b|\bV620\b", "gfx1030"),
    (r"\bRX ?67\d0", "gfx1031"),
    (r"\bRX ?66\d0", "gfx1032"),
    (r"\bRX ?6[345]00", "gfx1034"),
    (r"\bRX ?79\d0|Pro W7[89]00", "gfx1100"),
    (r"\bRX ?7[67]00S\b", "gfx1102"),
    (r"\bRX ?7[78]00|Pro W7700", "gfx1101"),
    (r"\bRX ?7(?:400|600|650)|Pro W7[56]00", "gfx1102"),
    (r"\bRX ?9070|\bR9[67]00\b", "gfx1201"),
    (r"\bRX ?9060", "gfx1200"),
    (r"\bRX ?(?:4[5678]0|5[456789]0)X?\b|\bPolaris\b", "gfx803"),
    (r"\bWX ?[457]100\b|\bWX ?[23][12]00\b", "gfx803"),
    (r"\bStrix Halo\b|\bRyzen AI Max\b", "gfx1151"),
    (r"\bStrix Point\b|\bRyzen AI 9\b", "gfx1150"),
    (r"\bRyzen AI [57] (?:PRO )?(?:340|350|450)\b", "gfx1152"),
    (r"\bRyzen [579] (?:PRO )?(?:7[6789]40|8[6789]4[05])(?:U|H|HS)\b", "gfx1103"),
    (r"\bVega ?(?:56|64)\b|\bMI25\b", "gfx900"),
    (r"\bRadeon VII\b|\bMI[56]0\b", "gfx906"),
    (r"\b7[468]0M\b", "gfx1103"),
    (r"\b8[89]0M\b", "gfx1150"),
    (r"\b80[456]0S\b", "gfx1151"),
    (r"\b8[46]0M\b", "gfx1152"),
    (r"\b6[68]0M\b", "gfx1035"),
    (r"\bMI100\b", "gfx908"),
    (r"\bMI2[15]0X?\b", "gfx90a"),
    (r"\bMI3(?:0[08]|25)[AX]?\b", "gfx942"),
    (r"\bMI35[05]X\b", "gfx950"),
)
"""A pattern for the name of a board or of a processor's graphics, and its target. Sources: LLVM's
User Guide for the AMDGPU Backend, table of processors; read again in November 2026 for RX 9060 and
9070, 890M, 860M and 8060S (LLVM pull requests 155577 and 163717). Processors: the table of extras
in ROCm/TheRock's RELEASES.md."""
INDEX_OF_AMD = "https://stable.repo.amd.com/rocm/whl-next/"
"""AMD's own index of wheels since ROCm 10 (August 2026)."""
RADEON = (  # all have wheels for Windows too, unlike Instinct (SUPPORTED_GPUS.md)
    *("gfx1010", "gfx1011", "gfx1012"),
    *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    *("gfx1200", "gfx1201"),
)
AMD_INDEX_TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950", *RADEON)
"""The targets with kernels on AMD's index: the extras `device-gfx...` in ROCm/TheRock's RELEASES.md
(August 2026) that are in a stable release. gfx900 and gfx906 are left out, because only nightly
releases have them (easydiffusion/torchruntime issue 34, LykosAI/StabilityMatrix pull request 1690).
"""


def target_of_version(number: int) -> str | None:
    """The target that belongs to the kernel driver's number `gfx_target_version`; None for 0, which
    means a CPU.

    The number is major * 10000 + minor * 100 + stepping; a target's name has minor and stepping as
    hexadecimal digits (Linux, drivers/gpu/drm/amd/amdkfd/kfd_device.c).

    >>> [target_of_version(number) for number in (110000, 90010, 90402, 110501, 0)]
    ['gfx1100', 'gfx90a', 'gfx942', 'gfx1151', None]
    """
    # Two digits each for minor and stepping, and at most two for major.
    if not 0 < number < 1_000_000:
        return None
    major, minor, stepping = number // 10000, number // 100 % 100, number % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def target_of_override(value: str) -> str | None:
    """The target whose kernels HSA_OVERRIDE_GFX_VERSION selects; None if the value is not three
    numbers.

    >>> target_of_override("10.3.0"), target_of_override("9.0.10"), target_of_override("gfx1030")
    ('gfx1030', 'gfx90a', None)
    """
    numbers = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})", value.strip())
    if numbers is None:
        return None
    major, minor, stepping = map(int, numbers.groups())
    return target_of_version(major * 10000 + minor * 100 + stepping)


def device_extras(targets: Iterable[str | None]) -> tuple[str, ...]:
    """The extras of torch and torchvision on AMD's index that install the kernels for these
    targets; empty if AMD's index lacks the kernels for one of them.

    >>> device_extras(["gfx1151"]), device_extras(["gfx1100", "gfx1036"]), device_extras(["gfx803"])
    (('device-gfx1151',), ('device-gfx1100', 'device-gfx1036'), ())
    """
    named = dict.fromkeys(targets)
    served = all(target in AMD_INDEX_TARGETS for target in named)
    return tuple(f"device-{target}" for target in named) if served else ()


def has_kernels(target: str, rocm: str) -> bool | None:
    """Whether torch's wheels for a ROCm (`6.4`) have kernels for a target.

    None for a ROCm version that is newer than `BUILT_FOR_ROCM`.

    >>> has_kernels("gfx1100", "6.0"), has_kernels("gfx1201", "6.3"), has_kernels("gfx1031", "7.2")
    (True, False, False)
    >>> has_kernels("gfx906", "6.3"), has_kernels("gfx906", "7.2")
    (True, False)
    """
    if parsed(rocm) > parsed(BUILT_FOR_ROCM):
        return None
    if target not in BUILT_FOR:
        return False
    is_too_new = target in LAST_ROCM and parsed(rocm) > parsed(LAST_ROCM[target])
    return not is_too_new and parsed(rocm) >= parsed(FIRST_ROCM.get(target, "0"))


NAME_WITHOUT_LINE = re.compile(
    r"(?i)^(?=\d{4} ?(?:XT|GRE))|(?<=^AMD )(?=\d{4} ?(?:XT|GRE))|\bRadeon (?=\d{4})"
)
"""The places in a name where `RX` is missing: `9060 XT`, `Radeon 7900 XTX`."""
TARGET = re.compile(r"\bgfx(?:[789]|1\d)[0-9a-f]{2}\b")
"""`gfx803`, `gfx90a`, `gfx1100`."""


def gfx_of(name: str) -> str | None:
    """The target that a GPU's name contains, or the target of the board with this name; None if
    neither is known.

    >>> gfx_of("AMD Radeon RX 5700 XT (gfx1010:xnack-)"), gfx_of("RX 6750 XT"), gfx_of("HIP error")
    ('gfx1010', 'gfx1031', None)
    >>> gfx_of("Ryzen 7 7840U"), gfx_of("AMD Ryzen AI 9 HX 370"), gfx_of("Ryzen 7 5800X")
    ('gfx1103', 'gfx1150', None)
    >>> gfx_of("9060 XT"), gfx_of("AMD Radeon 860M"), gfx_of("MI355X"), gfx_of("Radeon 760M")
    ('gfx1200', 'gfx1152', 'gfx950', 'gfx1103')
    """
    if written := TARGET.search(name):
        return written[0]
    full_name = NAME_WITHOUT_LINE.sub("RX ", name)
    for board, target in BOARDS:
        if re.search(board, full_name, re.IGNORECASE):
            return target
    return None


IDS = (
    ("66af", "Radeon VII"),
    ("66a0 66a1", "Radeon Instinct MI50/MI60"),
    ("740f", "Instinct MI210"),
    ("7408 740c", "Instinct MI250X/MI250"),
    ("74a0 74a1 74a9 74b5 74bd", "Instinct MI300X"),
    ("74a5 74b9", "Instinct MI325X"),
    ("731f", "Radeon RX 5600/5700 XT"),
    ("73bf 73af 73a5", "Radeon RX 6800/6900 XT/6950 XT"),
    ("73a3 73a1 73a2 73ab", "Radeon PRO W6800"),
    ("73df", "Radeon RX 6700 XT/6750 XT"),
    ("73ff 73ef", "Radeon RX 6600/6650 XT"),
    ("1681", "Radeon 680M"),
    ("744c", "Radeon RX 7900 XT/7900 XTX/7900 GRE"),
    ("7448", "Radeon Pro W7900"),
    ("747e", "Radeon RX 7700 XT/7800 XT"),
    ("7480 7483", "Radeon RX 7600"),
    ("15bf 15c8", "Radeon 740M/780M (Phoenix)"),
    ("150e", "Radeon 880M/890M (Strix Point)"),
    ("1586", "Radeon 8050S/8060S (Strix Halo)"),
    ("1114", "Radeon 840M/860M (Krackan)"),
    ("7590", "Radeon RX 9060 XT"),
    ("7550", "Radeon RX 9070/9070 XT"),
)
"""PCI ids and the name of the cards that share them, for machines without a loaded driver and for
rocm-smi, which prints the id. Source: the PCI ID database (2023-04-11, as in Debian's `pci.ids`);
the ids of 2024 to 2026 from lines of newer editions that public repositories quote, read in
November 2026."""
NAMES = {device_id: name for device_ids, name in IDS for device_id in device_ids.split()}


def amd_name(device_id: str | None) -> str | None:
    """The name of the AMD GPU with a PCI id; None for an unknown id.

    >>> amd_name("744C"), amd_name("164e")
    ('Radeon RX 7900 XT/7900 XTX/7900 GRE', None)
    """
    return NAMES.get((device_id or "").lower())


def amd_target(device_id: str | None, name: str | None) -> str | None:
    """The target of the AMD GPU with this name in the system's PCI list, or else with this PCI id.

    >>> amd_target("744c", None), amd_target(None, "AMD Radeon RX 9070 XT")
    ('gfx1100', 'gfx1201')
    """
    # The system's name can tell apart cards that share an id.
    return gfx_of(name or "") or gfx_of(amd_name(device_id) or "")
