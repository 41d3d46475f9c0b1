"""NVML's answer, asked in a child (`child_scripts/read_nvml.py`, which documents its form)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpusetup.model.codec import from_plain
from gpusetup.model.machine import Driver, Event, Gpu, Reading
from gpusetup.probe.patience import place_of
from gpusetup.readings.measures import NOT_PLAUSIBLE, wrong_in
from gpusetup.readings.side import UNNAMED, GpuSide, told, told_gpus
from gpusetup.system.system import System

SOURCE = "nvml"
NOT_SUPPORTED = (3, 13)
"""NVML: this GPU does not have it, this driver does not know it; no trouble."""
READ_FAILED = "gpu-read-failed"
"""The kind of event for one value of one GPU that should be there and is not."""
NEEDED = (
    "handle", "name", "uuid", "pci_bus_id", "memory_total_bytes", "compute_capability",
    "temperature_celsius", "power_watts",
)  # fmt: skip
"""What every GPU tells unless something is wrong with it; of a laptop some is not supported."""
NO_SUCH_CALL = 13
ABSENT = (NO_SUCH_CALL, 21, 25, 26, None)
"""Function not found, no data, deprecated, not ready; None: our binding's gap. What one GPU does
not support is judged beside the others (gpu-does-not-answer)."""


def read_nvml(system: System, limit: float) -> GpuSide:
    return parse_nvml(system.ask("read_nvml", timeout=limit))


def parse_nvml(answer: Mapping[str, Any]) -> GpuSide:
    """The child's answer as values.

    >>> parse_nvml({"init": 9, "message": "Driver Not Loaded", "devices": None}).driver.nvml_code
    9
    """
    silent, said = no_answer(SOURCE, answer), sound(so_far(answer))
    listed = said.get("devices")
    uuids = [device.get("uuid") for device in listed or ()]
    twins = {uuid for uuid in uuids if uuid and uuids.count(uuid) > 1}
    devices = [sound(device, twins) for device in listed or ()]
    gpus = tuple(gpu_of(device, "nvml_index") for device in devices)
    kept = [device.get("persistence") for device in devices]
    driver = Driver(
        version=said.get("driver_version"),
        cuda=said.get("cuda_version"),
        library_version=(said.get("nvml_version") or "").partition(".")[2] or None,
        nvml_code=said.get("init"),
        nvml_message=said.get("message"),
        seconds=said.get("seconds"),
        persistence=all(kept) if kept and None not in kept else None,
    )
    return GpuSide(
        driver=driver,
        gpus=None if listed is None else gpus,
        events=(
            *silent.events,
            *(event for device in devices for event in _failed_reads(device)),
            *(
                Event(kind="nvml-init-failed", **failure(SOURCE, problem))
                for problem in said["problems"]
                if said.get("init") == 0 and _is_trouble(problem)
            ),
        ),
        readings=(
            *silent.readings,
            *told("driver", SOURCE, driver),
            *(() if listed is None else told_gpus(SOURCE, gpus)),
            *(reading for one in (said, *devices) for reading in _problems_of(one)),
        ),
    )


def so_far(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a child has told, also before it hung or crashed; a GPU not reached has no name.

    >>> so_far({"problem": "", "parts": [{"count": 2}, {"device": {"index": 0}}]})["devices"]
    [{'index': 0}, {'index': 1}]
    """
    if "problem" not in answer:
        return answer
    known = {key: value for part in answer.get("parts") or () for key, value in part.items()}
    reached = {
        one["index"]: one for part in answer.get("parts") or () if (one := part.get("device"))
    }
    count = known.get("count", known.get("device_count"))
    if count is not None:
        known["devices"] = [reached.get(index, {"index": index}) for index in range(count)]
    return known


def no_answer(source: str, answer: Mapping[str, Any]) -> GpuSide:
    """Of a child that crashed, hung or could not start: an event that rules can judge.

    >>> no_answer("nvml", {"problem": "crashed with SIGSEGV"}).events[0].values["how"]
    'crashed'
    """
    if "problem" not in answer:
        return GpuSide()
    problem, step = str(answer["problem"]), answer.get("step") or {}
    died = "crashed" if problem.startswith(("crashed", "exit", "ended")) else "failed"
    how = "hung" if problem.startswith("no answer") else died
    values = {"asked": source, "how": how, "problem": problem}
    values |= {key: str(value) for key, value in step.items()}
    text = ", ".join((problem, *filter(None, (place_of(step),))))
    return GpuSide(
        events=(Event(kind="child-failed", values=values, source=source, text=text),),
        readings=(Reading(subject="driver", source=source, problem=text),),
    )


def sound(said: Mapping[str, Any], twins: Collection[str] = ()) -> dict[str, Any]:
    """An answer without the values that cannot be; each is a problem instead. The UUID that several
    GPUs have (`twins`) names none of them.

    >>> sound({"temperature_celsius": 4294967295})["problems"][0]["text"]
    'not plausible: 4294967295'
    """
    wrong = wrong_in(said)
    if said.get("uuid") in twins:
        wrong["uuid"] = f"not plausible: several GPUs have {said['uuid']}"
    rows = ({"field": name, "code": NOT_PLAUSIBLE, "text": text} for name, text in wrong.items())
    return {**said, **dict.fromkeys(wrong), "problems": (*(said.get("problems") or ()), *rows)}


def _failed_reads(device: Mapping[str, Any]) -> Iterator[Event]:
    """What this GPU should tell and does not; one that is lost has a finding of its own."""
    failed = {p["field"]: p for p in device["problems"] if _is_trouble(p)}
    index = device.get("index")
    for field, problem in () if device.get("lost") else failed.items():
        if field in NEEDED or problem["code"] == NOT_PLAUSIBLE:
            said = failure(SOURCE, problem, f"GPU {index}: ", asked=SOURCE, gpu=str(index))
            yield Event(kind=READ_FAILED, **said)


def failure(
    source: str, problem: Mapping[str, Any], place: str = "", **values: str
) -> dict[str, Any]:
    """A value that should be told and is not, as an event's fields."""
    field, text = problem["field"], str(problem["text"])
    values |= {"field": field, "code": str(problem["code"]), "problem": text}
    return {"values": values, "source": source, "text": f"{place}{field}: {text}"}


def _is_trouble(problem: Mapping[str, Any]) -> bool:
    """What some driver or GPU has not is none; the list of GPUs and their handles all have."""
    code, always = problem["code"], problem["field"] in ("devices", "handle")
    return code not in ABSENT or (always and code == NO_SUCH_CALL)


def gpu_of(device: Mapping[str, Any], index: str) -> Gpu:
    """A device of a child's answer, by the fields of `Gpu`; `index` names the field of its own."""
    instances = device.get("mig_instances")
    known = {
        index: device.get("index"),
        "name": device.get("name") or UNNAMED,
        "mig_instances": instances or (),
        "mig_count": None if instances is None else len(instances),
    }
    return from_plain({**device, **known}, Gpu, what="a GPU")


def _problems_of(answer: Mapping[str, Any]) -> Iterator[Reading]:
    """Why a value is null; what a GPU does not have goes into one line."""
    where = f"gpus[{answer['index']}]" if "index" in answer else "driver"
    absent = []
    for problem in answer["problems"]:
        if problem["code"] in NOT_SUPPORTED:
            absent.append(problem["field"])
            continue
        subject = f"{where}.{problem['field']}"
        yield Reading(subject=subject, source=SOURCE, problem=problem["text"])
    if absent:
        lacks = f"not supported: {', '.join(absent)}"
        yield Reading(subject=where, source=SOURCE, problem=lacks)
