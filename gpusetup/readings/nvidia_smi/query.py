"""The long output of `nvidia-smi`, `-q`: a line of it is a label and its value."""

from __future__ import annotations

import re
from typing import Any

from gpusetup.messages.recovery import recovery_action
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.values import Smi

GPU_HEAD = lazy(
    r"(?m)^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])[^\S\n]*$"
)
FIELDS = {
    "name": (values.cell, "Product Name"),
    "uuid": (values.cell, "GPU UUID"),
    "memory_total_bytes": (values.memory, r"FB Memory Usage\n\s+Total"),
    "memory_used_bytes": (values.memory, r"FB Memory Usage\n(?:.*\n)??(?:.*\n)??\s+Used"),
    "temperature_celsius": (values.integer, "GPU Current Temp"),
    "power_watts": (values.number, "(?:(?:Instantaneous|Average) )?Power Draw"),
    "power_limit_watts": (values.number, "(?:(?:Current|Enforced) )?Power Limit"),
    "compute_mode": (values.compute_mode, "Compute Mode"),
    "driver_model": (values.driver_model, r"Driver Model\n\s+Current"),
    "mig_enabled": (values.flag, r"MIG Mode\n\s+Current"),
    "remap_failed": (values.flag, "Remapping Failure Occurred"),
    "retired_pending": (values.flag, "Pending(?: Page Blacklist)?"),
    "licensed": (values.word({"licensed": True, "unlicensed": False}), "License Status"),
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
        driver_version=values.dotted(said(head, "(?:KMD|Driver) Version")),
        cuda_version=values.dotted(said(head, "CUDA (?:UMD )?Version")),
        gpus=tuple(map(gpu_of, parts[::2], parts[1::2])),
    )


def said(page: str, label: str) -> str | None:
    found = re.search(rf"(?m)^\s*{label}\s*:\s(.*)$", page)
    return found[1] if found else None


def gpu_of(bus: str, page: str) -> Gpu:
    read = {name: reads(said(page, label)) for name, (reads, label) in FIELDS.items()}
    known: dict[str, Any] = {**read, "pci_bus_id": bus, "name": read["name"] or "unknown"}
    states = {name: values.flag(said(page, label)) for label, name in REASONS.items()}
    told = set(states.values()) != {None}
    known["throttle_reasons"] = tuple(name for name in states if states[name]) if told else None
    known["lost"] = values.says_lost(page) or None
    return Gpu(**known)
