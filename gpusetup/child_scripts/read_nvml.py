"""Ask NVML about the driver and every GPU; print one line of JSON. Runs in a child of our own.

The answer (keys are always there once NVML was asked; null: see the `problems` beside it):

    {"init": 0, "message": "Success",     what nvmlInit said; where it is not 0, all but
     "seconds": 0.02, "nvml_version": "13.580.95.05",      these four and `problems` is missing
     "driver_version": "580.95.05", "cuda_version": "13.0",
     "devices": [{
        "index": 0, "name": "NVIDIA L40S", "uuid": "GPU-...", "pci_bus_id": "00000000:07:00.0",
        "memory_total_bytes": 42949672960, "memory_used_bytes": 0, "compute_capability": "8.0",
        "persistence": true, "mig_enabled": false, "mig_instances": ["MIG-..."],
        "compute_mode": "Default|Exclusive_Process|Prohibited",
        "ecc_enabled": true, "ecc_uncorrected": 0, "retired_pending": false, "remap_failed": false,
        "temperature_celsius": 33, "power_watts": 72.0, "power_limit_watts": 400.0,
        "throttle_reasons": ["gpu_idle", "sw_power_cap", ...], "utilization_percent": 97,
        "pcie_generation": 4, "pcie_generation_max": 4, "pcie_width": 16, "pcie_width_max": 16,
        "virtualization": "none|passthrough|vgpu|host_vgpu|host_vsga", "licensed": null,
        "fabric_state": "completed|in_progress|not_started", "driver_model": "WDDM|TCC|MCDM",
        "mig_pending": null, "remapped_rows": 0, "retired_pages": null,
        "sram_threshold_exceeded": false, "power_limit_default_watts": 400.0,
        "recovery_action": "none|gpu_reset|node_reboot|...", "fabric_status": "success",
        "fabric_faults": ["route_unhealthy"], "nvlinks_active": 12, "nvlinks_inactive": [],
        "nvlink_errors": 0, "nvlink_recoveries": 0, "processes": [{"pid": 4711, "kind": "C",
        "name": "python3", "memory_bytes": 31000000000}], "lost": false,
        "clock_sm_max_mhz": 1410, "clock_memory_max_mhz": 1215, "clock_sm_application_mhz": 1095,
        "vbios_version": "92.00.45.00.03", "inforom_version": "G506.0200.00.04",
        "problems": [{"field": "ecc_enabled", "code": 3, "text": "Not Supported"}]}],
     "problems": [...]}

Before that line stands one for each step and each part of the answer, in case that a call never
comes back: {"step": "nvmlDeviceGetMemoryInfo", "gpu": 1} is the call that is made next, {"part":
{"device": {...}}} what is known of a device so far, {"part": {"init": 0, "count": 2}} of the rest.

The keys of a device are the fields of `gpusetup.model.machine.Gpu`, but for `index` and
`persistence`. Without the binding: {"problem": "..."}. Python 3.8 syntax; imports the
standard library, pynvml and the neighbours `answers` and `nvml_health`.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any, Callable, Dict, Tuple

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]

COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
MOST_DEVICES = 256
MOST_INSTANCES = 64
"""Of MIG on one GPU; today's have seven."""
NOT_PLAUSIBLE = -1
"""Our own code, beside NVML's: the call worked, and its answer cannot be."""
LICENSE_LICENSED = 5
"""NVML_GRID_LICENSE_STATE_LICENSED."""

# Bit -> name, in NVML's order (nvml.h, nvmlClocksEventReason*).
THROTTLE_REASONS = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)


