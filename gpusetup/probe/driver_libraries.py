"""What the driver's two libraries answer: NVML and the CUDA driver API (libcuda), each asked in a
child: `child_scripts/read_nvml.py`, which documents the form, and `read_cuda.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Event, Gpu, Reading, Snapshot
from gpusetup.probe.patience import place_of
from gpusetup.readings.measures import NOT_PLAUSIBLE, wrong_in
from gpusetup.readings.side import UNNAMED, told, told_gpus
from gpusetup.system.system import System

Answer = Mapping[str, Any]
NVML = "nvml"
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


def read_nvml(system: System, limit: float) -> Snapshot:
    return parse_nvml(system.ask("read_nvml", timeout=limit))


def parse_nvml(answer: Answer) -> Snapshot:
    """The child's answer as values.

    >>> parse_nvml({"init": 9, "message": "Driver Not Loaded", "devices": None}).driver.nvml_code
    9
    """
    said, side = heard(NVML, answer, "nvml_index", "driver")
    kept = [device.get("persistence") for device in said["devices"] or ()]
    driver = Driver(
        version=said.get("driver_version"),
        cuda=said.get("cuda_version"),
        library_version=(said.get("nvml_version") or "").partition(".")[2] or None,
        nvml_code=said.get("init"),
        nvml_message=said.get("message"),
        seconds=said.get("seconds"),
        persistence=all(kept) if kept and None not in kept else None,
    )
    readings = (*told("driver", NVML, driver), *side.readings)
    return replace(side, driver=driver, readings=readings)


def heard(source: str, answer: Answer, index: str, subject: str) -> tuple[dict[str, Any], Snapshot]:
    """What a child said, and of it the GPUs, and an event for each value that it should have told:
    what every GPU has, and where the driver has started, how many there are. `index` names the
    field of its order, `subject` its own readings.
    """
    silent, said = no_answer(source, answer), sound(so_far(answer))
    listed = said.get("devices")
    devices = [sound(device) for device in listed or ()]
    gpus = tuple(gpu_of(device, index) for device in devices)
    events = list(silent.events)
    for device in devices:
        values = {"asked": source, "gpu": str(device["index"])}
        values["bus"] = device.get("pci_bus_id") or ""
        failed = {p["field"]: p for p in device["problems"] if _is_trouble(p)}
        for field, problem in () if device.get("lost") else failed.items():
            if field in NEEDED or problem["code"] == NOT_PLAUSIBLE:
                events.append(Event(kind=READ_FAILED, **_failure(source, problem, values)))
    init = "nvml-init-failed" if source == NVML else "cuda-init-failed"
    for problem in said["problems"] if said.get("init") == 0 else ():
        if _is_trouble(problem):
            events.append(Event(kind=init, **_failure(source, problem, {"asked": source})))
    side = Snapshot(
        gpus=None if listed is None else gpus,
        events=tuple(events),
        readings=(
            *silent.readings,
            *(() if listed is None else told_gpus(source, gpus)),
            *_problems(source, subject, said),
            *(
                reading
                for device in devices
                for reading in _problems(source, f"gpus[{device['index']}]", device)
            ),
        ),
    )
    return {**said, "devices": None if listed is None else devices}, side


def so_far(answer: Answer) -> Answer:
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
    if "count" in known:
        places = range(known["count"])
        known["devices"] = [reached.get(index, {"index": index}) for index in places]
    return known


def no_answer(source: str, answer: Answer) -> Snapshot:
    """Of a child that crashed, hung or could not start: an event that rules can judge.

    >>> no_answer("nvml", {"problem": "crashed with SIGSEGV"}).events[0].values["how"]
    'crashed'
    """
    if "problem" not in answer:
        return Snapshot()
    problem, step = str(answer["problem"]), answer.get("step") or {}
    died = "crashed" if problem.startswith(("crashed", "exit", "ended")) else "failed"
    how = "hung" if problem.startswith("no answer") else died
    values = {"asked": source, "how": how, "problem": problem}
    values |= {key: str(value) for key, value in step.items()}
    text = ", ".join((problem, *filter(None, (place_of(step),))))
    return Snapshot(
        events=(Event(kind="child-failed", values=values, source=source, text=text),),
        readings=(Reading(subject="driver", source=source, problem=text),),
    )


def sound(said: Answer) -> dict[str, Any]:
    """An answer without the values that cannot be; each is a problem instead.

    >>> sound({"temperature_celsius": 4294967295})["problems"][0]["text"]
    'not plausible: 4294967295'
    """
    wrong = wrong_in(said)
    rows = ({"field": name, "code": NOT_PLAUSIBLE, "text": text} for name, text in wrong.items())
    return {**said, **dict.fromkeys(wrong), "problems": (*(said.get("problems") or ()), *rows)}


def _failure(source: str, problem: Answer, values: Mapping[str, str]) -> dict[str, Any]:
    """A value that should be told and is not, as an event's fields."""
    field, text = problem["field"], str(problem["text"])
    said = {**values, "field": field, "code": str(problem["code"]), "problem": text}
    who = f"GPU {values['gpu']} {values['bus']}".rstrip() + ": " if "gpu" in values else ""
    return {"values": said, "source": source, "text": f"{who}{field}: {text}"}


