"""`nvidia-smi --query-gpu=… --format=csv` and `nvidia-smi -L`: texts with one GPU a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.messages.recovery import recovery_action
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.fields import fabric_state, fabric_status
from gpusetup.readings.nvidia_smi.values import Smi

QUERY = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "clocks_throttle_reasons.active",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
    "mig.mode.current",
    "compute_mode",
    "persistence_mode",
    "display_active",
    "driver_model.current",
)
"""The fields to ask for; a driver that does not know one says so and is asked without it."""


def capability(text: str | None) -> Capability | None:
    known = values.dotted(text)
    return Capability.parse(known) if known and known.count(".") == 1 else None


# The column (without its unit) -> the field of Gpu and how its cell is read.
COLUMNS: dict[str, tuple[str, Callable[[str | None], Any]]] = {
    "index": ("nvml_index", values.integer),
    "name": ("name", values.cell),
    "gpu_name": ("name", values.cell),
    "uuid": ("uuid", values.cell),
    "gpu_uuid": ("uuid", values.cell),
    "pci.bus_id": ("pci_bus_id", values.cell),
    "gpu_bus_id": ("pci_bus_id", values.cell),
    "compute_cap": ("compute_capability", capability),
    "memory.total": ("memory_total_bytes", values.memory),
    "memory.used": ("memory_used_bytes", values.memory),
    "utilization.gpu": ("utilization_percent", values.integer),
    "temperature.gpu": ("temperature_celsius", values.integer),
    "power.draw": ("power_watts", values.number),
    "power.limit": ("power_limit_watts", values.number),
    "pcie.link.gen.current": ("pcie_generation", values.integer),
    "pcie.link.gen.gpucurrent": ("pcie_generation", values.integer),
    "pcie.link.gen.max": ("pcie_generation_max", values.integer),
    "pcie.link.width.current": ("pcie_width", values.integer),
    "pcie.link.width.max": ("pcie_width_max", values.integer),
    "clocks_throttle_reasons.active": ("throttle_reasons", values.throttle_mask),
    "clocks_event_reasons.active": ("throttle_reasons", values.throttle_mask),
    "ecc.mode.current": ("ecc_enabled", values.flag),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", values.integer),
    "retired_pages.pending": ("retired_pending", values.flag),
    "remapped_rows.uncorrectable": ("remapped_rows", values.integer),
    "remapped_rows.pending": ("retired_pending", values.flag),
    "remapped_rows.failure": ("remap_failed", values.flag),
    "power.draw.instant": ("power_watts", values.number),
    "power.draw.average": ("power_watts", values.number),
    "enforced.power.limit": ("power_limit_watts", values.number),
    "power.default_limit": ("power_limit_default_watts", values.number),
    "gpu_recovery_action": ("recovery_action", recovery_action),
    "fabric.state": ("fabric_state", fabric_state),
    "fabric.status": ("fabric_status", fabric_status),
    "vbios_version": ("vbios_version", values.cell),
    "inforom.img": ("inforom_version", values.cell),
    "clocks.max.sm": ("clock_sm_max_mhz", values.integer),
    "clocks.max.memory": ("clock_memory_max_mhz", values.integer),
    "clocks.applications.graphics": ("clock_sm_application_mhz", values.integer),
    "mig.mode.current": ("mig_enabled", values.flag),
    "compute_mode": ("compute_mode", values.compute_mode),
    "driver_model.current": ("driver_model", values.driver_model),
}
PROCESS_COLUMNS = ("pid", "process_name", "used_gpu_memory", "used_memory")
RETIRED = ("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count")
REFUSED = lazy(r'Field "([^"]+)" is not a valid field to query')


def refused_field(text: str) -> str | None:
    """The field that this nvidia-smi does not know.

    >>> refused_field('Field "compute_cap" is not a valid field to query.')
    'compute_cap'
    """
    found = REFUSED.search(text)
    return found.group(1) if found else None


def parse_csv(text: str) -> Smi:
    """The GPUs of a CSV with a header; a last line that is cut gives what it holds.

    >>> head = "index, name, memory.total [MiB]"
    >>> smi = parse_csv(head + "\\n0, NVIDIA L4, 23034 MiB\\n1, [GPU is lost]")
    >>> [(gpu.name, gpu.memory_total_bytes, gpu.lost) for gpu in smi.gpus], smi.complete
    ([('NVIDIA L4', 24152899584, None), ('unknown', None, True)], False)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((place for place, line in enumerate(lines) if is_header(line)), None)
    if start is None:
        return values.parse_error(text) or Smi(complete=False, problems=("no CSV header",))
    header = [name.partition(" [")[0].strip() for name in lines[start].split(",")]
    rows = [_row(header, line) for line in lines[start + 1 :]]
    versions = (values.dotted(row.get("driver_version")) for row in rows)
    kept = [values.flag(row.get("persistence_mode")) for row in rows]
    return Smi(
        driver_version=next((version for version in versions if version), None),
        gpus=with_processes(rows) if "pid" in header else tuple(gpu_of(row) for row in rows),
        persistence=all(kept) if kept and None not in kept else None,
        nvml_code=0,
        complete=all(len(row) == len(header) for row in rows),
    )