def neighbour(name: str) -> Any:
    """A file beside this one, also under `-I`."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


HEALTH = neighbour("nvml_health")
ANSWERS = neighbour("answers")
say = ANSWERS.say


def dotted(number: int) -> str:
    """CUDA's way to write a version as a number.

    >>> dotted(12040)
    '12.4'
    """
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def mig_instances(nvml: Any, handle: Any) -> list[str]:
    """The UUIDs of the MIG devices; [] where MIG is off or the GPU has none."""
    found: list[str] = []
    for index in range(min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), MOST_INSTANCES)):
        try:
            child = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError as problem:
            if problem.value == nvml.NVML_ERROR_NOT_FOUND:
                continue
            raise
        found.append(nvml.nvmlDeviceGetUUID(child))
    return found


def ecc_uncorrected(nvml: Any, handle: Any) -> int:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)  # type: ignore[no-any-return]


def retired_pending(nvml: Any, handle: Any) -> bool:
    """Whether a bad page or row waits for a reset: pages up to Volta, rows from Ampere on."""
    try:
        return bool(nvml.nvmlDeviceGetRemappedRows(handle)[2])
    except nvml.NVMLError:
        return bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))


def throttle_reasons(nvml: Any, handle: Any) -> list[str]:
    """Drivers before 535 know the call by its older name."""
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError:
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [name for bit, name in THROTTLE_REASONS if mask & bit]


def virtualization(nvml: Any, handle: Any) -> str | None:
    return VIRTUALIZATION.get(nvml.nvmlDeviceGetVirtualizationMode(handle))


def licensed(nvml: Any, handle: Any) -> bool | None:
    """Only a vGPU guest needs a licence; None elsewhere."""
    if virtualization(nvml, handle) != "vgpu":
        return None
    features = nvml.nvmlDeviceGetGridLicensableFeatures(handle)
    if not features.isGridLicenseSupported:
        return None
    held = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return any(one.featureState == LICENSE_LICENSED or one.featureEnabled for one in held)


def driver_model(nvml: Any, handle: Any) -> str | None:
    if sys.platform != "win32":
        return None
    return DRIVER_MODELS.get(nvml.nvmlDeviceGetCurrentDriverModel(handle))


def plain(function: str, convert: Callable[[Any], Any] = lambda told: told) -> Callable[..., Any]:
    """A field that is one call of the binding."""
    return lambda nvml, handle: convert(getattr(nvml, function)(handle))


IDENTITY: Fields = (
    ("pci_bus_id", lambda n, h: n.nvmlDeviceGetPciInfo(h).busId),
    ("uuid", plain("nvmlDeviceGetUUID")),
    ("name", plain("nvmlDeviceGetName")),
)
"""What tells one GPU from another; asked first, so that it is known where a later call hangs."""
FIELDS: Fields = (
    *IDENTITY,
    ("memory_total_bytes", lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total),
    ("memory_used_bytes", HEALTH.memory_used),
    ("compute_capability", lambda n, h: "%d.%d" % tuple(n.nvmlDeviceGetCudaComputeCapability(h))),
    ("persistence", plain("nvmlDeviceGetPersistenceMode", bool)),
    ("mig_enabled", lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0])),
    ("mig_instances", mig_instances),
    ("compute_mode", plain("nvmlDeviceGetComputeMode", COMPUTE_MODES.get)),
    ("ecc_enabled", plain("nvmlDeviceGetCurrentEccMode", bool)),
    ("ecc_uncorrected", ecc_uncorrected),
    ("retired_pending", retired_pending),
    ("remap_failed", lambda n, h: bool(n.nvmlDeviceGetRemappedRows(h)[3])),
    ("temperature_celsius", lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    ("power_watts", lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000),
    ("power_limit_watts", lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
    ("throttle_reasons", throttle_reasons),
    ("utilization_percent", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu),
    ("pcie_generation", plain("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pcie_generation_max", plain("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pcie_width", plain("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pcie_width_max", plain("nvmlDeviceGetMaxPcieLinkWidth")),
    ("virtualization", virtualization),
    ("licensed", licensed),
    ("fabric_state", lambda n, h: FABRIC_STATES.get(HEALTH.fabric(n, h).state)),
    ("driver_model", driver_model),
    *HEALTH.FIELDS,
)

SYSTEM_FIELDS = (
    ("driver_version", lambda nvml: nvml.nvmlSystemGetDriverVersion()),
    ("cuda_version", lambda nvml: dotted(nvml.nvmlSystemGetCudaDriverVersion())),
)
LIBRARY_FIELDS = (("nvml_version", lambda nvml: nvml.nvmlSystemGetNVMLVersion()),)
"""What the library knows of itself, also where it cannot reach the driver."""


def ask(nvml: Any, fields: Fields, *arguments: Any) -> Answer:
    """Every field by itself, so that one that fails takes no other along."""
    answer: Answer = {}
    problems: list[Answer] = []
    for name, read in fields:
        try:
            answer[name] = read(nvml, *arguments)
        except (UnicodeDecodeError, AttributeError, NotPlausible, nvml.NVMLError) as problem:
            answer[name] = None
            unknown = None if isinstance(problem, AttributeError) else NOT_PLAUSIBLE
            code = getattr(problem, "value", unknown)
            problems.append({"field": name, "code": code, "text": str(problem)})
    answer["problems"] = problems
    return answer


def lost(nvml: Any, problems: list[Answer]) -> bool:
    return any(problem["code"] == nvml.NVML_ERROR_GPU_IS_LOST for problem in problems)


def device(nvml: Any, index: int) -> Answer:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as problem:
        trouble = [{"field": "handle", "code": problem.value, "text": str(problem)}]
        return {"index": index, "lost": lost(nvml, trouble), "problems": trouble}
    answer: Answer = {"index": index}
    problems: list[Answer] = []
    for fields in (*((one,) for one in IDENTITY), FIELDS[len(IDENTITY) :]):
        answer.update(ask(nvml, fields, handle))
        problems += answer.pop("problems")
        say({"part": {"device": answer}})
    answer.update(lost=lost(nvml, problems), problems=problems)
    return answer


def count_of(nvml: Any) -> int:
    count = int(nvml.nvmlDeviceGetCount())
    if count > MOST_DEVICES:
        raise NotPlausible("%d GPUs are more than a machine has" % count)
    return count


def devices(nvml: Any) -> list[Answer]:
    count = count_of(nvml)
    say({"part": {"count": count}})
    found: list[Answer] = []
    for index in range(count):
        nvml.gpu = index
        found.append(device(nvml, index))
    return found


class NotPlausible(Exception):
    """An answer that cannot be."""


class Announced:
    """The binding; each of its calls is said before it is made, so that one that never comes back
    can be named.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self.gpu: int | None = None
        self.bus: str | None = None
        self.quiet = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            if not self.quiet:
                known = (("step", name), ("gpu", self.gpu), ("bus", self.bus))
                say({k: v for k, v in known if v is not None})
            return found(*arguments)

        setattr(self, name, call)
        return call


def binding() -> Any:
    """pynvml, also where it lies beside gpusetup in a folder that `-I` leaves out."""
    try:
        import pynvml
    except ImportError:
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path.append(os.path.dirname(os.path.dirname(here)))
        import pynvml
    return pynvml


def main() -> Answer:
    try:
        nvml = Announced(binding())
    except ImportError as problem:
        return {"problem": "nvidia-ml-py cannot be imported: %s" % problem}
    began = time.monotonic()
    try:
        nvml.nvmlInit()
        say({"part": {"init": 0, "message": "Success"}})
        answer = ask(nvml, (*LIBRARY_FIELDS, *SYSTEM_FIELDS))
        say({"part": answer})
        listed = ask(nvml, (("devices", devices),))
        listed["problems"] = answer["problems"] + listed["problems"]
        answer.update(listed, init=0, message="Success")
    except nvml.NVMLError as problem:
        answer = ask(nvml, LIBRARY_FIELDS)
        answer.update(init=problem.value, message=str(problem))
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


if __name__ == "__main__":
    ANSWERS.keep_apart()
    say(main())
    os._exit(0)  # the libraries' own ends may crash or hang, and nobody waits for them
