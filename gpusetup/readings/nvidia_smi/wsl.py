"""nvidia-smi in WSL: a program of Linux on a driver of Windows, each with its own version.

The folder `/usr/lib/wsl/lib` is Windows' driver as WSL shows it, and nvidia-smi in it says the
version of the Linux release that it was built from (NVIDIA, "CUDA on WSL User Guide"). In a
container the program may be the image's. That the two differ is no fault by itself.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen


class Pair(Frozen):
    """What one nvidia-smi printed: its own version, and the driver's."""

    own: str
    driver: str
    source: str


SEEN = (
    Pair(own="510.85.02", driver="516.94", source="the sample that this reader began with"),
    Pair(own="545.46", driver="546.80", source="microsoft/WSL#11589"),
    Pair(own="555.42.03", driver="555.85", source="rapidsai/docker#680"),
    Pair(own="560.28.03", driver="560.76", source="microsoft/WSL#11277"),
    Pair(own="570.86.16", driver="572.16", source="YanWenKun/ComfyUI-Docker#93"),
    Pair(own="570.133.07", driver="572.83", source="mmartial/ComfyUI-Nvidia-Docker#33"),
    Pair(own="580.82.10", driver="581.29", source="the laptop of the first example machine"),
)
"""As of 2026-11-22. No pair is further apart than six branches."""
BRANCHES_APART = 20
"""Windows' number for one release lies less than this above Linux'."""
LINUX_STEP = 5
"""The branches of Linux' drivers since 410 are multiples of it (NVIDIA, UNIX driver archive)."""


def is_of_wsl(own: str, driver: str) -> bool:
    """Whether a Linux nvidia-smi names a driver of Windows: of a branch that Linux has none of.

    >>> [is_of_wsl(pair.own, pair.driver) for pair in SEEN]
    [True, True, False, False, True, True, True]
    >>> is_of_wsl("535.183.01", "550.90.07"), is_of_wsl("581.29", "581.29")
    (False, False)
    """
    of_linux = branch(own) % LINUX_STEP == 0 and 0 < branch(own) < branch(driver)
    return of_linux and driver.count(".") == 1 and (own.count(".") == 2 or _is_windows(driver))


def _is_windows(driver: str) -> bool:
    return branch(driver) % LINUX_STEP != 0


def is_far_older(own: str, driver: str) -> bool:
    """Whether nvidia-smi and its NVML are left over from a driver of years before.

    >>> is_far_older("440.59", "550.100"), is_far_older("510.85.02", "516.94")
    (True, False)
    """
    return branch(own) > 0 and branch(driver) - branch(own) > BRANCHES_APART


def branch(version: str) -> int:
    """`516` of 516.94; 0 where it is none."""
    number = version.split(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 0
