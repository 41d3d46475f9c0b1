"""What the columns of other monitors' logs mean: one row a name. Pure.

Names are compared in lower case without their unit. Sources: `nvidia-smi --help-query-gpu` and the
manual page of nvidia-smi (dmon, pmon), the short names of DCGM's fields (dcgm_fields.cpp), and
docs.wandb.ai/ref/system-metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpusetup.model.frozen import Frozen, fields
from gpusetup.monitor.values import GpuSample, HostSample, TreeSample
from gpusetup.readings.measures import can_be
from gpusetup.readings.nvidia_smi import values

MEBI, MEGA = float(1 << 20), 1e6
UNITS = {
    "%": 1.0, "w": 1.0, "mw": 1e-3, "c": 1.0, "mhz": 1.0, "mib": MEBI, "mb": MEBI,
    "gib": 1024 * MEBI, "gb": 1024 * MEBI, "b": 1.0,
    "kb/s": 1e3, "mb/s": MEGA, "gb/s": 1e9, "b/s": 1.0,
}  # fmt: skip
"""Unit in a heading or a cell -> what a value is multiplied with. nvidia-smi's MB are MiB."""


MOST = 1e18
"""Nothing that is measured is larger, in base units."""


class Column(Frozen):
    field: str
    unit: str = ""
    """Where neither the heading nor the cell tells one."""
    factor: float = 1.0


def column(field: str, unit: str = "", factor: float = 1.0) -> Column:
    return Column(field=field, unit=unit, factor=factor)


NUMBERS = ("_percent", "_bytes", "_celsius", "_watts", "_mhz", "_per_second")
OURS = {part.name: column(part.name) for part in fields(GpuSample) if part.name.endswith(NUMBERS)}
SMI = {
    "utilization.gpu": column("utilization_percent"),
    "utilization.memory": column("memory_busy_percent"),
    "memory.used": column("memory_used_bytes", "mib"),
    "memory.total": column("memory_total_bytes", "mib"),
    "temperature.gpu": column("temperature_celsius"),
    "power.draw": column("power_watts"),
    "power.draw.average": column("power_watts"),
    "power.draw.instant": column("power_watts"),
    "power.limit": column("power_limit_watts"),
    "enforced.power.limit": column("power_limit_watts"),
    "power.default_limit": column("power_limit_default_watts"),
    "power.max_limit": column("power_limit_max_watts"),
    "clocks.sm": column("clock_sm_mhz"),
    "clocks.current.sm": column("clock_sm_mhz"),
    "clocks.gr": column("clock_sm_mhz"),
    "clocks.current.graphics": column("clock_sm_mhz"),
    "clocks.max.sm": column("clock_sm_max_mhz"),
    "clocks.max.gr": column("clock_sm_max_mhz"),
    "utilization.encoder": column("encoder_percent"),
    "utilization.decoder": column("decoder_percent"),
    "ecc.errors.uncorrected.volatile.total": column("ecc_uncorrected"),
    "clocks.mem": column("clock_memory_mhz"),
    "clocks.current.memory": column("clock_memory_mhz"),
}
DMON = {
    "pwr": column("power_watts"),
    "gtemp": column("temperature_celsius"),
    "temp": column("temperature_celsius"),
    "sm": column("utilization_percent"),
    "mem": column("memory_busy_percent"),
    "enc": column("encoder_percent"),
    "dec": column("decoder_percent"),
    "dbecc": column("ecc_uncorrected"),
    "fb": column("memory_used_bytes", "mib"),
    "mclk": column("clock_memory_mhz"),
    "pclk": column("clock_sm_mhz"),
    "rxpci": column("pcie_rx_bytes_per_second", "mb/s"),
    "txpci": column("pcie_tx_bytes_per_second", "mb/s"),
}
DCGM = {
    "gputl": column("utilization_percent"),
    "gract": column("utilization_percent", factor=100),
    "smact": column("sm_active_percent", factor=100),
    "mcutl": column("memory_busy_percent"),
    "drama": column("memory_busy_percent", factor=100),
    "fbttl": column("memory_total_bytes", "mib"),
    "fbusd": column("memory_used_bytes", "mib"),
    "power": column("power_watts"),
    "powinst": column("power_watts"),
    "pmlmt": column("power_limit_watts"),
    "tmptr": column("temperature_celsius"),
    "smclk": column("clock_sm_mhz"),
    "mmclk": column("clock_memory_mhz"),
    "pcitx": column("pcie_tx_bytes_per_second"),
    "pcirx": column("pcie_rx_bytes_per_second"),
    "nvltx": column("nvlink_tx_bytes_per_second"),
    "nvlrx": column("nvlink_rx_bytes_per_second"),
}
WANDB = {
    "gpu": column("utilization_percent"),
    "memory": column("memory_busy_percent"),
    "memoryallocated": column("memory_percent"),
    "memoryallocatedbytes": column("memory_used_bytes"),
    "temp": column("temperature_celsius"),
    "powerwatts": column("power_watts"),
    "enforcedpowerlimitwatts": column("power_limit_watts"),
    "smclock": column("clock_sm_mhz"),
    "memoryclock": column("clock_memory_mhz"),
    "pcierx": column("pcie_rx_bytes_per_second"),
    "pcietx": column("pcie_tx_bytes_per_second"),
}
WANDB_NAME = re.compile(r"gpu\.(\d{1,4})\.(\w+)(?:/.*)?$")

