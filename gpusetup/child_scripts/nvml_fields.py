"""The fields that NVML reports for a GPU: identity, state, memory repairs, links, processes.

Every reader takes the binding and a device's handle, and raises NVMLError if this GPU or driver has
no answer. For units and meaning see nvml.h. Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

import ctypes
from operator import attrgetter
from typing import Any, Callable, Dict, Tuple

Fields = Tuple[Tuple[str, Callable[..., Any]], ...]
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
MOST_INSTANCES = 64
"""The most MIG instances to read on one GPU; today's GPUs have seven."""
THROTTLE_REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"),
    "display_clock_setting",
)
"""The names of the throttle reasons' bits, in NVML's order (nvml.h, nvmlClocksEventReason*)."""
RECOVERY = (
    *("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain"),
    *("bus_reset", "system_reboot"),
)
"""The names of the values of nvmlDeviceGpuRecoveryAction_t, in order."""
GET_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, available from driver 565 on."""
NOT_AVAILABLE = 1 << 62
"""If NVML cannot report a process's memory (Windows with WDDM), it returns a number with all bits
set. Every number from this one on therefore means unknown."""
MOST_PROCESSES = 64
LONGEST_NAME = 64
"""The most characters of a name or version that we keep."""
GPU_SENSOR = 0
SM_CLOCK = 1
UNCORRECTED, VOLATILE = 1, 0
RETIREMENT_CAUSES = (0, 1)
"""NVML's numbers for a temperature sensor, a clock, ECC errors since the driver was loaded, and the
causes for which memory pages were retired (nvml.h)."""


def call_field(function: str, *more: Any, of: Callable[[Any], Any] = lambda value: value) -> Any:
    """A function that reads a field with one call of the binding; `of` extracts the value from the
    result. If an old binding lacks the function, the field has no value."""
    return lambda nvml, handle: of(getattr(nvml, function)(handle, *more))


def from_milli(number: int) -> float:
    return number / 1000


def first_answer(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns the result of the first call or, if this GPU or driver does not
    support it, of the second."""

    def read(nvml: Any, handle: Any) -> Any:
        try:
            return first(nvml, handle)
        except nvml.NVMLError:
            return second(nvml, handle)

    return read


def throttle_reasons(mask: int) -> list[str]:
    """The names of the throttle reasons whose bits are set; newer drivers may set further bits."""
    return [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]


def mig_instances(nvml: Any, handle: Any) -> list[str]:
    """The UUIDs of the MIG devices; [] if MIG is off or the GPU does not support it."""
    uuids: list[str] = []
    for index in range(min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), MOST_INSTANCES)):
        try:
            child = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError as problem:
            # The indexes of the instances may have gaps.
            if problem.value == nvml.NVML_ERROR_NOT_FOUND:
                continue
            raise
        uuids.append(nvml.nvmlDeviceGetUUID(child))
    return uuids


def sram_threshold_exceeded(nvml: Any, handle: Any) -> bool:
    """Whether the GPU had so many corrected SRAM errors that NVIDIA replaces the card."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return bool(status.bThresholdExceeded)


def recovery_action(nvml: Any, handle: Any) -> str | None:
    """The action that the driver recommends, from a field of NVML."""
    answer = nvml.nvmlDeviceGetFieldValues(handle, [GET_RECOVERY_ACTION])[0]
    # Each field has its own error.
    if answer.nvmlReturn != 0:
        raise nvml.NVMLError(answer.nvmlReturn)
    # The value is an enum, an unsigned int. Newer drivers may have more actions.
    action = answer.value.uiVal
    return RECOVERY[action] if action < len(RECOVERY) else None


def fabric_state(nvml: Any, handle: Any) -> str | None:
    """The state of a GPU's registration with the NVLink fabric; None if there is no fabric."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return FABRIC_STATES.get(info.state)


