"""Rejects implausible values: a value far beyond that of any GPU is not a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIMITS: dict[str, tuple[float, float]] = {
    name: limits
    for names, limits in {
        "memory_total_bytes": (64 << 20, 16 << 40),
        "memory_used_bytes": (0, 16 << 40),
        "temperature_celsius": (-40, 200),
        "power_watts clock_sm_mhz clock_sm_max_mhz": (0, 20_000),
        "power_limit_watts power_limit_default_watts": (1, 20_000),
        "clock_memory_mhz": (0, 100_000),
        "pcie_rx_bytes_per_second pcie_tx_bytes_per_second": (0, 1e13),
        "pcie_limit_bytes_per_second": (1e6, 1e13),
        "nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second": (0, 1e14),
        "utilization_percent memory_busy_percent": (0, 100),
        "pcie_generation pcie_generation_max": (0, 16),
        "pcie_width pcie_width_max": (0, 64),
    }.items()
    for name in names.split()
}
MEMORY = ("memory_used_bytes", "memory_total_bytes")
MOST_POWER = 3.0
"""No card draws this many times its power limit, so a sensor that says so is wrong."""


def implausible(values: Mapping[str, Any]) -> dict[str, str]:
    """The implausible fields, each with a message that shows the value.

    >>> implausible({"memory_used_bytes": 99 << 30, "memory_total_bytes": 80 << 30})
    {'memory_used_bytes': 'not plausible: 99.0 of 80.0 GiB'}
    >>> implausible({"temperature_celsius": 4294967295})
    {'temperature_celsius': 'not plausible: 4294967295'}
    """
    problems: dict[str, str] = {}
    for field, (low, high) in LIMITS.items():
        value = values.get(field)
        if value is not None and not low <= value <= high:
            problems[field] = f"not plausible: {value}"
    if problems.keys().isdisjoint(MEMORY):
        used, total = (values.get(field) or 0 for field in MEMORY)
        if total and used > total:
            amounts = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB"
            problems["memory_used_bytes"] = f"not plausible: {amounts}"
    watts, limit = values.get("power_watts"), values.get("power_limit_watts")
    if watts and limit and watts > limit * MOST_POWER:
        problems.setdefault("power_watts", f"not plausible: {watts} of {limit} W")
    return problems
