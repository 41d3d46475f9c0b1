"""What `nvidia-smi` prints: its table, its long output (`-q`), its errors.

All functions here are pure: text in, values out. They take cut and odd text; what cannot be read
is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy

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


SMI_VERSION = lazy(r"NVIDIA-SMI\s+(\d[\w.]*)")
DRIVER_VERSION = lazy(r"(?:Driver|KMD) Version:\s*([\w.!/]+)")
CUDA_VERSION = lazy(r"CUDA (?:UMD )?Version:\s*([\w.!/]+)")
FIRST = lazy(
    r"^\s*(?P<nvml_index>\d+)\s+(?P<name>\S.*?)\s+"
    r"(?P<driver_model>On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*$"
)
BUS = lazy(r"(?P<pci_bus_id>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
STATE = lazy(
    r"(?:\d+%|N/A|ERR!)\s+(?P<temperature_celsius>\d+C?|N/A|ERR!)\s+(?:P\d+|N/A|Unknown)\s+"
    r"(?P<power_watts>[\d.]+W|N/A|ERR!)\s*/\s*(?P<power_limit_watts>[\d.]+W|N/A|ERR!)?"
)
MEMORY = lazy(r"(?P<memory_used_bytes>\d+\s*MiB)\s*/\s*(?P<memory_total_bytes>\d+\s*MiB)")
LOAD = lazy(r"(?P<utilization_percent>\d+%|N/A|ERR!)\s+(?P<compute_mode>\S.*\S)")


def parse_banner(text: str) -> Smi:
    """The versions in the first line of the table, if it is there.

    >>> line = "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3  |"
    >>> parse_banner(line).driver_version, parse_banner(line).cuda_version
    ('610.43.02', '13.3')
    """
    line = next((line for line in text.splitlines() if SMI_VERSION.search(line)), "")
    found = (pattern.search(line) for pattern in (SMI_VERSION, DRIVER_VERSION, CUDA_VERSION))
    smi, driver, cuda = (hit and hit[1] for hit in found)
    return Smi(
        smi_version=smi,
        driver_version=dotted(driver),
        cuda_version=dotted(cuda),
        no_cuda=cuda == "ERR!",
    )


def parse_table(text: str) -> Smi:
    """Versions and GPUs; cut tables give the GPUs that are there.

    >>> text = '''
    ... | NVIDIA-SMI 450.51.06    Driver Version: 450.51.06    CUDA Version: 11.0     |
    ... |   0  Tesla K20m          Off  | 00000000:03:00.0 Off |                    0 |
    ... | N/A   23C    P0    46W / 225W |      0MiB /  4743MiB |      0%      Default |'''
    >>> smi = parse_table(text)
    >>> smi.cuda_version, smi.gpus[0].name, smi.gpus[0].temperature_celsius
    ('11.0', 'Tesla K20m', 23)
    """
    rows = gpu_rows(text)
    kept = [row.pop("persistence", None) for row in rows]
    return replace(
        parse_banner(text),
        gpus=tuple(Gpu(**row) for row in rows) if rows else None,
        persistence=all(kept) if kept and None not in kept else None,
    )


def cells_of(line: str) -> list[str]:
    return line.strip(" \t*>").strip("|").split("|")


def row_of(line: str) -> re.Match[str] | None:
    """The first line of a GPU."""
    first, *more = cells_of(line)
    return FIRST.match(first) if more else None


def gpu_rows(text: str) -> list[dict[str, Any]]:
    """Each GPU's fields: a first line begins one, the lines after it belong to it."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        if first := row_of(line):
            rows.append(first_line(first, cells_of(line)))
        elif rows and ("Processes:" in line or "MIG devices:" in line):
            break
        elif rows:
            rows[-1].update(next_line(cells_of(line)))
    for row in rows if "No MIG devices found" in text else ():
        row["mig_count"] = 0
    return rows


READS: dict[str, Callable[[str | None], Any]] = {
    **dict.fromkeys(("nvml_index", "temperature_celsius", "utilization_percent"), integer),
    **dict.fromkeys(("name", "pci_bus_id"), cell),
    **dict.fromkeys(("power_watts", "power_limit_watts"), number),
    **dict.fromkeys(("memory_used_bytes", "memory_total_bytes"), memory),
    "driver_model": driver_model,
    "compute_mode": compute_mode,
}
"""How the text of a field is read."""


def fields_of(*hits: re.Match[str] | None) -> dict[str, Any]:
    """The groups of what was found, each a field and read as that."""
    found = (group for hit in hits if hit for group in hit.groupdict().items())
    return {name: READS[name](text) for name, text in found}


