"""Which value of `nvidia-smi -q` (text or XML) is which field of a GPU.

Either output is a flat map here, `pci.pci_bus_id` -> `00000000:07:00.0`; names moved between the
formats (v11, v12, v13, and 610's), so a field has several paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.messages.recovery import recovery_action
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values

Flat = dict[str, str]
VIRTUALIZATION = {
    "none": "none",
    "pass-through": "passthrough",
    "vgpu": "vgpu",
    "host vgpu": "host_vgpu",
    "host vsga": "host_vsga",
}


def virtualization(text: str | None) -> str | None:
    """`None` is a word of its own here: bare metal.

    >>> virtualization("None"), virtualization("Pass-Through"), virtualization("N/A")
    ('none', 'passthrough', None)
    """
    return VIRTUALIZATION.get((text or "").strip().lower())


def licensed(text: str | None) -> bool | None:
    """
    >>> licensed("Licensed (Expiry: 2026-1-1)"), licensed("Unlicensed (Restricted)")
    (True, False)
    """
    word = (values.cell(text) or "").lower()
    return word.startswith("licensed") if "licensed" in word else None


def fabric_state(text: str | None) -> str | None:
    """
    >>> fabric_state("In Progress"), fabric_state("N/A")
    ('in_progress', None)
    """
    word = (values.cell(text) or "").lower().replace(" ", "_")
    return word if word in ("completed", "in_progress", "not_started") else None


def fabric_status(text: str | None) -> str | None:
    """
    >>> fabric_status("Success"), fabric_status("N/A")
    ('success', None)
    """
    return (values.cell(text) or "").lower() or None


LINK = "pci.pci_gpu_link_info"
# field, how its text is read, its paths in XML and in `-q`, the newest format first.
FIELDS: tuple[tuple[str, Callable[[str | None], Any], tuple[str, ...]], ...] = (
    ("name", values.cell, ("product_name",)),
    ("uuid", values.cell, ("uuid", "gpu_uuid")),
    ("pci_bus_id", values.cell, ("pci.pci_bus_id", "pci.bus_id", "@id")),
    ("memory_total_bytes", values.memory, ("fb_memory_usage.total",)),
    ("memory_used_bytes", values.memory, ("fb_memory_usage.used",)),
    ("mig_enabled", values.flag, ("mig_mode.current_mig", "mig_mode.current")),
    ("compute_mode", values.compute_mode, ("compute_mode",)),
    ("ecc_enabled", values.flag, ("ecc_mode.current_ecc", "ecc_mode.current")),
    (
        "remap_failed",
        values.flag,
        ("remapped_rows.remapped_row_failure", "remapped_rows.remapping_failure_occurred"),
    ),
    (
        "temperature_celsius",
        values.integer,
        ("temperature.gpu_temp", "temperature.gpu_current_temp"),
    ),
    ("utilization_percent", values.integer, ("utilization.gpu_util", "utilization.gpu")),
    (
        "pcie_generation",
        values.integer,
        (f"{LINK}.pcie_gen.current_link_gen", "pci.gpu_link_info.pcie_generation.current"),
    ),
    (
        "pcie_generation_max",
        values.integer,
        (f"{LINK}.pcie_gen.max_link_gen", "pci.gpu_link_info.pcie_generation.max"),
    ),
    (
        "pcie_width",
        values.integer,
        (f"{LINK}.link_widths.current_link_width", "pci.gpu_link_info.link_width.current"),
    ),
    (
        "pcie_width_max",
        values.integer,
        (f"{LINK}.link_widths.max_link_width", "pci.gpu_link_info.link_width.max"),
    ),
    (
        "virtualization",
        virtualization,
        ("gpu_virtualization_mode.virtualization_mode",),
    ),
    ("licensed", licensed, ("vgpu_software_licensed_product.license_status",)),
    ("fabric_state", fabric_state, ("fabric.state",)),
    ("fabric_status", fabric_status, ("fabric.status",)),
    ("recovery_action", recovery_action, ("gpu_recovery_action",)),
    (
        "sram_threshold_exceeded",
        values.flag,
        ("ecc_errors.aggregate.sram_threshold_exceeded",),
    ),
    (
        "remapped_rows",
        values.integer,
        ("remapped_rows.remapped_row_unc", "remapped_rows.uncorrectable_error"),
    ),
    ("driver_model", values.driver_model, ("driver_model.current_dm", "driver_model.current")),
    ("vbios_version", values.cell, ("vbios_version",)),
    (
        "inforom_version",
        values.cell,
        ("inforom_version.img_version", "inforom_version.image_version"),
    ),
    ("clock_sm_max_mhz", values.integer, ("max_clocks.sm_clock", "max_clocks.sm")),
    ("clock_memory_max_mhz", values.integer, ("max_clocks.mem_clock", "max_clocks.memory")),
    (
        "clock_sm_application_mhz",
        values.integer,
        ("applications_clocks.graphics_clock", "applications_clocks.graphics"),
    ),
)
PENDING = (
    "retired_pages.pending_retirement",
    "retired_pages.pending_blacklist",
    "retired_pages.pending_page_blacklist",
    "remapped_rows.remapped_row_pending",
    "remapped_rows.pending",
)
REASON = lazy(r"clocks_(?:event|throttle)_reasons\.(?:.*\.)?([^.]+)$")
REASON_NAMES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
UNCORRECTED = lazy(
    r"ecc_errors\.volatile\.(?:[sd]ram_uncorrectable(?:_\w+)?|double_bit\.total|uncorrectable\.total)$"
)


def gpu_of(flat: Mapping[str, str]) -> Gpu:
    """A GPU from its flat map."""
    known: dict[str, Any] = {"name": "unknown"}
    for field, read, paths in FIELDS:
        answers = (read(flat[path]) for path in paths if path in flat)
        known[field] = next((answer for answer in answers if answer is not None), None)
    known["name"] = known["name"] or "unknown"
    known["throttle_reasons"] = throttle_reasons(flat)
    known["ecc_uncorrected"] = ecc_uncorrected(flat)
    known.update(power_of(flat))
    known.update(mig_of(flat, known["mig_enabled"]))
    known["fabric_faults"] = fabric_faults(flat)
    known["retired_pages"] = retired_pages(flat)
    known["processes"] = processes(flat)
    known["retired_pending"] = _any([values.flag(flat.get(path)) for path in PENDING])
    known["lost"] = True if any(values.says_lost(text) for text in flat.values()) else None
    return Gpu(**known)


def _any(flags: list[bool | None]) -> bool | None:
    told = [one for one in flags if one is not None]
    return any(told) if told else None


def throttle_reasons(flat: Mapping[str, str]) -> tuple[str, ...] | None:
    """The active ones, in NVML's order; None where the text does not speak of them.

    >>> throttle_reasons({"clocks_event_reasons.clocks_event_reason_sw_power_cap": "Active"})
    ('sw_power_cap',)
    >>> throttle_reasons({"clocks_throttle_reasons.hw_slowdown.hw_thermal_slowdown": "Not Active"})
    ()
    """
    states = {}
    for path, text in flat.items():
        if hit := REASON.match(path):
            states[_reason(hit.group(1))] = values.flag(text)
    if not any(state is not None for state in states.values()):
        return None
    return tuple(name for _, name in values.THROTTLE_BITS if states.get(name))


def _reason(name: str) -> str:
    bare = re.sub(r"^clocks_(?:event|throttle)_reason_", "", name)
    return REASON_NAMES.get(bare, bare)


def ecc_uncorrected(flat: Mapping[str, str]) -> int | None:
    """The volatile uncorrectable errors of all memories together."""
    told = [values.integer(text) for path, text in flat.items() if UNCORRECTED.match(path)]
    known = [count for count in told if count is not None]
    return sum(known) if known else None


POWER = (
    ("power_watts", r"instant(?:aneous)?", r"draw|usage"),
    ("power_watts", r"average", r"draw|usage"),
    ("power_watts", r"draw", r"draw"),
    ("power_limit_watts", r"(?:current|enforced)", r"limit"),
    ("power_limit_watts", r"^power_limit$", r"limit"),
    ("power_limit_default_watts", r"default", r"limit"),
)
"""Field, a word of its value's name, a word of that or of the heading above it (610 nests them)."""
POWER_SECTION = lazy(r"(?:gpu_)?power_readings\.(.+)")


