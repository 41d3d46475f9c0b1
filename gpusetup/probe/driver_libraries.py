"""What the driver's two libraries answer: NVML and the CUDA driver API (libcuda), each asked in a
child: `child_scripts/read_nvml.py`, which documents the form, and `read_cuda.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Event, Gpu, GpuLink, Reading, Snapshot
from gpusetup.probe.deadline import step_in_words
from gpusetup.readings.plausibility import NOT_PLAUSIBLE, implausible
from gpusetup.readings.sources import UNNAMED, gpu_readings, readings_of
from gpusetup.system.system import System

Answer = Mapping[str, Any]


class Library(NamedTuple):
    """One of the driver's libraries, and how its child's answer is named in a snapshot."""

    source: str
    number_field: str
    """The field of `Gpu` that has its number there."""
    subject: str
    """Of its own readings."""
    init_failed: str
    """The kind of event for a start without all that follows it."""


NVML = Library("nvml", "nvml_index", "driver", "nvml-init-failed")
LIBCUDA = Library("libcuda", "cuda_index", "cuda_api", "cuda-init-failed")
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
    values, shared = parse_answer(NVML, answer)
    persistence = [device.get("persistence") for device in values["devices"] or ()]
    driver = Driver(
        version=values.get("driver_version"),
        cuda=values.get("cuda_version"),
        library_version=(values.get("nvml_version") or "").partition(".")[2] or None,
        nvml_code=values.get("init"),
        nvml_message=values.get("message"),
        seconds=values.get("seconds"),
        persistence=all(persistence) if persistence and None not in persistence else None,
    )
    readings = (*readings_of("driver", NVML.source, driver), *shared.readings)
    return replace(shared, driver=driver, gpu_links=links_of(values), readings=readings)


def links_of(values: Answer) -> tuple[GpuLink, ...] | None:
    """How the GPUs are connected, if there are several and NVML tells.

    >>> links_of({"links": [[0, 1, "NV12"]]})[0].kind
    'NV12'
    """
    listed = values.get("links")
    if not listed:
        return None
    return tuple(GpuLink(first=first, second=second, kind=kind) for first, second, kind in listed)


def read_cuda(system: System, limit: float) -> Snapshot:
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Answer) -> Snapshot:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    values, shared = parse_answer(LIBCUDA, answer)
    source = LIBCUDA.source
    if problem := values.get("load_error"):  # no libcuda, or none that one can start
        return Snapshot(
            events=(Event(kind="libcuda-missing", source=source, text=problem),),
            readings=(Reading(subject="cuda_api", source=source, problem=problem),),
        )
    api = from_plain({**values, "init_code": values.get("init")}, CudaApi, what="libcuda's answer")
    foreign = [text for key, text in NOT_THE_DRIVERS.items() if values.get(key)]
    driver = Driver(
        cuda=api.version if api.init_code == 0 and not foreign else None,
        libcuda_path=values.get("library"),
        seconds=values.get("seconds"),
    )
    path = "driver.libcuda_path"
    readings = (
        *readings_of("cuda_api", source, api),
        *readings_of("driver", source, driver),
        *shared.readings,
        *(Reading(subject=path, source=source, problem=f"this is {text}") for text in foreign),
    )
    return replace(shared, cuda_api=api, driver=driver, readings=readings)


NOT_THE_DRIVERS = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}


# --- what both children answer ------------------------------------------------------------------


def parse_answer(library: Library, answer: Answer) -> tuple[dict[str, Any], Snapshot]:
    """The plausible values of a child's answer, and the snapshot that both libraries' answers give:
    the GPUs, an event for each value that should be there and is not, the readings."""
    failure, values = child_failure(library.source, answer), only_plausible(partial(answer))
    listed = values.get("devices")
    devices = [only_plausible(device) for device in listed or ()]
    gpus = tuple(gpu_of(device, library.number_field) for device in devices)
    device_readings = (
        reading
        for device in devices
        for reading in _problem_readings(library.source, f"gpus[{device['index']}]", device)
    )
    shared = Snapshot(
        gpus=None if listed is None else gpus,
        events=(*failure.events, *_missing_values(library, values, devices)),
        readings=(
            *failure.readings,
            *(() if listed is None else gpu_readings(library.source, gpus)),
            *_problem_readings(library.source, library.subject, values),
            *device_readings,
        ),
    )
    return {**values, "devices": None if listed is None else devices}, shared


def partial(answer: Answer) -> Answer:
    """What a child has told, also before it hung or crashed; a GPU not reached has no name.

    >>> partial({"problem": "", "parts": [{"count": 2}, {"device": {"index": 0}}]})["devices"]
    [{'index': 0}, {'index': 1}]
    """
    if "problem" not in answer:
        return answer
    parts = answer.get("parts") or ()
    known = {key: value for part in parts for key, value in part.items()}
    reached = {device["index"]: device for part in parts if (device := part.get("device"))}
    if "count" in known:
        numbers = range(known["count"])
        known["devices"] = [reached.get(number, {"index": number}) for number in numbers]
    return known


def child_failure(source: str, answer: Answer) -> Snapshot:
    """Of a child that crashed, hung or could not start: an event that rules can judge.

    >>> child_failure("nvml", {"problem": "crashed with SIGSEGV"}).events[0].values["how"]
    'crashed'
    """
    if "problem" not in answer:
        return Snapshot()
    problem, step = str(answer["problem"]), answer.get("step") or {}
    died = "crashed" if problem.startswith(("crashed", "exit", "ended")) else "failed"
    how = "hung" if problem.startswith("no answer") else died
    values = {"asked": source, "how": how, "problem": problem}
    values |= {key: str(value) for key, value in step.items()}
    text = ", ".join((problem, *filter(None, (step_in_words(step),))))
    return Snapshot(
        events=(Event(kind="child-failed", values=values, source=source, text=text),),
        readings=(Reading(subject="driver", source=source, problem=text),),
    )


def only_plausible(values: Answer) -> dict[str, Any]:
    """An answer without the values that cannot be; each is a problem instead.

    >>> only_plausible({"temperature_celsius": 4294967295})["problems"][0]["text"]
    'not plausible: 4294967295'
    """
    wrong = implausible(values)
    rows = ({"field": name, "code": NOT_PLAUSIBLE, "text": text} for name, text in wrong.items())
    problems = (*(values.get("problems") or ()), *rows)
    return {**values, **dict.fromkeys(wrong), "problems": problems}


def _missing_values(library: Library, values: Answer, devices: Sequence[Answer]) -> Iterator[Event]:
    """Events for values that every GPU has, and if the driver has started, for their number."""
    source = library.source
    for device in devices:
        bus = device.get("pci_bus_id") or ""
        gpu = {"asked": source, "gpu": str(device["index"]), "bus": bus}
        failed = {p["field"]: p for p in device["problems"] if _is_trouble(p)}
        for field, problem in () if device.get("lost") else failed.items():
            if field in NEEDED or problem["code"] == NOT_PLAUSIBLE:
                yield Event(kind=READ_FAILED, **_event_fields(source, problem, gpu))
    for problem in values["problems"] if values.get("init") == 0 else ():
        if _is_trouble(problem):
            fields = _event_fields(source, problem, {"asked": source})
            yield Event(kind=library.init_failed, **fields)


def _event_fields(source: str, problem: Answer, values: Mapping[str, str]) -> dict[str, Any]:
    field, text = problem["field"], str(problem["text"])
    all_values = {**values, "field": field, "code": str(problem["code"]), "problem": text}
    who = f"GPU {values['gpu']} {values['bus']}".rstrip() + ": " if "gpu" in values else ""
    return {"values": all_values, "source": source, "text": f"{who}{field}: {text}"}


def _is_trouble(problem: Answer) -> bool:
    """What some driver or GPU has not is none; the list of GPUs and their handles all have."""
    code, always = problem["code"], problem["field"] in ("devices", "handle")
    return code not in ABSENT or (always and code == NO_SUCH_CALL)


def gpu_of(device: Answer, number_field: str) -> Gpu:
    """A device of a child's answer, by the fields of `Gpu`; `number_field`: that of its own."""
    instances = device.get("mig_instances")
    known = {
        number_field: device.get("index"),
        "name": device.get("name") or UNNAMED,
        "mig_instances": instances or (),
        "mig_count": None if instances is None else len(instances),
    }
    return from_plain({**device, **known}, Gpu, what="a GPU")


def _problem_readings(source: str, subject: str, answer: Answer) -> Iterator[Reading]:
    """Why a value is null; what a GPU does not have goes into one line."""
    absent = [
        problem["field"] for problem in answer["problems"] if problem["code"] in NOT_SUPPORTED
    ]
    for problem in answer["problems"]:
        if problem["field"] not in absent:
            field = f"{subject}.{problem['field']}"
            yield Reading(subject=field, source=source, problem=problem["text"])
    if absent:
        unsupported = f"not supported: {', '.join(absent)}"
        yield Reading(subject=subject, source=source, problem=unsupported)
