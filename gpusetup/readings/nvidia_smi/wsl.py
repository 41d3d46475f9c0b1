"""nvidia-smi in WSL: a program of Linux on a driver of Windows, each with its own version.

The folder `/usr/lib/wsl/lib` is Windows' driver as WSL shows it, and nvidia-smi in it says the
version of the Linux release that it was built from (NVIDIA, "CUDA on WSL User Guide"). In a
container the program may be the image's. That the two differ is no fault by itself.
"""

from __future__ import annotations

SEEN = {
    "516.94": "510.85.02",  # the sample that this reader began with
    "546.80": "545.46",  # microsoft/WSL#11589
    "555.85": "555.42.03",  # rapidsai/docker#680
    "560.76": "560.28.03",  # microsoft/WSL#11277
    "572.16": "570.86.16",  # YanWenKun/ComfyUI-Docker#93
    "572.83": "570.133.07",  # mmartial/ComfyUI-Nvidia-Docker#33
    "581.29": "580.82.10",  # the laptop of the first example machine
}
"""The driver's version -> nvidia-smi's own, as of 2026-11-22. No pair is further apart than six
branches."""
LINUX_STEP = 5
"""The branches of Linux' drivers since 410 are multiples of it (NVIDIA, UNIX driver archive)."""


def is_of_wsl(own: str, driver: str) -> bool:
    """Whether a Linux nvidia-smi names a driver of Windows: of a branch that Linux has none of.

    >>> [is_of_wsl(own, driver) for driver, own in SEEN.items()]
    [True, True, False, False, True, True, True]
    >>> is_of_wsl("535.183.01", "550.90.07"), is_of_wsl("581.29", "581.29")
    (False, False)
    """
    of_linux = branch(own) % LINUX_STEP == 0 and 0 < branch(own) < branch(driver)
    windows = own.count(".") == 2 or branch(driver) % LINUX_STEP != 0
    return of_linux and driver.count(".") == 1 and windows


def branch(version: str) -> int:
    """`516` of 516.94; 0 where it is none."""
    number = version.split(".")[0]
    return int(number) if number.isascii() and number.isdigit() else 0