def power_of(flat: Mapping[str, str]) -> dict[str, float | None]:
    """Draw and limits of the GPU (not of its module or memory), in any format's names.

    >>> power_of({"gpu_power_readings.power_draw.instantaneous": "23.78 W"})["power_watts"]
    23.78
    """
    told = {hit.group(1): text for path, text in flat.items() if (hit := POWER_SECTION.match(path))}
    found: dict[str, float | None] = dict.fromkeys(field for field, _, _ in POWER)
    for field, word, about in POWER:
        for name, text in told.items():
            last = name.rpartition(".")[2]
            if re.search(word, last) and re.search(about, name) and not found[field]:
                found[field] = values.number(text) if "W" in text else None
    return found


def mig_of(flat: Mapping[str, str], enabled: bool | None) -> dict[str, Any]:
    """The instances that are counted, and a mode that waits for a reset.

    >>> mig_of({"mig_mode.pending_mig": "Enabled", "mig_devices": "None"}, False)
    {'mig_count': None, 'mig_pending': True}
    """
    wanted = (values.flag(flat.get(f"mig_mode.{name}")) for name in ("pending_mig", "pending"))
    pending = next((one for one in wanted if one is not None), None)
    counted = len(rows_of(flat, "mig_devices")) or len(rows_of(flat, "mig_device"))
    named = {"mig_devices", "mig_device"} & flat.keys()
    return {
        "mig_count": counted or (0 if enabled and named else None),
        "mig_pending": None if pending == enabled or enabled is None else pending,
    }


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
        path.removeprefix("fabric.health."): known.lower()
        for path, text in flat.items()
        if path.startswith("fabric.health.") and (known := values.cell(text) or _none(text))
    }
    if not health:
        return None
    faults = [fault for name, sign, fault in FABRIC_FAULTS if health.get(name) == sign]
    wrong = health.get("incorrect_configuration", "none")
    faults += [] if wrong in ("none", "false") else [wrong.replace(" ", "_")]
    return tuple(faults or (["unhealthy"] if health.get("summary") == "unhealthy" else []))