def _is_trouble(problem: Answer) -> bool:
    """What some driver or GPU has not is none; the list of GPUs and their handles all have."""
    code, always = problem["code"], problem["field"] in ("devices", "handle")
    return code not in ABSENT or (always and code == NO_SUCH_CALL)


def gpu_of(device: Answer, index: str) -> Gpu:
    """A device of a child's answer, by the fields of `Gpu`; `index` names the field of its own."""
    instances = device.get("mig_instances")
    known = {
        index: device.get("index"),
        "name": device.get("name") or UNNAMED,
        "mig_instances": instances or (),
        "mig_count": None if instances is None else len(instances),
    }
    return from_plain({**device, **known}, Gpu, what="a GPU")


def _problems(source: str, subject: str, answer: Answer) -> Iterator[Reading]:
    """Why a value is null; what a GPU does not have goes into one line."""
    absent = [one["field"] for one in answer["problems"] if one["code"] in NOT_SUPPORTED]
    for one in answer["problems"]:
        if one["field"] not in absent:
            where = f"{subject}.{one['field']}"
            yield Reading(subject=where, source=source, problem=one["text"])
    if absent:
        lacks = f"not supported: {', '.join(absent)}"
        yield Reading(subject=subject, source=source, problem=lacks)


LIBCUDA = "libcuda"


def read_cuda(system: System, limit: float) -> Snapshot:
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Mapping[str, Any]) -> Snapshot:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    said, side = heard(LIBCUDA, answer, "cuda_index", "cuda_api")
    if problem := said.get("load_error"):  # no libcuda, or none that one can start
        return Snapshot(
            events=(Event(kind="libcuda-missing", source=LIBCUDA, text=problem),),
            readings=(Reading(subject="cuda_api", source=LIBCUDA, problem=problem),),
        )
    api = from_plain({**said, "init_code": said.get("init")}, CudaApi, what="libcuda's answer")
    foreign = [text for key, text in NOT_THE_DRIVERS.items() if said.get(key)]
    driver = Driver(
        cuda=api.version if api.init_code == 0 and not foreign else None,
        libcuda_path=said.get("library"),
        seconds=said.get("seconds"),
    )
    path = "driver.libcuda_path"
    readings = (
        *told("cuda_api", LIBCUDA, api),
        *told("driver", LIBCUDA, driver),
        *side.readings,
        *(Reading(subject=path, source=LIBCUDA, problem=f"this is {text}") for text in foreign),
    )
    return replace(side, cuda_api=api, driver=driver, readings=readings)


NOT_THE_DRIVERS = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}