PLAIN = ("index", "name", "uuid", "count", "serial", "timestamp", "pid", "pstate")
OTHER = ("driver_version", "vbios_version", "mig.mode.pending")
FIELD = lazy(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[\w%/]+\])?")


def is_header(line: str) -> bool:
    """Names of fields only, and one of them known; a plain word alone is none.

    >>> is_header("index, name, driver_version"), is_header("0, NVIDIA L4, 580.95.05")
    (True, False)
    >>> is_header("memory.total [MiB]"), is_header("name"), is_header("timestamp, power.draw [W]")
    (True, False, True)
    """
    cells = [name.strip() for name in line.split(",")]
    names = [cell.partition(" [")[0] for cell in cells]
    known = [n for n in names if n in COLUMNS or n in OTHER or n in PROCESS_COLUMNS]
    if not all(map(FIELD.fullmatch, cells)):
        return len(known) >= 2 and len(known) * 2 >= len(names)
    return bool(known) and (len(cells) > 1 or names[0] not in PLAIN)


def _row(header: list[str], line: str) -> dict[str, str]:
    return dict(zip(header, (part.strip() for part in line.split(",")), strict=False))


def gpu_of(row: Mapping[str, str]) -> Gpu:
    known = {
        field: value
        for column, (field, read) in COLUMNS.items()
        if column in row and (value := read(row[column])) is not None
    }
    pages = [count for name in RETIRED if (count := values.integer(row.get(name))) is not None]
    if pages:
        known["retired_pages"] = sum(pages)
    wanted, now = values.flag(row.get("mig.mode.pending")), known.get("mig_enabled")
    if wanted is not None and now is not None and wanted != now:
        known["mig_pending"] = wanted
    lost = any(values.says_lost(text) for text in row.values())
    return Gpu(**{"name": "unknown", **known, "lost": lost or None})


def with_processes(rows: list[dict[str, str]]) -> tuple[Gpu, ...]:
    """`--query-compute-apps`: one line a process; a GPU for all that name the same one.

    >>> apps = with_processes([{"gpu_bus_id": "00000000:01:00.0", "pid": "7"}, {"pid": "8"}])
    >>> [(gpu.pci_bus_id, len(gpu.processes)) for gpu in apps]
    [('00000000:01:00.0', 1), (None, 1)]
    """
    gpus: dict[Gpu, list[GpuProcess]] = {}
    for row in rows:
        used = row.get("used_gpu_memory") or row.get("used_memory")
        if (row.get("pid") or "").isdecimal():
            process = values.process("C", row["pid"], row.get("process_name"), used)
            gpus.setdefault(gpu_of(row), []).append(process)
    return tuple(replace(gpu, processes=tuple(held)) for gpu, held in gpus.items())


GPU_LINE = lazy(r"GPU (\d+): (.+?)(?: \(UUID: ([\w-]+)\)?)?\s*$")
MIG_LINE = lazy(r"MIG (\S+)\s+Device\s+(\d+): \(UUID: ([\w/-]+)\)?")


def parse_list(text: str) -> Smi:
    """`nvidia-smi -L`, with the MIG instances of each GPU.

    >>> text = "GPU 0: NVIDIA A30 (UUID: GPU-1)\\n  MIG 1g.6gb Device 0: (UUID: MIG-2)"
    >>> parse_list(text).gpus[0].mig_instances
    ('MIG-2',)
    """
    gpus: list[dict[str, Any]] = []
    for line in text.splitlines():
        if mig := MIG_LINE.search(line):
            _add_instance(gpus, mig.group(3))
        elif gpu := GPU_LINE.search(line):
            index, name, uuid = gpu.groups()
            gpus.append({"nvml_index": int(index), "name": name.strip(), "uuid": uuid})
    if not gpus:
        return values.parse_error(text) or Smi(complete=False, problems=("no GPU line",))
    return Smi(gpus=tuple(Gpu(**gpu) for gpu in gpus), nvml_code=0)


def _add_instance(gpus: list[dict[str, Any]], uuid: str) -> None:
    if gpus:
        gpus[-1]["mig_instances"] = (*gpus[-1].get("mig_instances", ()), uuid)
        gpus[-1]["mig_enabled"] = True
        gpus[-1]["mig_count"] = len(gpus[-1]["mig_instances"])
