"""What NVML knows of a GPU's health: its memory's repairs, its links, what the driver recommends.

Every function takes the binding and a device's handle, and raises NVMLError where this GPU or this
driver has no answer. Python 3.8 syntax; imports the standard library only.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Tuple

RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""nvmlDeviceGpuRecoveryAction_t."""
GET_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from driver 565 on."""

# Shift in the health mask, its width, the value that is a fault (nvml.h,
# NVML_GPU_FABRIC_HEALTH_MASK_*; two bits each: 0 not supported, 1 true, 2 false).
FABRIC_FAULTS = (
    (0, "bandwidth_degraded"),
    (2, "route_recovery"),
    (4, "route_unhealthy"),
    (6, "access_timeout_recovery"),
)
CONFIGURATION_SHIFT, CONFIGURATION_MASK = 8, 0xF
CONFIGURATIONS = {
    2: "incorrect_sysguid",
    3: "incorrect_chassis_sn",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_gpu_fw",
    7: "invalid_location",
    8: "gpu_state_invalid",
}
NVLINK_TOTALS = (38, 45, 52, 59)
"""NVML_FI_DEV_NVLINK_…_ERROR_COUNT_TOTAL: CRC of flits and of data, replays, recoveries."""
NVLINK_RECOVERIES = (59,)
NOT_AVAILABLE = 1 << 62
"""A process's memory is all bits set where NVML does not tell it (Windows with WDDM)."""
MOST_PROCESSES = 64
REPLACED_CAUSES = (0, 1)
"""NVML_PAGE_RETIREMENT_CAUSE_*: several single bit errors, one double bit error."""


def mig_pending(nvml: Any, handle: Any) -> bool | None:
    """MIG after the next reset, where that is another than now."""
    now, pending = nvml.nvmlDeviceGetMigMode(handle)
    return None if now == pending else bool(pending)


def remapped_rows(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetRemappedRows(handle)[1])


def retired_pages(nvml: Any, handle: Any) -> int:
    return sum(len(nvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in REPLACED_CAUSES)


def sram_threshold_exceeded(nvml: Any, handle: Any) -> bool:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return bool(status.bThresholdExceeded)


def power_limit_default(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000)


def field_values(nvml: Any, handle: Any, fields: Tuple[int, ...]) -> List[int]:
    """The values that this GPU has; NVML's error where it has none of them."""
    told = list(nvml.nvmlDeviceGetFieldValues(handle, list(fields)))
    known = [number(one) for one in told if one.nvmlReturn == 0]
    if not known:
        raise nvml.NVMLError(told[0].nvmlReturn)
    return known


NUMBER_TYPES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""nvmlValueType_t -> the member of the union that holds the value."""


def number(one: Any) -> int:
    return int(getattr(one.value, NUMBER_TYPES.get(one.valueType, "ullVal")))


def recovery_action(nvml: Any, handle: Any) -> str | None:
    return RECOVERY_ACTIONS.get(field_values(nvml, handle, (GET_RECOVERY_ACTION,))[0])


def fabric_info(nvml: Any, handle: Any) -> Any:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info


def fabric_status(nvml: Any, handle: Any) -> str | None:
    """How the registration ended; None where it has not, or where there is no fabric."""
    info = fabric_info(nvml, handle)
    if info.state != 3:
        return None
    return "success" if info.status == 0 else str(nvml.NVMLError(info.status)).lower()


def fabric_faults(nvml: Any, handle: Any) -> list[str] | None:
    info = fabric_info(nvml, handle)
    return faults_of(info.healthMask) if info.state == 3 else None


def faults_of(mask: int) -> list[str] | None:
    """What a health mask says; None where it says nothing.

    >>> faults_of(0b10_01_10_10), faults_of(0), faults_of(0x4AA), faults_of(0x1AA)
    (['route_unhealthy'], None, ['no_partition'], [])
    """
    if not mask:
        return None
    wrong = CONFIGURATIONS.get(mask >> CONFIGURATION_SHIFT & CONFIGURATION_MASK)
    found = [name for shift, name in FABRIC_FAULTS if mask >> shift & 3 == 1]
    return found + ([wrong] if wrong else [])


def nvlinks(nvml: Any, handle: Any) -> list[bool]:
    """Whether each link carries something, up to the first that this GPU has not."""
    found: list[bool] = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            found.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError:
            if not found:
                raise
            break
    return found


def nvlinks_active(nvml: Any, handle: Any) -> int:
    return sum(nvlinks(nvml, handle))


def nvlinks_inactive(nvml: Any, handle: Any) -> list[int]:
    return [link for link, active in enumerate(nvlinks(nvml, handle)) if not active]


def nvlink_errors(nvml: Any, handle: Any) -> int:
    return sum(field_values(nvml, handle, NVLINK_TOTALS))


def nvlink_recoveries(nvml: Any, handle: Any) -> int:
    return sum(field_values(nvml, handle, NVLINK_RECOVERIES))


def processes(nvml: Any, handle: Any) -> list[Dict[str, Any]]:
    """What computes and what draws, the heaviest first; a program's name without its folders."""
    kinds: Dict[int, str] = {}
    used: Dict[int, int | None] = {}
    for kind, call in (
        ("C", "nvmlDeviceGetComputeRunningProcesses"),
        ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ):
        for one in getattr(nvml, call)(handle):
            kinds[one.pid] = "C+G" if kinds.get(one.pid, kind) != kind else kind
            used[one.pid] = one.usedGpuMemory
    rows = [
        {"pid": int(pid), "kind": kinds[pid], "memory_bytes": known_memory(used[pid]),
         "name": program(nvml, pid)}
        for pid in list(kinds)[:MOST_PROCESSES]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -(row["memory_bytes"] or 0))


def known_memory(count: int | None) -> int | None:
    return None if count is None or count >= NOT_AVAILABLE else int(count)


def program(nvml: Any, pid: int) -> str | None:
    """None where NVML may not tell: in a container the numbers are the host's."""
    try:
        name = nvml.nvmlSystemGetProcessName(pid)
    except (nvml.NVMLError, UnicodeDecodeError):
        return None
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    first = text.replace("\\", "/")
    first = first if first.lower().endswith(".exe") else first.split(" ")[0]
    return first.rpartition("/")[2][:64] or None


def clock_sm_max(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))


