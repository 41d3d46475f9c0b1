"""The reports of the driver's two libraries: NVML and the CUDA driver API (libcuda).

Each library is queried in a child process: `child_scripts/read_nvml.py`, which documents the
output, and `read_cuda.py`.
"""

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
    """One of the driver's libraries, and the names used for its results in a snapshot."""

    source: str
    number_field: str
    """The field of `Gpu` for a GPU's index in this library's list."""
    subject: str
    """The subject of the readings about the library itself."""
    init_failed: str
    """The kind of event for a library that started, but whose later call failed."""


NVML = Library("nvml", "nvml_index", "driver", "nvml-init-failed")
LIBCUDA = Library("libcuda", "cuda_index", "cuda_api", "cuda-init-failed")
NOT_SUPPORTED = (3, 13)
"""NVML's error codes for a value that the GPU does not have, or a call that the driver does not
know."""
READ_FAILED = "gpu-read-failed"
"""The kind of event for a single value of a GPU that is missing although it should exist."""
NEEDED = (
    "handle", "name", "uuid", "pci_bus_id", "memory_total_bytes", "compute_capability",
    "temperature_celsius", "power_watts",
)  # fmt: skip
"""Values that every GPU should have, although some laptop GPUs lack a few."""
NO_SUCH_CALL = 13
ABSENT = (NO_SUCH_CALL, 21, 25, 26, None)
"""NVML's codes for "function not found", "no data", "deprecated" and "not ready", and None if our
binding lacks the call. A value that is missing for such a reason is normally no fault. "Not
supported" is not among them, because it is judged by comparison with the other GPUs
(gpu-does-not-answer)."""


def read_nvml(system: System, limit: float) -> Snapshot:
    """NVML's report within `limit` seconds, as a snapshot."""
    return parse_nvml(system.ask("read_nvml", timeout=limit))


def parse_nvml(answer: Answer) -> Snapshot:
    """The output of the NVML child as a snapshot.

    >>> parse_nvml({"init": 9, "message": "Driver Not Loaded", "devices": None}).driver.nvml_code
    9
    """
    values, shared = parse_answer(NVML, answer)
    # NVML's own version begins with CUDA's version, as in `12.580.95.05`.
    library_version = (values.get("nvml_version") or "").partition(".")[2]
    driver = Driver(
        version=values.get("driver_version"),
        cuda=values.get("cuda_version"),
        library_version=library_version or None,
        nvml_code=values.get("init"),
        nvml_message=values.get("message"),
        seconds=values.get("seconds"),
        persistence=_persistence(values["devices"] or ()),
    )
    readings = (*readings_of("driver", NVML.source, driver), *shared.readings)
    return replace(shared, driver=driver, gpu_links=links_of(values), readings=readings)


def _persistence(devices: Sequence[Answer]) -> bool | None:
    """Whether persistence mode is on for every GPU; None if it is unknown for one of them."""
    modes = [device.get("persistence") for device in devices]
    if not modes or None in modes:
        return None
    return all(modes)


def links_of(values: Answer) -> tuple[GpuLink, ...] | None:
    """How the GPUs are connected, or None if NVML does not report it.

    >>> links_of({"links": [[0, 1, "NV12"]]})[0].kind
    'NV12'
    """
    rows = values.get("links")
    if not rows:
        return None
    return tuple(GpuLink(first=first, second=second, kind=kind) for first, second, kind in rows)