def first_line(first: re.Match[str], cells: list[str]) -> dict[str, Any]:
    """`0  NVIDIA L40S  On | 00000000:17:00.0 Off | 0`; on Windows the driver model is the third."""
    _, middle, last, *_ = (*cells, "", "")
    errors = last.strip()
    return {
        **fields_of(first, BUS.search(middle)),
        "name": first["name"],
        "persistence": flag(first["driver_model"]),
        "ecc_enabled": False if errors == "Off" else errors.isdecimal() or None,
        "ecc_uncorrected": int(errors) if errors.isdecimal() else None,
    }


def next_line(cells: list[str]) -> dict[str, Any]:
    """`N/A 33C P0 72W / 400W | 0MiB / 40960MiB | 97% Default`, or the line with the MIG mode."""
    found = [form.search(cell) for form, cell in zip((STATE, MEMORY, LOAD), cells, strict=False)]
    if found[0]:
        lost = {"lost": True} if any(map(says_lost, cells)) else {}
        return {**fields_of(*found), **lost}
    mode = flag(cells[-1]) if len(cells) == 3 and not cells[0].strip() else None
    return {} if mode is None else {"mig_enabled": mode}


RECOVERY_ACTIONS = (
    ("none", "none"),
    ("drain and reset", "drain_and_reset"),
    ("drain p2p and reset", "drain_and_reset"),
    ("drain p2p", "drain_p2p"),
    ("imex", "recover_imex_domain"),
    ("bus reset", "bus_reset"),
    ("system reboot", "system_reboot"),
    ("reboot", "node_reboot"),
    ("reset", "gpu_reset"),
    ("flr", "gpu_reset"),
)
"""Words in nvidia-smi's and the kernel's names -> NVML's; the first that is there counts."""


def recovery_action(text: str | None) -> str | None:
    """What the driver recommends, by one name; `None` is a word of its own here.

    >>> recovery_action("Reset"), recovery_action("Node Reboot Required"), recovery_action("N/A")
    ('gpu_reset', 'node_reboot', None)
    """
    low = (text or "").strip().lower()
    return next((name for words, name in RECOVERY_ACTIONS if words in low), None)


GPU_HEAD = lazy(
    r"(?m)^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])[^\S\n]*$"
)
FIELDS = {
    "name": (cell, "Product Name"),
    "uuid": (cell, "GPU UUID"),
    "memory_total_bytes": (memory, r"FB Memory Usage\n\s+Total"),
    "memory_used_bytes": (memory, r"FB Memory Usage\n(?:.*\n)??(?:.*\n)??\s+Used"),
    "temperature_celsius": (integer, "GPU Current Temp"),
    "power_watts": (number, "(?:(?:Instantaneous|Average) )?Power Draw"),
    "power_limit_watts": (number, "(?:(?:Current|Enforced) )?Power Limit"),
    "compute_mode": (compute_mode, "Compute Mode"),
    "driver_model": (driver_model, r"Driver Model\n\s+Current"),
    "mig_enabled": (flag, r"MIG Mode\n\s+Current"),
    "remap_failed": (flag, "Remapping Failure Occurred"),
    "retired_pending": (flag, "Pending(?: Page Blacklist)?"),
    "licensed": (word({"licensed": True, "unlicensed": False}), "License Status"),
    "recovery_action": (recovery_action, "GPU Recovery Action"),
}  # fmt: skip
"""Field -> how its text is read, its label below that of its section."""
REASONS = {
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
}
"""What holds the clocks down, by its label, in NVML's order."""


def parse_query(text: str) -> Smi:
    """`nvidia-smi -q`, whole, cut, or a part of it (`-d PERFORMANCE`).

    >>> smi = parse_query('''Driver Version                            : 545.29.06
    ... Attached GPUs                             : 1
    ... GPU 00000000:0B:00.0
    ...     Clocks Event Reasons
    ...         SW Power Cap                      : Active''')
    >>> smi.driver_version, smi.gpus[0].throttle_reasons
    ('545.29.06', ('sw_power_cap',))
    """
    head, *parts = GPU_HEAD.split(text)
    return Smi(
        driver_version=dotted(said(head, "(?:KMD|Driver) Version")),
        cuda_version=dotted(said(head, "CUDA (?:UMD )?Version")),
        gpus=tuple(map(gpu_of, parts[::2], parts[1::2])),
    )


def said(page: str, label: str) -> str | None:
    found = re.search(rf"(?m)^\s*{label}\s*:\s(.*)$", page)
    return found[1] if found else None


def gpu_of(bus: str, page: str) -> Gpu:
    read = {name: reads(said(page, label)) for name, (reads, label) in FIELDS.items()}
    known: dict[str, Any] = {**read, "pci_bus_id": bus, "name": read["name"] or "unknown"}
    states = {name: flag(said(page, label)) for label, name in REASONS.items()}
    told = set(states.values()) != {None}
    known["throttle_reasons"] = tuple(name for name in states if states[name]) if told else None
    known["lost"] = says_lost(page) or None
    return Gpu(**known)
