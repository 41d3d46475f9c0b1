"""NVML's answer, asked in a child (`child_scripts/read_nvml.py`, which documents its form)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusetup.model.machine import Driver, Event, Gpu, GpuProcess, Reading
from gpusetup.model.versions import Capability
from gpusetup.probe.patience import place_of
from gpusetup.readings.measures import NOT_PLAUSIBLE, wrong_in
from gpusetup.readings.side import UNNAMED, GpuSide, told, told_gpus
from gpusetup.system.system import System

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
    "clock_sm_max_mhz",
    "clock_memory_max_mhz",
    "clock_sm_application_mhz",
    "vbios_version",
    "inforom_version",
    "lost",
)
LISTS = ("throttle_reasons", "fabric_faults", "nvlinks_inactive")


READ_FAILED = "gpu-read-failed"
"""The kind of event for one value of one GPU that should be there and is not."""
NAMED = ("handle", "name", "uuid", "pci_bus_id", "memory_total_bytes", "compute_capability")
MEASURED = ("temperature_celsius", "power_watts")
"""What every GPU tells unless something is wrong with it; of a laptop some is not supported."""
ABSENT = (13, 21, 25, 26, None)
"""Function not found, no data, deprecated, not ready; None: our binding's gap. What one GPU does
not support is judged beside the others (gpu-does-not-answer)."""


def read_nvml(system: System, limit: float) -> GpuSide:
    return parse_nvml(system.ask("read_nvml", timeout=limit))


def parse_nvml(answer: Mapping[str, Any]) -> GpuSide:
    """The child's answer as values.

    >>> parse_nvml({"init": 9, "message": "Driver Not Loaded", "devices": None}).driver.nvml_code
    9
    """
    silent = no_answer(SOURCE, answer) if "problem" in answer else GpuSide()
    told_before = sound(so_far(answer) if "problem" in answer else answer)
    devices = told_before.get("devices")
    checked = None if devices is None else [plausible(one) for one in each_by_itself(devices)]
    gpus = None if checked is None else tuple(gpu_of(device) for device in checked)
    driver = driver_of({**told_before, "devices": checked})
    problems = (told_before, *(checked or ()))
    return GpuSide(
        driver=driver,
        gpus=gpus,
        events=(
            *silent.events,
            *(event for gpu in checked or () for event in failed_reads(gpu)),
            *failed_calls(told_before),
        ),
        readings=(
            *silent.readings,
            *told("driver", SOURCE, driver),
            *(told_gpus(SOURCE, gpus) if gpus is not None else ()),
            *(reading for gpu in problems for reading in problems_of(gpu)),
        ),
    )


def sound(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without versions that cannot be."""
    versions = {name: answer.get(name) for name in ("driver_version", "cuda_version")}
    wrong = wrong_in(versions)
    problems = (*(answer.get("problems") or ()), *_impossible(wrong))
    return {**answer, **dict.fromkeys(wrong), **({"problems": problems} if problems else {})}