def retired_pages(nvml: Any, handle: Any) -> int:
    """The number of retired memory pages, for all causes."""
    return sum(len(nvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in RETIREMENT_CAUSES)


def nvlinks_active(nvml: Any, handle: Any) -> int:
    """The number of active NVLinks, up to the first link that this GPU does not have."""
    active: list[bool] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError:
            # If the GPU has no link at all, the error says why there is no number.
            if not active:
                raise
            break
    return sum(active)


def processes(nvml: Any, handle: Any) -> list[Dict[str, Any]]:
    """The processes that compute or draw on the GPU, those with the most memory first. Their names
    do not contain folders."""
    rows: Dict[int, Dict[str, Any]] = {}
    for kind, call in (
        ("C", nvml.nvmlDeviceGetComputeRunningProcesses),
        ("G", nvml.nvmlDeviceGetGraphicsRunningProcesses),
    ):
        try:
            running = call(handle)
        except nvml.NVMLError:
            # Some GPUs do not report programs that draw.
            if kind == "C":
                raise
            continue
        for process in running:
            pid, used = process.pid, process.usedGpuMemory
            # On Windows, most programs are in both lists: they compute and draw. There, Windows
            # manages GPU memory itself (WDDM), so the driver does not know a program's share.
            is_in_both = pid in rows and rows[pid]["kind"] != kind
            is_known = used is not None and used < NOT_AVAILABLE
            rows[pid] = {
                "pid": pid,
                "kind": "C+G" if is_in_both else kind,
                "memory_bytes": int(used) if is_known else None,
            }
    by_memory = sorted(rows.values(), key=lambda row: -(row["memory_bytes"] or 0))
    largest = by_memory[:MOST_PROCESSES]
    for row in largest:
        row["name"] = program_name(nvml, row["pid"])
    return largest


def program_name(nvml: Any, pid: int) -> str | None:
    """A process's name; None if NVML cannot find it, because in a container the pids are those of
    the host."""
    try:
        command = nvml.nvmlSystemGetProcessName(pid).replace("\\", "/")
    except (nvml.NVMLError, UnicodeDecodeError):
        return None
    # On Windows the command is a path, which may contain spaces; elsewhere, arguments may follow
    # the path.
    path = command if command.lower().endswith(".exe") else command.split(" ")[0]
    return path.rpartition("/")[2][:LONGEST_NAME] or None


def memory_used(nvml: Any, handle: Any) -> int:
    """The used memory, without what the driver reserves for itself, as `nvidia-smi` shows it.

    From driver 510 on, the first form of NVML's answer counts the reserved memory as used; the
    second form reports it separately (nvml.h, nvmlMemory_v2_t). If the driver or the binding lacks
    the second form, use the first.
    """
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        first_form = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(first_form.used)
    # Some drivers count the reserved memory as used in the second form too.
    fills_the_card = info.used + info.free >= info.total
    if info.reserved and fills_the_card:
        return max(0, int(info.used) - int(info.reserved))
    return int(info.used)


IDENTITY: Fields = (
    ("pci_bus_id", call_field("nvmlDeviceGetPciInfo", of=attrgetter("busId"))),
    ("uuid", call_field("nvmlDeviceGetUUID")),
    ("name", call_field("nvmlDeviceGetName")),
)
FIELDS: Fields = (
    *IDENTITY,
    ("memory_total_bytes", call_field("nvmlDeviceGetMemoryInfo", of=attrgetter("total"))),
    ("memory_used_bytes", memory_used),
    (
        "compute_capability",
        call_field("nvmlDeviceGetCudaComputeCapability", of=lambda value: "%d.%d" % tuple(value)),
    ),
    ("persistence", call_field("nvmlDeviceGetPersistenceMode", of=bool)),
    ("mig_enabled", call_field("nvmlDeviceGetMigMode", of=lambda value: bool(value[0]))),
    ("mig_instances", mig_instances),
    ("compute_mode", call_field("nvmlDeviceGetComputeMode", of=COMPUTE_MODES.get)),
    ("ecc_enabled", call_field("nvmlDeviceGetCurrentEccMode", of=bool)),
    ("ecc_uncorrected", call_field("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE)),
    # Remapped rows are (corrected, uncorrected, whether one is pending, whether one failed).
    (
        "retired_pending",  # rows since Ampere, pages up to Volta
        first_answer(
            call_field("nvmlDeviceGetRemappedRows", of=lambda rows: bool(rows[2])),
            call_field("nvmlDeviceGetRetiredPagesPendingStatus", of=bool),
        ),
    ),
    ("remap_failed", call_field("nvmlDeviceGetRemappedRows", of=lambda rows: bool(rows[3]))),
    ("temperature_celsius", call_field("nvmlDeviceGetTemperature", GPU_SENSOR)),
    ("power_watts", call_field("nvmlDeviceGetPowerUsage", of=from_milli)),
    ("power_limit_watts", call_field("nvmlDeviceGetEnforcedPowerLimit", of=from_milli)),
    # Drivers before 535 know only this older name of the call, and newer ones know it too.
    (
        "throttle_reasons",
        call_field("nvmlDeviceGetCurrentClocksThrottleReasons", of=throttle_reasons),
    ),
    ("utilization_percent", call_field("nvmlDeviceGetUtilizationRates", of=attrgetter("gpu"))),
    ("pcie_generation", call_field("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pcie_generation_max", call_field("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pcie_width", call_field("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pcie_width_max", call_field("nvmlDeviceGetMaxPcieLinkWidth")),
    ("virtualization", call_field("nvmlDeviceGetVirtualizationMode", of=VIRTUALIZATION.get)),
    ("fabric_state", fabric_state),
    ("retired_pages", retired_pages),
    ("sram_threshold_exceeded", sram_threshold_exceeded),
    (
        "power_limit_default_watts",
        call_field("nvmlDeviceGetPowerManagementDefaultLimit", of=from_milli),
    ),
    ("recovery_action", recovery_action),
    ("nvlinks_active", nvlinks_active),
    ("processes", processes),
    ("clock_sm_max_mhz", call_field("nvmlDeviceGetMaxClockInfo", SM_CLOCK)),
    ("vbios_version", call_field("nvmlDeviceGetVbiosVersion", of=lambda text: text[:LONGEST_NAME])),
)
"""The names are the fields of `gpusetup.model.machine.Gpu`."""
EVERY_LINK = 0xFFFFFFFF
COUNTERS = (
    ("pcie_rx_bytes_per_second", 198, 0, 1),
    ("pcie_tx_bytes_per_second", 197, 0, 1),
    ("nvlink_rx_bytes_per_second", 139, EVERY_LINK, 1024),
    ("nvlink_tx_bytes_per_second", 138, EVERY_LINK, 1024),
)
"""For each counter: the name of the field, NVML's field id, its scope, and bytes per unit (bytes
for NVML_FI_DEV_PCIE_COUNT_*, KiB for NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*). A scope with all bits
set means all links."""


def link_counters(nvml: Any, handle: Any) -> Dict[str, int]:
    """The traffic counters that this driver supports. A card without NVLink has none of NVLink."""
    fields = [(field, scope) for _, field, scope, _ in COUNTERS]
    answers = nvml.nvmlDeviceGetFieldValues(handle, fields)
    return {
        name: int(answers[index].value.ullVal) * unit
        for index, (name, _, _, unit) in enumerate(COUNTERS)
        if answers[index].nvmlReturn == 0
    }


def probe_fields(names: str) -> Fields:
    """The rows of `FIELDS` with these names, in the order of `FIELDS`."""
    return tuple(row for row in FIELDS if row[0] in names.split())


EVEN_IF_LOST = probe_fields("memory_used_bytes memory_total_bytes processes")
"""The fields to read in every sample even if the GPU is lost. They are few, because each call may
take seconds."""
EVERY_SAMPLE: Fields = (
    *probe_fields("utilization_percent temperature_celsius power_watts throttle_reasons"),
    *probe_fields("power_limit_watts power_limit_default_watts clock_sm_max_mhz"),
    ("memory_busy_percent", call_field("nvmlDeviceGetUtilizationRates", of=attrgetter("memory"))),
    ("clock_sm_mhz", call_field("nvmlDeviceGetClockInfo", SM_CLOCK)),
    ("counters", link_counters),
)
