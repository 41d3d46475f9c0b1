"""What the columns of other monitors' logs mean: one row a name. Pure.

Names are compared in lower case without their unit. Sources: `nvidia-smi --help-query-gpu` and the
manual page of nvidia-smi (dmon, pmon), the short names of DCGM's fields (dcgm_fields.cpp), and
docs.wandb.ai/ref/system-metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.model.frozen import fields
from gpusetup.monitor.values import GpuSample, HostSample, TreeSample
from gpusetup.readings.measures import can_be
from gpusetup.readings.nvidia_smi import values

UNITS = {
    "%": 1.0, "w": 1.0, "mw": 1e-3, "c": 1.0, "mhz": 1.0, "b": 1.0, "kb/s": 1e3, "mb/s": 1e6,
    "gb/s": 1e9, "b/s": 1.0, **dict.fromkeys(("mib", "mb"), 1048576.0),
    **dict.fromkeys(("gib", "gb"), 1073741824.0),
}  # fmt: skip
"""Unit in a heading or a cell -> what a value is multiplied with. nvidia-smi's MB are MiB."""
MOST = 1e18
"""Nothing that is measured is larger, in base units."""

NUMBERS = ("_percent", "_bytes", "_celsius", "_watts", "_mhz", "_per_second")
OURS = {part.name: part.name for part in fields(GpuSample) if part.name.endswith(NUMBERS)}
COLUMNS = {
    **OURS,
    "utilization.gpu": "utilization_percent",
    "utilization.memory": "memory_busy_percent",
    "memory.used": "memory_used_bytes",
    "memory.total": "memory_total_bytes",
    "temperature.gpu": "temperature_celsius",
    "power.draw": "power_watts",
    "power.draw.average": "power_watts",
    "power.draw.instant": "power_watts",
    "power.limit": "power_limit_watts",
    "enforced.power.limit": "power_limit_watts",
    "power.default_limit": "power_limit_default_watts",
    "power.max_limit": "power_limit_max_watts",
    "clocks.sm": "clock_sm_mhz",
    "clocks.current.sm": "clock_sm_mhz",
    "clocks.gr": "clock_sm_mhz",
    "clocks.current.graphics": "clock_sm_mhz",
    "clocks.max.sm": "clock_sm_max_mhz",
    "clocks.max.gr": "clock_sm_max_mhz",
    "utilization.encoder": "encoder_percent",
    "utilization.decoder": "decoder_percent",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "clocks.mem": "clock_memory_mhz",
    "clocks.current.memory": "clock_memory_mhz",
    "pwr": "power_watts",
    "gtemp": "temperature_celsius",
    "temp": "temperature_celsius",
    "sm": "utilization_percent",
    "mem": "memory_busy_percent",
    "enc": "encoder_percent",
    "dec": "decoder_percent",
    "dbecc": "ecc_uncorrected",
    "fb": "memory_used_bytes",
    "mclk": "clock_memory_mhz",
    "pclk": "clock_sm_mhz",
    "rxpci": "pcie_rx_bytes_per_second",
    "txpci": "pcie_tx_bytes_per_second",
    "gputl": "utilization_percent",
    "gract": "utilization_percent",
    "smact": "sm_active_percent",
    "mcutl": "memory_busy_percent",
    "drama": "memory_busy_percent",
    "fbttl": "memory_total_bytes",
    "fbusd": "memory_used_bytes",
    "power": "power_watts",
    "powinst": "power_watts",
    "pmlmt": "power_limit_watts",
    "tmptr": "temperature_celsius",
    "smclk": "clock_sm_mhz",
    "mmclk": "clock_memory_mhz",
    "pcitx": "pcie_tx_bytes_per_second",
    "pcirx": "pcie_rx_bytes_per_second",
    "nvltx": "nvlink_tx_bytes_per_second",
    "nvlrx": "nvlink_rx_bytes_per_second",
}
"""Heading of nvidia-smi's CSV, of its dmon, or of DCGM's dmon, or in our CSV -> field."""
WANDB = {
    "gpu": "utilization_percent",
    "memory": "memory_busy_percent",
    "memoryallocated": "memory_percent",
    "memoryallocatedbytes": "memory_used_bytes",
    "temp": "temperature_celsius",
    "powerwatts": "power_watts",
    "enforcedpowerlimitwatts": "power_limit_watts",
    "smclock": "clock_sm_mhz",
    "memoryclock": "clock_memory_mhz",
    "pcierx": "pcie_rx_bytes_per_second",
    "pcietx": "pcie_tx_bytes_per_second",
}
IN_UNITS = {
    **dict.fromkeys(("memory.used", "memory.total", "fb", "fbttl", "fbusd"), "mib"),
    **dict.fromkeys(("rxpci", "txpci"), "mb/s"),
}
"""The unit of a column where neither its heading nor its cells tell one."""
SHARES = ("gract", "smact", "drama")
"""From 0 to 1; the others are percentages."""
WANDB_NAME = re.compile(r"gpu\.(\d{1,4})\.(\w+)(?:/.*)?$")

INTEGERS = {"clock_sm_mhz", "clock_sm_max_mhz", "clock_memory_mhz", "memory_used_bytes",
            "memory_total_bytes", "cores", "processes", "loader_workers", "gpu_processes",
            "collective_threads", "blocked_processes", "memory_bytes",
            "ecc_uncorrected"}  # fmt: skip
REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)$")
REASONS = (
    *("sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "gpu_idle"),
    *("hw_thermal_slowdown", "hw_power_brake_slowdown", "applications_clocks_setting"),
)

TREE = {part.name: part.name for part in fields(TreeSample)}
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
    """A cell's value in base units, with the first unit that it has or that its heading told.

    >>> quantity("97 %"), quantity("2 MiB mib"), quantity("3", "mb/s"), quantity("[N/A]")
    (97.0, 2097152.0, 3000000.0, None)
    """
    number = r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-z%/]*)\s*(?:\s[a-z%/]+)?"
    match = re.fullmatch(number, cell.lower())
    if match is None:
        return None
    value = float(match[1]) * UNITS.get(match[2] or unit, 1.0)
    return value if abs(value) < MOST else None


def numbers(row: Mapping[str, str], table: Mapping[str, str]) -> dict[str, float]:
    """What the table knows of a row (heading -> cell), the first column of a field."""
    told: dict[str, float] = {}
    for name, field in table.items():
        value = quantity(row.get(name, ""), IN_UNITS.get(name, ""))
        if value is not None and field not in told:
            exact = value * 100 if name in SHARES else value
            exact = round(exact) if field in INTEGERS else exact
            told |= {field: exact} if can_be(field, exact) else {}
    return told


def throttle(row: Mapping[str, str]) -> tuple[str, ...] | None:
    """From nvidia-smi's mask or its columns of reasons, from dmon's violations, or our words."""
    for name, cell in row.items():
        if name.endswith("_reasons.active"):
            return values.throttle_mask(cell)
    if "throttle_reasons" in row:
        return tuple(row["throttle_reasons"].split())
    if found := {m[1]: cell for name, cell in row.items() if (m := REASON.match(name))}:
        return tuple(n for n, cell in found.items() if n in REASONS and values.flag(cell))
    if "pviol" not in row and "tviol" not in row:
        return None
    # dmon: `pviol` is a share of the time, `tviol` a flag.
    power, heat = (quantity(row.get(name, "")) or 0 for name in ("pviol", "tviol"))
    told = (("sw_power_cap", power >= 50), ("sw_thermal_slowdown", heat > 0))
    return tuple(name for name, on in told if on)