def read_cuda(system: System, limit: float) -> Snapshot:
    """libcuda's report within `limit` seconds, as a snapshot."""
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Answer) -> Snapshot:
    """The output of the libcuda child as a snapshot.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    values, shared = parse_answer(LIBCUDA, answer)
    source = LIBCUDA.source
    load_error = values.get("load_error")
    if load_error:
        # libcuda is missing or cannot be loaded.
        event = Event(kind="libcuda-missing", source=source, text=load_error)
        reading = Reading(subject="cuda_api", source=source, problem=load_error)
        return Snapshot(events=(event,), readings=(reading,))

    api = from_plain({**values, "init_code": values.get("init")}, CudaApi, what="libcuda's answer")
    foreign_kinds = [text for key, text in NOT_THE_DRIVERS.items() if values.get(key)]
    # Ignore the CUDA version of a stub or compat library, because it is not the driver's.
    tells_driver_cuda = api.init_code == 0 and not foreign_kinds
    driver = Driver(
        cuda=api.version if tells_driver_cuda else None,
        libcuda_path=values.get("library"),
        seconds=values.get("seconds"),
    )
    readings = [
        *readings_of("cuda_api", source, api),
        *readings_of("driver", source, driver),
        *shared.readings,
    ]
    for kind in foreign_kinds:
        subject = "driver.libcuda_path"
        readings.append(Reading(subject=subject, source=source, problem=f"this is {kind}"))
    return replace(shared, cuda_api=api, driver=driver, readings=tuple(readings))


NOT_THE_DRIVERS = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}
"""Maps a field of the answer to a description of a libcuda that did not come with the driver."""


# --- the output of both children ------------------------------------------------------------------


def parse_answer(library: Library, answer: Answer) -> tuple[dict[str, Any], Snapshot]:
    """The plausible values in a child's output, and a snapshot of what both libraries have in
    common.

    That snapshot contains the GPUs, an event for each missing value that should exist, and the
    readings.
    """
    failure = child_failure(library.source, answer)
    values = only_plausible(partial(answer))
    listed = values.get("devices")
    devices = [only_plausible(device) for device in listed or ()]
    # An empty list means that there are no GPUs. None means that the library did not start.
    values["devices"] = None if listed is None else devices
    gpus = None
    if listed is not None:
        gpus = tuple(gpu_of(device, library.number_field) for device in devices)

    readings = [*failure.readings]
    if gpus is not None:
        readings += gpu_readings(library.source, gpus)
    readings += _problem_readings(library.source, library.subject, values)
    for device in devices:
        readings += _problem_readings(library.source, f"gpus[{device['index']}]", device)
    events = (*failure.events, *_missing_values(library, values, devices))
    return values, Snapshot(gpus=gpus, events=events, readings=tuple(readings))


def partial(answer: Answer) -> Answer:
    """The values that a child reported before it hung or crashed. A GPU that it did not reach only
    has an index.

    >>> partial({"problem": "", "parts": [{"count": 2}, {"device": {"index": 0}}]})["devices"]
    [{'index': 0}, {'index': 1}]
    """
    if "problem" not in answer:
        return answer
    values: dict[str, Any] = {}
    reached_devices = {}
    for part in answer.get("parts") or ():
        values.update(part)
        device = part.get("device")
        if device:
            reached_devices[device["index"]] = device
    if "count" in values:
        devices = []
        for number in range(values["count"]):
            devices.append(reached_devices.get(number, {"index": number}))
        values["devices"] = devices
    return values


def child_failure(source: str, answer: Answer) -> Snapshot:
    """An event and a reading if the child crashed, hung or could not start; otherwise an empty
    snapshot.

    >>> child_failure("nvml", {"problem": "crashed with SIGSEGV"}).events[0].values["how"]
    'crashed'
    """
    if "problem" not in answer:
        return Snapshot()
    problem = str(answer["problem"])
    step = answer.get("step") or {}
    # `system.processes` uses these texts.
    if problem.startswith("no answer"):
        how = "hung"
    elif problem.startswith(("crashed", "exit", "ended")):
        how = "crashed"
    else:
        how = "failed"

    values = {"asked": source, "how": how, "problem": problem}
    values.update({key: str(value) for key, value in step.items()})
    where = step_in_words(step)
    text = f"{problem}, {where}" if where else problem
    event = Event(kind="child-failed", values=values, source=source, text=text)
    reading = Reading(subject="driver", source=source, problem=text)
    return Snapshot(events=(event,), readings=(reading,))


def only_plausible(values: Answer) -> dict[str, Any]:
    """The child's values without impossible ones, which are moved to `problems`.

    >>> only_plausible({"temperature_celsius": 4294967295})["problems"][0]["text"]
    'not plausible: 4294967295'
    """
    problems = [*(values.get("problems") or ())]
    plausible = dict(values)
    for name, text in implausible(values).items():
        plausible[name] = None
        problems.append({"field": name, "code": NOT_PLAUSIBLE, "text": text})
    plausible["problems"] = tuple(problems)
    return plausible


def _missing_values(library: Library, values: Answer, devices: Sequence[Answer]) -> Iterator[Event]:
    """Events for missing values that every GPU should have, and for calls that failed although the
    library had started."""
    for device in devices:
        # Skip a lost GPU: none of its values can be read, and another finding reports it.
        if not device.get("lost"):
            yield from _missing_values_of_gpu(library.source, device)
    if values.get("init") != 0:
        return
    for problem in values["problems"]:
        if _is_trouble(problem):
            fields = _event_fields(library.source, problem, {"asked": library.source})
            yield Event(kind=library.init_failed, **fields)


def _missing_values_of_gpu(source: str, device: Answer) -> Iterator[Event]:
    """An event for each value of a GPU that is impossible, or that is missing although it is
    needed."""
    gpu = {
        "asked": source,
        "gpu": str(device["index"]),
        "bus": device.get("pci_bus_id") or "",
    }
    problems = {}
    for problem in device["problems"]:
        # If a field has several problems, the last one counts.
        if _is_trouble(problem):
            problems[problem["field"]] = problem
    for field, problem in problems.items():
        if field in NEEDED or problem["code"] == NOT_PLAUSIBLE:
            yield Event(kind=READ_FAILED, **_event_fields(source, problem, gpu))


def _event_fields(source: str, problem: Answer, values: Mapping[str, str]) -> dict[str, Any]:
    """The fields of an event for a problem; `values` name the GPU if the problem belongs to one."""
    field = problem["field"]
    text = str(problem["text"])
    all_values = dict(values)
    all_values["field"] = field
    all_values["code"] = str(problem["code"])
    all_values["problem"] = text
    event_text = f"{field}: {text}"
    if "gpu" in values:
        gpu = f"GPU {values['gpu']} {values['bus']}".rstrip()
        event_text = f"{gpu}: {event_text}"
    return {"values": all_values, "source": source, "text": event_text}


def _is_trouble(problem: Answer) -> bool:
    """Whether a problem is a real fault, and not just a value that some drivers or GPUs do not
    have."""
    code = problem["code"]
    if code not in ABSENT:
        return True
    # Every driver can list the GPUs and their handles.
    always_exists = problem["field"] in ("devices", "handle")
    return always_exists and code == NO_SUCH_CALL


def gpu_of(device: Answer, number_field: str) -> Gpu:
    """A GPU from an entry in a child's output; `number_field` is the `Gpu` field for its index
    there."""
    instances = device.get("mig_instances")
    values = {
        **device,
        number_field: device.get("index"),
        "name": device.get("name") or UNNAMED,
        "mig_instances": instances or (),
        "mig_count": None if instances is None else len(instances),
    }
    return from_plain(values, Gpu, what="a GPU")


def _problem_readings(source: str, subject: str, answer: Answer) -> Iterator[Reading]:
    """Readings that say why values are missing. Values that a GPU does not support share one
    reading."""
    unsupported = []
    for problem in answer["problems"]:
        if problem["code"] in NOT_SUPPORTED:
            unsupported.append(problem["field"])
    for problem in answer["problems"]:
        if problem["field"] not in unsupported:
            field = f"{subject}.{problem['field']}"
            yield Reading(subject=field, source=source, problem=problem["text"])
    if unsupported:
        text = f"not supported: {', '.join(unsupported)}"
        yield Reading(subject=subject, source=source, problem=text)
