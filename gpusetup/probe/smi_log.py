"""The long outputs of `nvidia-smi`: `-q` as text and `-q -x` as XML (formats v11, v12, v13).

Both hold the same tree. Either becomes a flat map, `pci.pci_bus_id` -> `00000000:07:00.0`, and
rows of paths say which field of a GPU a value is; names moved between the formats, so a field has
several. XML is read tag by tag: one that is cut (nvidia-smi died in the middle of it) gives what
it holds and `complete=False`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpusetup.model import Gpu
from gpusetup.probe import smi_values as values
from gpusetup.probe.smi_values import Smi

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
    (
        "power_watts",
        values.number,
        (
            "gpu_power_readings.instant_power_draw",
            "gpu_power_readings.average_power_draw",
            "gpu_power_readings.power_draw",
            "power_readings.power_draw",
        ),
    ),
    (
        "power_limit_watts",
        values.number,
        (
            "gpu_power_readings.current_power_limit",
            "power_readings.enforced_power_limit",
            "power_readings.power_limit",
        ),
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
    ("driver_model", values.driver_model, ("driver_model.current_dm", "driver_model.current")),
    ("display_active", values.flag, ("display_active",)),
)
PENDING = (
    "retired_pages.pending_retirement",
    "retired_pages.pending_blacklist",
    "retired_pages.pending_page_blacklist",
    "remapped_rows.remapped_row_pending",
    "remapped_rows.pending",
)
REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(?:.*\.)?([^.]+)$")
REASON_NAMES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
UNCORRECTED = re.compile(
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


def smi_of(head: Mapping[str, str], gpus: list[Flat], *, complete: bool) -> Smi:
    """From 610 on the versions have new names, and the old ones may hold a remark."""
    kept = [values.flag(gpu.get("persistence_mode")) for gpu in gpus]
    attached = values.integer(head.get("attached_gpus"))
    return Smi(
        driver_version=_version(head, "kmd_version", "driver_version"),
        cuda_version=_version(head, "cuda_umd_version", "cuda_version"),
        gpus=tuple(gpu_of(gpu) for gpu in gpus),
        persistence=all(kept) if kept and None not in kept else None,
        nvml_code=0,
        complete=complete and attached in (None, len(gpus)),
        problems=() if complete else (f"cut after {len(gpus)} of {attached or 'unknown'} GPUs",),
    )


def _version(head: Mapping[str, str], *names: str) -> str | None:
    return next((known for name in names if (known := values.dotted(head.get(name)))), None)


# --- XML ----------------------------------------------------------------------------------------

TAG = re.compile(r"<(/?)([A-Za-z_][\w.-]*)([^<>]*)>([^<]*)")
ROOT = "nvidia_smi_log"


def parse_xml(text: str) -> Smi:
    """`nvidia-smi -q -x`, whole or cut.

    >>> smi = parse_xml("<nvidia_smi_log><driver_version>595.84</driver_version><attached_gpus>2"
    ...     "</attached_gpus><gpu id='0'><product_name>NVIDIA L4</product_name><pci><pci_bus>06<")
    >>> smi.driver_version, smi.gpus[0].name, smi.complete, smi.problems
    ('595.84', 'NVIDIA L4', False, ('cut after 1 of 2 GPUs',))
    """
    if f"<{ROOT}" not in text:
        return values.parse_error(text) or Smi(complete=False, problems=("no XML",))
    head: Flat = {}
    gpus: list[Flat] = []
    for path, value in leaves(text):
        if path == ("gpu", "@id"):
            gpus.append({"@id": value})
        elif path[0] == "gpu" and gpus:
            gpus[-1].setdefault(".".join(path[1:]), value)
        else:
            head.setdefault(".".join(path), value)
    return smi_of(head, gpus, complete=f"</{ROOT}>" in text)


def leaves(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each value with the names above it, the root's left out; a GPU begins with its `@id`."""
    path: list[str] = []
    for closing, name, rest, content in TAG.findall(text.partition(f"<{ROOT}")[2]):
        if closing:
            _leave(path, name)
            continue
        if name == "gpu" and not path:
            yield ("gpu", "@id"), _attribute(rest)
        if not rest.rstrip().endswith("/"):
            path.append(name)
        if content.strip():
            yield tuple(path), html.unescape(content.strip())


def _leave(path: list[str], name: str) -> None:
    """Close a tag, and what was left open inside it."""
    while name in path and path.pop() != name:
        pass


def _attribute(rest: str) -> str:
    found = re.search(r"id=[\"']([^\"']*)", rest)
    return found.group(1) if found else ""


# --- the text of `nvidia-smi -q` ----------------------------------------------------------------

LABEL = re.compile(r"^(\s*)(\S[^:]*?)\s*(?::\s(.*)|:)?$")
GPU_HEAD = re.compile(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")

NAMED = re.compile(r"^\s*Product Name\s*:(?!.{0,40}\bVirtual\b)")
"""Begins a GPU whose heading was left out; a vGPU's licensed product is none."""
OF_ALL = re.compile(r"^\s*(?:Driver|CUDA|KMD|CUDA UMD) Version\s*:|^\s*Attached GPUs\s*:")
VERSIONS = {"driver_version", "kmd_version", "cuda_version", "cuda_umd_version"}


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
    head: Flat = {}
    gpus: list[Flat] = []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if begins := GPU_HEAD.match(line):
            gpus.append({"@id": begins.group(1)})
            above = []
        elif OF_ALL.match(line):
            _add_line(line.strip(), [], head)
        else:
            if NAMED.match(line) and (
                not gpus or {*gpus[-1]} & {"@id", "product_name"} == {"product_name"}
            ):
                gpus.append({})
                above = []
            _add_line(line, above, gpus[-1] if gpus else head)
    if not gpus and not head.keys() & VERSIONS:
        return values.parse_error(text) or Smi(complete=False, problems=("no nvidia-smi log",))
    attached = values.integer(head.get("attached_gpus"))
    return smi_of(head, gpus, complete=attached in (None, len(gpus)))


def _add_line(line: str, above: list[tuple[int, str]], flat: Flat) -> None:
    """One label: a heading when it has no value; deeper labels belong to it."""
    found = LABEL.match(line)
    if not found:
        return
    depth, label, value = len(found.group(1)), found.group(2), found.group(3)
    while above and above[-1][0] >= depth:
        above.pop()
    name = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
    if value is not None:
        flat.setdefault(".".join((*(one for _, one in above), name)), value.strip())
    above.append((depth, name))