def clock_memory_max(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))


def clock_sm_application(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))


def vbios_version(nvml: Any, handle: Any) -> str:
    return version(nvml.nvmlDeviceGetVbiosVersion(handle))


def inforom_version(nvml: Any, handle: Any) -> str:
    return version(nvml.nvmlDeviceGetInforomImageVersion(handle))


def version(told: Any) -> str:
    return (told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told))[:64]


FIELDS: Tuple[Tuple[str, Callable[..., Any]], ...] = (
    ("mig_pending", mig_pending),
    ("remapped_rows", remapped_rows),
    ("retired_pages", retired_pages),
    ("sram_threshold_exceeded", sram_threshold_exceeded),
    ("power_limit_default_watts", power_limit_default),
    ("recovery_action", recovery_action),
    ("fabric_status", fabric_status),
    ("fabric_faults", fabric_faults),
    ("nvlinks_active", nvlinks_active),
    ("nvlinks_inactive", nvlinks_inactive),
    ("nvlink_errors", nvlink_errors),
    ("nvlink_recoveries", nvlink_recoveries),
    ("processes", processes),
    ("clock_sm_max_mhz", clock_sm_max),
    ("clock_memory_max_mhz", clock_memory_max),
    ("clock_sm_application_mhz", clock_sm_application),
    ("vbios_version", vbios_version),
    ("inforom_version", inforom_version),
)
"""As the fields of `gpusetup.model.machine.Gpu`."""


def memory_used(nvml: Any, handle: Any) -> int:
    """Bytes in use without what the driver reserves for itself, as `nvidia-smi` shows them.

    From driver 510 on the first form of NVML's answer counts the reserve as used; the second form
    tells it apart (nvml.h, nvmlMemory_v2_t). A driver or a binding without it gives the first.
    """
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    return without_reserve(int(info.total), int(info.reserved), int(info.free), int(info.used))


def without_reserve(total: int, reserved: int, free: int, used: int) -> int:
    """What is in use, also where a driver's `used` counts the reserve: used + free is the total.

    >>> without_reserve(1000, 60, 930, 10), without_reserve(1000, 60, 930, 70)
    (10, 10)
    """
    counted = reserved and used + free >= total
    return max(0, used - reserved) if counted else used
