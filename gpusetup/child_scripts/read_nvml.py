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
        "mig_pending": null, "retired_pages": null,
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
standard library, pynvml and the neighbours `driver_answers` and `nvml_health`.
"""

from __future__ import annotations

import os
import sys
import time
from operator import attrgetter
from typing import Any, Callable, Dict, Tuple

import driver_answers as ANSWERS  # type: ignore[import-not-found, unused-ignore]
import nvml_health as HEALTH  # type: ignore[import-not-found, unused-ignore]

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]

COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
VGPU = 2
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
MOST_INSTANCES = 64
"""Of MIG on one GPU; today's have seven."""
LICENSE_LICENSED = 5
"""NVML_GRID_LICENSE_STATE_LICENSED."""

THROTTLE_REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"),
    "display_clock_setting",
)
"""By bit, in NVML's order (nvml.h, nvmlClocksEventReason*)."""


say, plain, NotPlausible = ANSWERS.say, HEALTH.plain, ANSWERS.NotPlausible
dotted = ANSWERS.dotted


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


def either(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """What the first call says, or where this GPU or driver has it not, the second."""

    def told(nvml: Any, handle: Any) -> Any:
        try:
            return first(nvml, handle)
        except nvml.NVMLError:
            return second(nvml, handle)

    return told


def reasons_in(mask: int) -> list[str]:
    return [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]


def licensed(nvml: Any, handle: Any) -> bool | None:
    """Only a vGPU guest needs a licence; None elsewhere."""
    if nvml.nvmlDeviceGetVirtualizationMode(handle) != VGPU:
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


IDENTITY: Fields = (
    ("pci_bus_id", plain("nvmlDeviceGetPciInfo", of=attrgetter("busId"))),
    ("uuid", plain("nvmlDeviceGetUUID")),
    ("name", plain("nvmlDeviceGetName")),
)
FIELDS: Fields = (
    *IDENTITY,
    ("memory_total_bytes", plain("nvmlDeviceGetMemoryInfo", of=attrgetter("total"))),
    ("memory_used_bytes", HEALTH.memory_used),
    (
        "compute_capability",
        plain("nvmlDeviceGetCudaComputeCapability", of=lambda told: "%d.%d" % tuple(told)),
    ),
    ("persistence", plain("nvmlDeviceGetPersistenceMode", of=bool)),
    ("mig_enabled", plain("nvmlDeviceGetMigMode", of=lambda told: bool(told[0]))),
    ("mig_instances", mig_instances),
    ("compute_mode", plain("nvmlDeviceGetComputeMode", of=COMPUTE_MODES.get)),
    ("ecc_enabled", plain("nvmlDeviceGetCurrentEccMode", of=bool)),
    ("ecc_uncorrected", plain("nvmlDeviceGetTotalEccErrors", 1, 0)),  # uncorrected, volatile
    (
        "retired_pending",  # rows from Ampere on, pages up to Volta
        either(
            plain("nvmlDeviceGetRemappedRows", of=lambda told: bool(told[2])),
            plain("nvmlDeviceGetRetiredPagesPendingStatus", of=bool),
        ),
    ),
    ("remap_failed", plain("nvmlDeviceGetRemappedRows", of=lambda told: bool(told[3]))),
    ("temperature_celsius", plain("nvmlDeviceGetTemperature", 0)),
    ("power_watts", plain("nvmlDeviceGetPowerUsage", of=HEALTH.thousandth)),
    ("power_limit_watts", plain("nvmlDeviceGetEnforcedPowerLimit", of=HEALTH.thousandth)),
    (
        "throttle_reasons",  # drivers before 535 know the call by its older name
        either(
            plain("nvmlDeviceGetCurrentClocksEventReasons", of=reasons_in),
            plain("nvmlDeviceGetCurrentClocksThrottleReasons", of=reasons_in),
        ),
    ),
    ("utilization_percent", plain("nvmlDeviceGetUtilizationRates", of=attrgetter("gpu"))),
    ("pcie_generation", plain("nvmlDeviceGetCurrPcieLinkGeneration")),
    ("pcie_generation_max", plain("nvmlDeviceGetMaxPcieLinkGeneration")),
    ("pcie_width", plain("nvmlDeviceGetCurrPcieLinkWidth")),
    ("pcie_width_max", plain("nvmlDeviceGetMaxPcieLinkWidth")),
    ("virtualization", plain("nvmlDeviceGetVirtualizationMode", of=VIRTUALIZATION.get)),
    ("licensed", licensed),
    ("fabric_state", lambda n, h: FABRIC_STATES.get(HEALTH.fabric(n, h).state)),
    ("driver_model", driver_model),
    *HEALTH.FIELDS,
)

SYSTEM_FIELDS: Fields = (
    ("driver_version", lambda nvml: nvml.nvmlSystemGetDriverVersion()),
    ("cuda_version", lambda nvml: dotted(nvml.nvmlSystemGetCudaDriverVersion())),
)
LIBRARY_FIELDS: Fields = (("nvml_version", lambda nvml: nvml.nvmlSystemGetNVMLVersion()),)
"""What the library knows of itself, also where it cannot reach the driver."""


def ask(nvml: Any, fields: Fields, *arguments: Any) -> Answer:
    return ANSWERS.ask(nvml.NVMLError, fields, nvml, *arguments)  # type: ignore[no-any-return]


def count_of(nvml: Any) -> int:
    return ANSWERS.counted(int(nvml.nvmlDeviceGetCount()))  # type: ignore[no-any-return]


def devices(nvml: Any) -> list[Answer]:
    def handle_of(index: int) -> Any:
        nvml.gpu = index
        return nvml, nvml.nvmlDeviceGetHandleByIndex(index)

    count = count_of(nvml)
    say({"part": {"count": count}})
    found: list[Answer] = []
    for index in range(count):
        found.append(ANSWERS.device(nvml.NVMLError, index, handle_of, FIELDS))
        codes = [problem["code"] for problem in found[-1]["problems"]]
        found[-1]["lost"] = nvml.NVML_ERROR_GPU_IS_LOST in codes
    return found


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
        said = {"init": 0, "message": "Success"}
        say({"part": said})
        answer = ask(nvml, (*LIBRARY_FIELDS, *SYSTEM_FIELDS))
        say({"part": answer})
        listed = ask(nvml, (("devices", devices),))
        listed["problems"] = answer["problems"] + listed["problems"]
        answer.update(listed, **said)
    except nvml.NVMLError as problem:
        answer = ask(nvml, LIBRARY_FIELDS)
        answer.update(init=problem.value, message=str(problem))
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


if __name__ == "__main__":
    ANSWERS.run(main)
