"""Which value of an `nvidia-smi` CSV, `-q` or XML is which field of a GPU.

Each output is a flat map here, `pci.pci_bus_id` -> `["00000000:07:00.0"]`; names moved between the
formats (v11, v12, v13, and 610's), so a field has several; `gpu_` before them is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.messages.recovery import recovery_action
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.readings.nvidia_smi import values

Flat = dict[str, list[str]]

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
    "name": (values.cell, "product_name name"),
    "uuid": (values.cell, "uuid"),
    "pci_bus_id": (values.cell, "pci.pci_bus_id pci.bus_id bus_id id"),
    "compute_capability": (capability, "compute_cap"),
    "memory_total_bytes": (values.memory, "fb_memory_usage.total memory.total"),
    "memory_used_bytes": (values.memory, "fb_memory_usage.used memory.used"),
    "mig_enabled": (values.flag, "mig_mode.current_mig mig_mode.current mig.mode.current"),
    "mig_pending": (values.flag, "mig_mode.pending_mig mig_mode.pending mig.mode.pending"),
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
    "virtualization": (virtualization, "virtualization_mode.virtualization_mode"),
    "licensed": (licensed, "vgpu_software_licensed_product.license_status"),
    "fabric_state": (fabric_state, "fabric.state"),
    "fabric_status": (fabric_status, "fabric.status"),
    "recovery_action": (recovery_action, "recovery_action"),
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
    "power_watts": (
        values.number,
        "power.draw power.draw.instant power.draw.average power_readings.instant_power_draw "
        "power_readings.instantaneous_power_draw power_readings.power_draw.instantaneous "
        "power_readings.average_power_draw power_readings.power_draw.average "
        "power_readings.power_draw",
    ),
    "power_limit_watts": (
        values.number,
        "power.limit enforced.power.limit power_readings.current_power_limit "
        "power_readings.power_limit.current power_readings.enforced_power_limit "
        "power_readings.power_limit",
    ),
    "power_limit_default_watts": (
        values.number,
        "power.default_limit power_readings.default_power_limit power_readings.power_limit.default",
    ),
    "throttle_reasons": (
        values.throttle_mask,
        "clocks_throttle_reasons.active clocks_event_reasons.active",
    ),
}
"""Field -> how its text is read, its names in `-q`, XML and CSV, the newest format first."""
PENDING = lazy(r"retired_pages\.pending\w*|remapped_rows\.(?:remapped_row_)?pending")
SUMS = {
    "retired_pages": lazy(
        r"retired_pages\.(?:(?:single|double)_bit|multiple_single_bit|sbe)\w*"
        r"(?:\.(?:retired_)?count)?"
    ),
    "ecc_uncorrected": lazy(
        r"ecc_errors\.volatile\.(?:[sd]ram_uncorrectable(?:_\w+)?|double_bit\.total"
        r"|uncorrectable\.total)"
    ),
}
"""Field -> the counts that it is the sum of."""
REASON = lazy(
    r"clocks_(?:event|throttle)_reasons\."
    r"(?:.*\.)?(?:clocks_(?:event|throttle)_reason_)?([^.]+)"
)
REASON_NAMES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}


def first(flat: Mapping[str, list[str]], names: str, read: Callable[[str | None], Any]) -> Any:
    """The value of the first of several names that is known."""
    known = (read(flat[name][0]) for name in names.split() if name in flat)
    return next((value for value in known if value is not None), None)


def gpu_of(named: Mapping[str, list[str]]) -> Gpu:
    """A GPU from its flat map.

    >>> gpu_of({"gpu_power_readings.power_draw.instantaneous": ["23.78 W"]}).power_watts
    23.78
    >>> pages = {"retired_pages.single_bit_ecc": ["3"], "retired_pages.double_bit_ecc": ["1"]}
    >>> gpu_of(pages).retired_pages
    4
    >>> gpu_of({"mig_mode.current": ["Disabled"], "mig_mode.pending_mig": ["Enabled"]}).mig_pending
    True
    """
    flat = {name.removeprefix("gpu_"): texts for name, texts in named.items()}
    known = {field: first(flat, names, read) for field, (read, names) in FIELDS.items()}
    for field, form in SUMS.items():
        texts = (one[0] for name, one in flat.items() if form.fullmatch(name))
        if counts := [count for text in texts if (count := values.integer(text)) is not None]:
            known[field] = sum(counts)
    if known["mig_enabled"] in (None, known["mig_pending"]):
        known["mig_pending"] = None
    listed = known["mig_enabled"] and ("mig_devices" in flat or "mig_device" in flat)
    counted = flat.get("mig_devices.mig_device.index") or flat.get("mig_device.index") or ()
    waiting = {values.flag(one[0]) for name, one in flat.items() if PENDING.fullmatch(name)}
    lost = any(values.says_lost(text) for texts in flat.values() for text in texts)
    return Gpu(
        **{
            **known,
            "name": known["name"] or "unknown",
            "throttle_reasons": throttle_reasons(flat) or known["throttle_reasons"],
            "mig_count": len(counted) or (0 if listed else None),
            "processes": processes(flat),
            "retired_pending": True in waiting or (False if False in waiting else None),
            "lost": lost or None,
        }
    )


def throttle_reasons(flat: Mapping[str, list[str]]) -> tuple[str, ...] | None:
    """The active ones, in NVML's order; None where the text does not speak of them.

    >>> throttle_reasons({"clocks_event_reasons.clocks_event_reason_sw_power_cap": ["Active"]})
    ('sw_power_cap',)
    >>> throttle_reasons({"clocks_event_reasons.hw_slowdown.hw_thermal_slowdown": ["Not Active"]})
    ()
    """
    states = {
        hit[1]: values.flag(texts[0])
        for name, texts in flat.items()
        if (hit := REASON.fullmatch(name))
    }
    if not {True, False}.intersection(states.values()):
        return None
    active = {REASON_NAMES.get(name, name) for name, state in states.items() if state}
    return tuple(name for _, name in values.THROTTLE_BITS if name in active)


PROCESS = (
    "process_info.type process_id.type",
    "process_info.pid process_id",
    "process_info.process_name process_id.name",
    "process_info.used_memory process_id.used_gpu_memory",
)


def processes(flat: Mapping[str, list[str]]) -> tuple[GpuProcess, ...] | None:
    """Those of the last section; () where it says that there is none."""
    columns = [
        next((flat[f"processes.{one}"] for one in names.split() if f"processes.{one}" in flat), [])
        for names in PROCESS
    ]
    if not all(columns):
        none = flat.get("processes", [""])[0].strip().lower() == "none"
        return () if none else None
    found = (values.process(*row) for row in zip(*columns, strict=False))
    return tuple(one for one in found if one.pid is not None)
