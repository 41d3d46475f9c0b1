"""Which value of an `nvidia-smi` CSV, `-q` or XML is which field of a GPU.

Each output is a flat map here, `pci.pci_bus_id` -> `00000000:07:00.0`; names moved between the
formats (v11, v12, v13, and 610's), so a field has several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.messages.recovery import recovery_action
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.readings.nvidia_smi import values

Flat = dict[str, str]
virtualization = values.word(
    {
        "none": "none",
        "pass-through": "passthrough",
        "vgpu": "vgpu",
        "host vgpu": "host_vgpu",
        "host vsga": "host_vsga",
    }
)
"""`None` is a word of its own here: bare metal."""
licensed = values.word({"licensed": True, "unlicensed": False})
fabric_state = values.word(
    {"completed": "completed", "in progress": "in_progress", "not started": "not_started"}
)


def capability(text: str | None) -> Capability | None:
    known = values.dotted(text)
    return Capability.parse(known) if known and known.count(".") == 1 else None


def fabric_status(text: str | None) -> str | None:
    return (values.cell(text) or "").lower() or None


FIELDS: dict[str, tuple[Callable[[str | None], Any], str]] = {
    "nvml_index": (values.integer, "index"),
    "name": (values.cell, "product_name name gpu_name"),
    "uuid": (values.cell, "uuid gpu_uuid"),
    "pci_bus_id": (values.cell, "pci.pci_bus_id pci.bus_id gpu_bus_id @id"),
    "compute_capability": (capability, "compute_cap"),
    "memory_total_bytes": (values.memory, "fb_memory_usage.total memory.total"),
    "memory_used_bytes": (values.memory, "fb_memory_usage.used memory.used"),
    "mig_enabled": (values.flag, "mig_mode.current_mig mig_mode.current mig.mode.current"),
    "compute_mode": (values.compute_mode, "compute_mode"),
    "ecc_enabled": (values.flag, "ecc_mode.current_ecc ecc_mode.current ecc.mode.current"),
    "ecc_uncorrected": (values.integer, "ecc.errors.uncorrected.volatile.total"),
    "remap_failed": (
        values.flag,
        "remapped_rows.remapped_row_failure remapped_rows.remapping_failure_occurred "
        "remapped_rows.failure",
    ),
    "temperature_celsius": (
        values.integer,
        "temperature.gpu_temp temperature.gpu_current_temp temperature.gpu",
    ),
    "utilization_percent": (values.integer, "utilization.gpu_util utilization.gpu"),
    "pcie_generation": (
        values.integer,
        "pci.pci_gpu_link_info.pcie_gen.current_link_gen "
        "pci.gpu_link_info.pcie_generation.current pcie.link.gen.current "
        "pcie.link.gen.gpucurrent",
    ),
    "pcie_generation_max": (
        values.integer,
        "pci.pci_gpu_link_info.pcie_gen.max_link_gen "
        "pci.gpu_link_info.pcie_generation.max pcie.link.gen.max",
    ),
    "pcie_width": (
        values.integer,
        "pci.pci_gpu_link_info.link_widths.current_link_width "
        "pci.gpu_link_info.link_width.current pcie.link.width.current",
    ),
    "pcie_width_max": (
        values.integer,
        "pci.pci_gpu_link_info.link_widths.max_link_width "
        "pci.gpu_link_info.link_width.max pcie.link.width.max",
    ),
    "virtualization": (virtualization, "gpu_virtualization_mode.virtualization_mode"),
    "licensed": (licensed, "vgpu_software_licensed_product.license_status"),
    "fabric_state": (fabric_state, "fabric.state"),
    "fabric_status": (fabric_status, "fabric.status"),
    "recovery_action": (recovery_action, "gpu_recovery_action"),
    "sram_threshold_exceeded": (values.flag, "ecc_errors.aggregate.sram_threshold_exceeded"),
    "driver_model": (values.driver_model, "driver_model.current_dm driver_model.current"),
    "vbios_version": (values.cell, "vbios_version"),
    "inforom_version": (
        values.cell,
        "inforom_version.img_version inforom_version.image_version inforom.img",
    ),
    "clock_sm_max_mhz": (values.integer, "max_clocks.sm_clock max_clocks.sm clocks.max.sm"),
    "clock_memory_max_mhz": (
        values.integer,
        "max_clocks.mem_clock max_clocks.memory clocks.max.memory",
    ),
    "clock_sm_application_mhz": (
        values.integer,
        "applications_clocks.graphics_clock applications_clocks.graphics "
        "clocks.applications.graphics",
    ),
    "power_watts": (values.number, "power.draw power.draw.instant power.draw.average"),
    "power_limit_watts": (values.number, "power.limit enforced.power.limit"),
    "power_limit_default_watts": (values.number, "power.default_limit"),
    "throttle_reasons": (
        values.throttle_mask,
        "clocks_throttle_reasons.active clocks_event_reasons.active",
    ),
}
"""Field -> how its text is read, its names in `-q`, XML and CSV, the newest format first."""
NAMES = frozenset(name for _, names in FIELDS.values() for name in names.split())
POWER = (
    ("power_watts", r"(?=.*(?:draw|usage)).*instant(?:aneous)?.*"),
    ("power_watts", r"(?=.*(?:draw|usage)).*average.*"),
    ("power_watts", r"power_draw"),
    ("power_limit_watts", r"(?=.*limit).*(?:current|enforced)(?!.*\..*\.).*|power_limit"),
    ("power_limit_default_watts", r"(?=.*limit).*default.*"),
)
"""Field, and its names below the readings of the power of the GPU (not of its module or memory)."""
PENDING = lazy(r"retired_pages\.pending\w*|remapped_rows\.(?:remapped_row_)?pending")
RETIRED = lazy(
    r"retired_pages\.(?:(?:single|double)_bit|multiple_single_bit|sbe)\w*(?:\.(?:retired_)?count)?"
)
REASON = lazy(
    r"clocks_(?:event|throttle)_reasons\."
    r"(?:.*\.)?(?:clocks_(?:event|throttle)_reason_)?([^.]+)"
)
REASON_NAMES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
UNCORRECTED = lazy(
    r"ecc_errors\.volatile\.(?:[sd]ram_uncorrectable(?:_\w+)?|double_bit\.total|uncorrectable\.total)"
)


Read = Callable[[str | None], Any]


def told(flat: Mapping[str, str], names: re.Pattern[str], read: Read) -> list[Any]:
    """The values of all names of a form, where they are known."""
    known = (read(text) for name, text in flat.items() if names.fullmatch(name))
    return [value for value in known if value is not None]


def first(flat: Mapping[str, str], names: str, read: Read) -> Any:
    """The value of the first of several names that is known."""
    known = (read(flat[name]) for name in names.split() if name in flat)
    return next((value for value in known if value is not None), None)


def gpu_of(flat: Mapping[str, str]) -> Gpu:
    """A GPU from its flat map.

    >>> gpu_of({"gpu_power_readings.power_draw.instantaneous": "23.78 W"}).power_watts
    23.78
    >>> pages = {"retired_pages.single_bit_ecc": "3", "retired_pages.double_bit_ecc": "1"}
    >>> gpu_of(pages).retired_pages
    4
    >>> gpu_of({"mig_mode.current": "Disabled", "mig_mode.pending_mig": "Enabled"}).mig_pending
    True
    """
    known = {field: first(flat, names, read) for field, (read, names) in FIELDS.items()}
    for field, form in POWER:
        watts = told(flat, re.compile(rf"(?:gpu_)?power_readings\.{form}"), values.number)
        known[field] = known[field] or next(iter(watts), None)
    for field, names in (("ecc_uncorrected", UNCORRECTED), ("retired_pages", RETIRED)):
        if counts := told(flat, names, values.integer):
            known[field] = sum(counts)
    enabled = known["mig_enabled"]
    pending = first(flat, "mig_mode.pending_mig mig_mode.pending mig.mode.pending", values.flag)
    counted = len(rows_of(flat, "mig_devices") or rows_of(flat, "mig_device"))
    listed = enabled and {"mig_devices", "mig_device"} & flat.keys()
    waiting = told(flat, PENDING, values.flag)
    return Gpu(
        **{
            **known,
            "name": known["name"] or "unknown",
            "throttle_reasons": throttle_reasons(flat) or known["throttle_reasons"],
            "mig_count": counted or (0 if listed else None),
            "mig_pending": None if pending == enabled or enabled is None else pending,
            "fabric_faults": fabric_faults(flat),
            "processes": processes(flat),
            "retired_pending": any(waiting) if waiting else None,
            "lost": any(map(values.says_lost, flat.values())) or None,
        }
    )


def throttle_reasons(flat: Mapping[str, str]) -> tuple[str, ...] | None:
    """The active ones, in NVML's order; None where the text does not speak of them.

    >>> throttle_reasons({"clocks_event_reasons.clocks_event_reason_sw_power_cap": "Active"})
    ('sw_power_cap',)
    >>> throttle_reasons({"clocks_throttle_reasons.hw_slowdown.hw_thermal_slowdown": "Not Active"})
    ()
    """
    states = {
        hit[1]: values.flag(text) for name, text in flat.items() if (hit := REASON.fullmatch(name))
    }
    if not {True, False}.intersection(states.values()):
        return None
    active = {REASON_NAMES.get(name, name) for name, state in states.items() if state}
    return tuple(name for _, name in values.THROTTLE_BITS if name in active)


FABRIC_FAULTS = (
    ("bandwidth", "degraded", "bandwidth_degraded"),
    ("route_recovery_in_progress", "true", "route_recovery"),
    ("route_unhealthy", "true", "route_unhealthy"),
    ("access_timeout_recovery", "true", "access_timeout_recovery"),
    ("summary", "limited capacity", "limited_capacity"),
)


def fabric_faults(flat: Mapping[str, str]) -> tuple[str, ...] | None:
    """What ails the NVLink fabric at this GPU; None where the text does not say.

    >>> fabric_faults({"fabric.health.route_unhealthy": "True"})
    ('route_unhealthy',)
    >>> fabric_faults({"fabric.health.incorrect_configuration": "no partition"})
    ('no_partition',)
    """
    health = {
        path.removeprefix("fabric.health."): text.strip().lower()
        for path, text in flat.items()
        if path.startswith("fabric.health.") and (values.cell(text) or _says_none(text))
    }
    if not health:
        return None
    faults = [fault for name, sign, fault in FABRIC_FAULTS if health.get(name) == sign]
    wrong = health.get("incorrect_configuration", "none")
    faults += [] if wrong in ("none", "false") else [wrong.replace(" ", "_")]
    return tuple(faults or (["unhealthy"] if health.get("summary") == "unhealthy" else []))


def _says_none(text: str) -> bool:
    """`None` is an answer where the configuration or the processes are asked for."""
    return text.strip().lower() == "none"


PROCESS = (
    "process_info.type process_id.type",
    "process_info.pid process_id",
    "process_info.process_name process_id.name",
    "process_info.used_memory process_id.used_gpu_memory",
)


def processes(flat: Mapping[str, str]) -> tuple[GpuProcess, ...] | None:
    """Those of the last section; () where it says that there is none."""
    rows = rows_of(flat, "processes")
    if not rows:
        return () if _says_none(flat.get("processes", "")) else None
    found = (values.process(*(first(row, names, str) for names in PROCESS)) for row in rows)
    return tuple(one for one in found if one.pid is not None)


# --- sections with several of a kind ------------------------------------------------------------

LISTS = ("processes", "mig_devices", "mig_device")


def put(flat: Flat, path: tuple[str, ...], value: str) -> None:
    """A value at its path; in a list a name that comes again begins the next row.

    >>> flat: Flat = {}
    >>> for pid in "78": put(flat, ("processes", "pid"), pid)
    >>> rows_of(flat, "processes")
    [{'pid': '7'}, {'pid': '8'}]
    """
    head, name = path[0], ".".join(path[1:])
    if head in LISTS and name:
        row = int(flat.get(f"#{head}", "0"))
        row += f"{head}#{row}#{name}" in flat
        flat |= {f"#{head}": str(row), f"{head}#{row}#{name}": value}
    else:
        flat.setdefault(".".join(path), value)


def rows_of(flat: Mapping[str, str], head: str) -> list[Flat]:
    rows: dict[str, Flat] = {}
    for path, value in flat.items():
        if path.startswith(f"{head}#"):
            _, row, name = path.split("#", 2)
            rows.setdefault(row, {})[name] = value
    return list(rows.values())
