"""What the texts of `nvidia-smi` have in common: their values, their cells, their errors.

All functions here are pure: text in, values out. They take cut and odd text; what cannot be read
is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu

T = TypeVar("T")


class Smi(Frozen):
    """One output of `nvidia-smi`, as values."""

    smi_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    no_cuda: bool = False
    """It says `CUDA Version: ERR!`."""
    gpus: tuple[Gpu, ...] | None = None
    persistence: bool | None = None


# Part of the message (lower case) -> NVML code. Sources: nvmlErrorString, nvidia-smi 418 to 610,
# whose exit code is the NVML code too (9, 12, 15, 18 seen; 6 for no devices). The first hit counts.
ERRORS = {
    "couldn't communicate with the nvidia driver": 9,
    "driver/library version mismatch": 18,
    "couldn't find libnvidia-ml.so": 12,
    "couldn't find nvml.dll": 12,
    "nvml shared library not found": 12,
    "gpu access blocked by the operating system": 17,
    "insufficient permissions": 4,
    "driver not loaded": 9,
    "driver is not loaded": 9,
    "error_library_not_found": 12,
    "error_driver_not_loaded": 9,
    "error_lib_rm_version_mismatch": 18,
    "error_gpu_is_lost": 15,
    "error_reset_required": 16,
    "error_no_permission": 4,
    "gpu is lost": 15,
    "gpu requires reset": 16,
    "failed to initialize nvml: timeout": 10,
    "failed to initialize nvml: not found": 6,
    "failed to initialize nvml": 999,
    "nvml: unknown error": 999,
    "unable to determine the device handle": 999,
}
NO_DEVICES = "no devices were found"


def parse_error(line: str) -> int | None:
    """The NVML error that a line speaks of, or None.

    >>> parse_error("Failed to initialize NVML: Driver/library version mismatch")
    18
    >>> parse_error("Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"), parse_error("GPU 0")
    (12, None)
    """
    low = line.lower()
    return next((code for part, code in ERRORS.items() if part in low), None)


# --- cells --------------------------------------------------------------------------------------

BLANKS = ("", "n/a", "not supported", "not found", "unknown error", "err!", "none", "unknown")


def cell(text: str | None) -> str | None:
    """A cell's text; None where it says that there is no value.

    >>> cell(" 40960 MiB "), cell("[N/A]"), cell("[Unknown Error]"), cell("ERR!")
    ('40960 MiB', None, None, None)
    """
    plain = (text or "").strip()
    bare = plain.strip("[]").lower()
    blank = bare in BLANKS or bare.startswith(("gpu is lost", "gpu requires reset", "insufficient"))
    return None if blank or "deprecated" in bare else plain


def says_lost(text: str | None) -> bool:
    return "gpu is lost" in (text or "").lower()


def number(text: str | None) -> float | None:
    """The first number of a cell.

    >>> number("72.00 W"), number("16x"), number("[N/A]")
    (72.0, 16.0, None)
    """
    found = re.search(r"(?<!\d)-?\d{1,15}(?!\d)(?:\.\d+)?", cell(text) or "")
    return float(found.group()) if found else None


def integer(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "mb": 1 << 20, "gib": 1 << 30, "gb": 1 << 30}


def memory(text: str | None) -> int | None:
    """Bytes; nvidia-smi's MB are MiB, and a number without a unit is MiB (`nounits`).

    >>> memory("40960 MiB") == memory("40960MiB") == memory("40960") == 40960 << 20
    True
    """
    found = re.match(r"(\d{1,15}(?!\d)(?:\.\d+)?)\s*([KMG]i?B|B)?", cell(text) or "", re.I)
    if not found:
        return None
    return int(float(found.group(1)) * UNITS[(found.group(2) or "MiB").lower()])


def word(known: Mapping[str, T]) -> Callable[[str | None], T | None]:
    """A reader of cells that hold one of a few words, a remark or a star behind it left out.

    >>> [word({"on": True, "off": False})(text) for text in ("On", "[Off]", "Off*", "N/A")]
    [True, False, False, None]
    """
    return lambda text: known.get((text or "").partition(" (")[0].strip(" []*").lower())


flag = word(
    {
        **dict.fromkeys(("enabled", "on", "yes", "active"), True),
        **dict.fromkeys(("disabled", "off", "no", "not active"), False),
    }
)
EXCLUSIVE = "Exclusive_Process"
compute_mode = word(
    {
        "default": "Default",
        **dict.fromkeys(("exclusive_process", "e. process", "exclusive process"), EXCLUSIVE),
        **dict.fromkeys(("exclusive_thread", "e. thread"), "Exclusive_Thread"),
        "prohibited": "Prohibited",
    }
)
"""One spelling for the table's and the query's words."""
driver_model = word({"wddm": "WDDM", "tcc": "TCC", "wdm": "TCC", "mcdm": "MCDM"})


# NVML's bits for what holds the clocks down (nvml.h, nvmlClocksEventReason*).
THROTTLE_BITS = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)


def throttle_mask(text: str | None) -> tuple[str, ...] | None:
    """
    >>> throttle_mask("0x0000000000000044")
    ('sw_power_cap', 'hw_thermal_slowdown')
    """
    try:
        mask = int(cell(text) or "", 16)
    except ValueError:
        return None
    return tuple(name for bit, name in THROTTLE_BITS if mask & bit)


def dotted(text: str | None) -> str | None:
    """A version, or None where the cell holds words.

    >>> dotted("13.3"), dotted("ERR!"), dotted("580.95.05")
    ('13.3', None, '580.95.05')
    """
    found = re.fullmatch(r"\d+(?:\.\d+)+", cell(text) or "")
    return found.group() if found else None
