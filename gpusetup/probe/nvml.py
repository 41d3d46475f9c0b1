"""NVML's answer, asked in a child (`inside/read_nvml.py`, which documents its form)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.model import Capability, Driver, Event, Gpu, GpuProcess, Reading
from gpusetup.probe.side import UNNAMED, GpuSide, told, told_gpus
from gpusetup.probe.system import System

SOURCE = "nvml"
NOT_SUPPORTED = (3, 13)
"""NVML: this GPU does not have it, this driver does not know it; no trouble."""
PLAIN_FIELDS = (
    "uuid",
    "pci_bus_id",
    "memory_total_bytes",
    "memory_used_bytes",
    "mig_enabled",
    "compute_mode",
    "ecc_enabled",
    "ecc_uncorrected",
    "retired_pending",
    "remap_failed",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "utilization_percent",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "virtualization",
    "licensed",
    "fabric_state",
    "driver_model",
    "display_active",
    "mig_pending",
    "remapped_rows",
    "retired_pages",
    "sram_threshold_exceeded",
    "power_limit_default_watts",
    "recovery_action",
    "fabric_status",
    "nvlinks_active",
    "nvlink_errors",
    "nvlink_recoveries",
    "lost",
)
LISTS = ("throttle_reasons", "fabric_faults", "nvlinks_inactive")


def read_nvml(system: System, limit: float) -> GpuSide:
    return parse_nvml(system.ask("read_nvml", timeout=limit), limit)


def parse_nvml(answer: Mapping[str, Any], limit: float = 30) -> GpuSide:
    """The child's answer as values.

    >>> parse_nvml({"init": 9, "message": "Driver Not Loaded", "devices": None}).driver.nvml_code
    9
    """
    if "problem" in answer:
        return no_answer(SOURCE, str(answer["problem"]), limit)
    devices = answer.get("devices")
    gpus = None if devices is None else tuple(gpu_of(device) for device in devices)
    driver = driver_of(answer)
    return GpuSide(
        driver=driver,
        gpus=gpus,
        readings=(
            *told("driver", SOURCE, driver),
            *(told_gpus(SOURCE, gpus) if gpus is not None else ()),
            *(reading for gpu in (answer, *(devices or ())) for reading in problems_of(gpu)),
        ),
    )


def no_answer(source: str, problem: str, limit: float) -> GpuSide:
    """A child that crashed, hung or could not start: an event that rules can judge.

    >>> no_answer("nvml", "crashed with SIGSEGV", 30).events[0].values["how"]
    'crashed'
    >>> no_answer("nvml", "no answer in 30 s", 30).driver.seconds
    30
    """
    how = "crashed" if problem.startswith("crashed") else "failed"
    how = "hung" if problem.startswith("no answer") else how
    values = {"asked": source, "how": how, "problem": problem}
    return GpuSide(
        driver=Driver(seconds=limit if how == "hung" else None),
        events=(Event(kind="child-failed", values=values, source=source, text=problem),),
        readings=(Reading(subject="driver", source=source, problem=problem),),
    )


def driver_of(answer: Mapping[str, Any]) -> Driver:
    devices = answer.get("devices") or ()
    kept = [device.get("persistence") for device in devices]
    return Driver(
        version=answer.get("driver_version"),
        cuda=answer.get("cuda_version"),
        library_version=library_version(answer.get("nvml_version")),
        nvml_code=answer.get("init"),
        nvml_message=answer.get("message"),
        seconds=answer.get("seconds"),
        persistence=all(kept) if kept and None not in kept else None,
    )


def library_version(nvml_version: str | None) -> str | None:
    """NVML's own version is CUDA's major, then the driver release it belongs to.

    >>> library_version("13.580.95.05")
    '580.95.05'
    """
    return nvml_version.partition(".")[2] or None if nvml_version else None


def gpu_of(device: Mapping[str, Any]) -> Gpu:
    capability = device.get("compute_capability")
    instances = device.get("mig_instances")
    held = device.get("processes")
    return Gpu(
        name=device.get("name") or UNNAMED,
        nvml_index=device.get("index"),
        compute_capability=Capability.parse(capability) if capability else None,
        mig_instances=tuple(instances or ()),
        mig_count=None if instances is None else len(instances),
        processes=None if held is None else tuple(GpuProcess(**one) for one in held),
        **dict(_kept(device)),
    )


def _kept(device: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that are kept as they are told."""
    yield from ((field, device.get(field)) for field in PLAIN_FIELDS)
    for name in LISTS:
        told = device.get(name)
        yield name, None if told is None else tuple(told)


def problems_of(answer: Mapping[str, Any]) -> tuple[Reading, ...]:
    """Why a value is null; what a GPU does not have goes into one line."""
    where = f"gpus[{answer['index']}]" if "index" in answer else "driver"
    problems = answer.get("problems") or ()
    absent = [problem["field"] for problem in problems if problem["code"] in NOT_SUPPORTED]
    failed = tuple(
        Reading(subject=f"{where}.{problem['field']}", source=SOURCE, problem=problem["text"])
        for problem in problems
        if problem["code"] not in NOT_SUPPORTED
    )
    if not absent:
        return failed
    lacks = f"not supported: {', '.join(absent)}"
    return (*failed, Reading(subject=where, source=SOURCE, problem=lacks))