INTEGERS = {"clock_sm_mhz", "clock_sm_max_mhz", "clock_memory_mhz", "memory_used_bytes",
            "memory_total_bytes", "cores", "processes", "loader_workers", "gpu_processes",
            "collective_threads", "blocked_processes", "memory_bytes",
            "ecc_uncorrected"}  # fmt: skip
REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)$")
REASONS = {
    "sw_power_cap": "sw_power_cap", "hw_slowdown": "hw_slowdown", "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown", "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown", "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
}  # fmt: skip

TREE = {part.name for part in fields(TreeSample)}
HOST_TOO = ("cores", "cpu_percent", "memory_used_bytes", "memory_total_bytes")
"""Fields of the host that stand as `host_…` in our CSV, beside those of the command or a GPU."""
HOST = {
    f"host_{part.name}" if part.name in HOST_TOO else part.name: part.name
    for part in fields(HostSample)
}


def heading(text: str) -> tuple[str, str]:
    """A heading's name and unit.

    >>> heading(" memory.used [MiB]"), heading("pwr")
    (('memory.used', 'mib'), ('pwr', ''))
    """
    match = re.match(r"\s*#?\s*([^\[(]*?)\s*(?:[\[(](.*)[\])])?\s*$", text)
    name, unit = match.groups() if match else (text, None)
    return name.strip().lower(), (unit or "").strip().lower()


def quantity(cell: str, unit: str = "") -> float | None:
    """A cell's value in base units, with the unit that it has or that its heading told.

    >>> quantity("97 %"), quantity("2 MiB"), quantity("3", "mb/s"), quantity("[N/A]"), quantity("-")
    (97.0, 2097152.0, 3000000.0, None, None)
    """
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-z%/]*)\s*", cell.lower())
    if match is None:
        return None
    value = float(match[1]) * UNITS.get(match[2] or unit, 1.0)
    return value if abs(value) < MOST else None


def gpu_fields(row: Mapping[str, tuple[str, str]], table: Mapping[str, Column]) -> dict[str, Any]:
    """`row`: name -> cell and unit. What the table knows, the first column of a field."""
    told: dict[str, Any] = {}
    for name, what in table.items():
        cell, unit = row.get(name, ("", ""))
        value = quantity(cell, unit or what.unit)
        if value is not None and what.field not in told:
            exact = whole(what.field, value * what.factor)
            told |= {what.field: exact} if can_be(what.field, exact) else {}
    reasons = throttle(row)
    return told if reasons is None else {**told, "throttle_reasons": reasons}


def whole(field: str, value: float) -> float | int:
    return round(value) if field in INTEGERS else value


def throttle(row: Mapping[str, tuple[str, str]]) -> tuple[str, ...] | None:
    """From nvidia-smi's mask or its columns of reasons, from dmon's violations, or our words."""
    for name, (cell, _) in row.items():
        if name.endswith("_reasons.active"):
            return values.throttle_mask(cell)
    if "throttle_reasons" in row:
        return tuple(row["throttle_reasons"][0].split())
    found = {m[1]: cell for name, (cell, _) in row.items() if (m := REASON.match(name))}
    if found:
        return tuple(REASONS[n] for n, cell in found.items() if n in REASONS and values.flag(cell))
    return _violations(row)


def _violations(row: Mapping[str, tuple[str, str]]) -> tuple[str, ...] | None:
    """dmon: `pviol` is a share of the time, `tviol` a flag."""
    if "pviol" not in row and "tviol" not in row:
        return None
    power, heat = (quantity(row.get(name, ("", ""))[0]) or 0 for name in ("pviol", "tviol"))
    told = (("sw_power_cap", power >= 50), ("sw_thermal_slowdown", heat > 0))
    return tuple(name for name, on in told if on)