def _none(text: str) -> str:
    """`None` is an answer where the configuration is asked for."""
    return "none" if text.strip().lower() == "none" else ""


RETIRED = (
    r"retired_pages\.(?:single_bit|multiple_single_bit\w*|sbe)\w*(?:\.retired_count)?",
    r"retired_pages\.double_bit\w*(?:\.retired_count)?",
)


def retired_pages(flat: Mapping[str, str]) -> int | None:
    """The pages retired for either cause.

    >>> retired_pages({"retired_pages.single_bit_ecc": "3", "retired_pages.double_bit_ecc": "1"})
    4
    """
    told = [
        values.integer(text) for p, text in flat.items() if any(re.fullmatch(r, p) for r in RETIRED)
    ]
    known = [count for count in told if count is not None]
    return sum(known) if known else None


PID = ("process_info.pid", "process_id")
KIND = ("process_info.type", "process_id.type")
NAME = ("process_info.process_name", "process_id.name")
USED = ("process_info.used_memory", "process_id.used_gpu_memory")


def processes(flat: Mapping[str, str]) -> tuple[GpuProcess, ...] | None:
    """Those of the last section; () where it says that there is none."""
    rows = rows_of(flat, "processes")
    if not rows:
        return () if _none(flat.get("processes", "")) else None
    found = (
        values.process(_first(row, KIND), _first(row, PID), _first(row, NAME), _first(row, USED))
        for row in rows
    )
    return tuple(one for one in found if one.pid is not None)


def _first(row: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((row[name] for name in names if name in row), None)


# --- sections with several of a kind ------------------------------------------------------------

LISTS = ("processes", "mig_devices", "mig_device")
IN_LIST = lazy(rf"({'|'.join(LISTS)})#(\d+)\.(.+)")


def put(flat: Flat, path: tuple[str, ...], value: str) -> None:
    """A value at its path; in a list a name that comes again begins the next row.

    >>> flat: Flat = {}
    >>> for pid in "78": put(flat, ("processes", "pid"), pid)
    >>> rows_of(flat, "processes")
    [{'pid': '7'}, {'pid': '8'}]
    """
    head, name = path[0], ".".join(path[1:])
    if head not in LISTS or not name:
        flat.setdefault(".".join(path), value)
        return
    last = int(flat.get(f"{head}#", "0"))
    last += f"{head}#{last}.{name}" in flat
    flat[f"{head}#"] = str(last)
    flat[f"{head}#{last}.{name}"] = value


def rows_of(flat: Mapping[str, str], head: str) -> list[Flat]:
    rows: dict[str, Flat] = {}
    for path, value in flat.items():
        if path.startswith(head) and (hit := IN_LIST.match(path)) and hit.group(1) == head:
            rows.setdefault(hit.group(2), {})[hit.group(3)] = value
    return list(rows.values())
