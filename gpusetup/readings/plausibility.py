"""Rejects implausible values: a value far beyond that of any GPU is not a measurement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NOT_PLAUSIBLE = -1
"""The error code for a call that worked but returned an impossible value
(`child_scripts/read_nvml.py` has the same number)."""
LIMITS: dict[str, tuple[float, float]] = {
    name: limits
    for names, limits in {
        "memory_total_bytes": (64 << 20, 16 << 40),
        "memory_used_bytes": (0, 16 << 40),
        "temperature_celsius": (-40, 200),
        "power_watts clock_sm_mhz clock_sm_max_mhz clock_sm_application_mhz": (0, 20_000),
        "power_limit_watts power_limit_default_watts power_limit_max_watts": (1, 20_000),
        "clock_memory_mhz clock_memory_max_mhz": (0, 100_000),
        "pcie_rx_bytes_per_second pcie_tx_bytes_per_second": (0, 1e13),
        "pcie_limit_bytes_per_second": (1e6, 1e13),
        "nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second": (0, 1e14),
        "utilization_percent memory_busy_percent": (0, 100),
        "pcie_generation pcie_generation_max": (0, 16),
        "pcie_width pcie_width_max": (0, 64),
    }.items()
    for name in names.split()
}
FORMS = {
    "name": r".*[A-Za-z].*",
    "uuid": r"[A-Za-z0-9][A-Za-z0-9/-]{2,}",
    "pci_bus_id": r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?",
    "compute_capability": r"[1-9]\d?\.\d",
    "driver_version": r"\d{2,4}(?:\.\d{1,5}){1,3}",
    "cuda_version": r"[1-9]\d?\.\d{1,2}",
}
MEMORY = ("memory_used_bytes", "memory_total_bytes")


def is_plausible(field: str, value: Any) -> bool:
    """
    >>> is_plausible("temperature_celsius", 4294967295), is_plausible("uuid", "")
    (False, False)
    >>> is_plausible("driver_version", "abc.def"), is_plausible("driver_version", "580.95.05")
    (False, True)
    """
    if value is None:
        return True
    if form := FORMS.get(field):
        return bool(re.fullmatch(form, str(value), re.DOTALL))
    low, high = LIMITS.get(field, (value, value))
    return bool(low <= value <= high)


def implausible(values: Mapping[str, Any]) -> dict[str, str]:
    """The implausible fields, each with a message that shows the value.

    >>> implausible({"memory_used_bytes": 99 << 30, "memory_total_bytes": 80 << 30, "uuid": ""})
    {'uuid': "not plausible: ''", 'memory_used_bytes': 'not plausible: 99.0 of 80.0 GiB'}
    """
    problems: dict[str, str] = {}
    for field in (*FORMS, *LIMITS):
        value = values.get(field)
        if not is_plausible(field, value):
            in_words = str(value) if isinstance(value, int | float) else repr(value)
            problems[field] = f"not plausible: {in_words}"
    if problems.keys().isdisjoint(MEMORY):
        used, total = (values.get(field) or 0 for field in MEMORY)
        if total and used > total:
            amounts = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB"
            problems["memory_used_bytes"] = f"not plausible: {amounts}"
    return problems