def so_far(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What a child had told before it hung or crashed; GPUs that it did not reach have no name.

    >>> so_far({"parts": [{"init": 0}, {"count": 2}, {"device": {"index": 0}}]})["devices"]
    [{'index': 0}, {'index': 1}]
    """
    parts = [part for part in answer.get("parts") or () if isinstance(part, Mapping)]
    known: dict[str, Any] = {}
    for part in parts:
        known.update(part)
    reached = {one["index"]: one for part in parts if (one := part.get("device"))}
    count = known.get("count", known.get("device_count"))
    if count is not None:
        known["devices"] = [reached.get(index, {"index": index}) for index in range(count)]
    return known


def no_answer(source: str, answer: Mapping[str, Any]) -> GpuSide:
    """A child that crashed, hung or could not start: an event that rules can judge.

    >>> no_answer("nvml", {"problem": "crashed with SIGSEGV"}).events[0].values["how"]
    'crashed'
    """
    problem = str(answer["problem"])
    step = answer.get("step")
    values = {"asked": source, "how": _how(problem), "problem": problem}
    if step:
        values |= {key: str(value) for key, value in step.items()}
    text = ", ".join((problem, *filter(None, (place_of(step),))))
    return GpuSide(
        events=(Event(kind="child-failed", values=values, source=source, text=text),),
        readings=(Reading(subject="driver", source=source, problem=text),),
    )


def _how(problem: str) -> str:
    """
    >>> _how("no answer in 30 s"), _how("exit 3: "), _how("nvidia-ml-py cannot be imported")
    ('hung', 'crashed', 'failed')
    """
    if problem.startswith("no answer"):
        return "hung"
    return "crashed" if problem.startswith(("crashed", "exit", "ended")) else "failed"


def plausible(device: Mapping[str, Any]) -> dict[str, Any]:
    """A device without the values that cannot be; each is a problem instead.

    >>> plausible({"temperature_celsius": 4294967295})["problems"][0]["text"]
    'not plausible: 4294967295'
    """
    wrong = wrong_in(device)
    return {
        **device,
        **dict.fromkeys(wrong),
        "problems": (*(device.get("problems") or ()), *_impossible(wrong)),
    }


def _impossible(wrong: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    rows = wrong.items()
    return tuple({"field": field, "code": NOT_PLAUSIBLE, "text": text} for field, text in rows)


def each_by_itself(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Devices without a UUID that several have: it names none of them.

    >>> twins = ({"index": 0, "uuid": "GPU-0000000a"}, {"index": 1, "uuid": "GPU-0000000a"})
    >>> each_by_itself(twins)[0]["problems"][0]["text"]
    'not plausible: several GPUs have GPU-0000000a'
    """
    uuids = [device.get("uuid") for device in devices]
    shared = {uuid for uuid in uuids if uuid and uuids.count(uuid) > 1}
    return [
        _without_uuid(device) if device.get("uuid") in shared else dict(device)
        for device in devices
    ]


def _without_uuid(device: Mapping[str, Any]) -> dict[str, Any]:
    text = f"not plausible: several GPUs have {device['uuid']}"
    told = device.get("problems") or ()
    return {**device, "uuid": None, "problems": (*told, *_impossible({"uuid": text}))}


def failed_reads(device: Mapping[str, Any]) -> tuple[Event, ...]:
    """What this GPU should tell and does not; one that is lost has a finding of its own."""
    failed = {p["field"]: p for p in device["problems"] if _is_trouble(p)}
    if device.get("lost"):
        return ()
    return tuple(
        Event(
            kind=READ_FAILED,
            values={
                "asked": SOURCE,
                "gpu": str(device.get("index")),
                "field": field,
                "code": str(problem["code"]),
                "problem": str(problem["text"]),
            },
            source=SOURCE,
            text=f"GPU {device.get('index')}: {field}: {problem['text']}",
        )
        for field, problem in failed.items()
        if field in (*NAMED, *MEASURED) or problem["code"] == NOT_PLAUSIBLE
    )


def failed_calls(answer: Mapping[str, Any]) -> tuple[Event, ...]:
    """NVML starts and cannot list the GPUs, or does not know its own driver's version."""
    return tuple(
        Event(
            kind="nvml-init-failed",
            values={"field": p["field"], "code": str(p["code"]), "problem": str(p["text"])},
            source=SOURCE,
            text=f"{p['field']}: {p['text']}",
        )
        for p in answer.get("problems") or ()
        if answer.get("init") == 0 and _is_trouble(p)
    )


def _is_trouble(problem: Mapping[str, Any]) -> bool:
    """What some driver or GPU has not is none; the list of GPUs and their handles all have."""
    code = problem["code"]
    return code not in ABSENT or (problem["field"] in NEVER_ABSENT and code == NO_SUCH_CALL)


NEVER_ABSENT = ("devices", "handle")
NO_SUCH_CALL = 13


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
