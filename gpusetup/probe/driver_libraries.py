"""The reports of the driver's two libraries: NVML and the CUDA driver API (libcuda).

Each library is queried in a child process: `child_scripts/read_nvml.py`, which documents the
output, and `read_cuda.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusetup.child_scripts.driver_answers import NOT_PLAUSIBLE
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Event, Gpu, Snapshot
from gpusetup.readings.sources import UNNAMED, gpu_readings, missing, readings_of
from gpusetup.system.system import System

Answer = Mapping[str, Any]
NVML, LIBCUDA = "nvml", "libcuda"
INDEX_FIELDS = {NVML: "nvml_index", LIBCUDA: "cuda_index"}
"""Maps each library to the `Gpu` field for a GPU's index in the library's list."""
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
(driver-does-not-answer)."""


def read_nvml(system: System, limit: float) -> Snapshot:
    """NVML's report within `limit` seconds, as a snapshot."""
    values, shared = parse_answer(NVML, system.ask("read_nvml", timeout=limit))
    # NVML's own version begins with CUDA's version, as in `12.580.95.05`.
    library_version = (values.get("nvml_version") or "").partition(".")[2]
    # Unknown for the driver if it is unknown for one of the GPUs.
    persistence = [device.get("persistence") for device in values["devices"] or ()]
    driver = Driver(
        version=values.get("driver_version"),
        cuda=values.get("cuda_version"),
        library_version=library_version or None,
        nvml_code=values.get("init"),
        nvml_message=values.get("message"),
        persistence=all(persistence) if persistence and None not in persistence else None,
    )
    readings = (*readings_of("driver", NVML, driver), *shared.readings)
    return replace(shared, driver=driver, readings=readings)


def read_cuda(system: System, limit: float) -> Snapshot:
    """libcuda's report within `limit` seconds, as a snapshot."""
    values, shared = parse_answer(LIBCUDA, system.ask("read_cuda", timeout=limit))
    # libcuda is missing or cannot be loaded.
    if load_error := values.get("load_error"):
        event = Event(kind="libcuda-missing", source=LIBCUDA, text=load_error)
        return replace(missing("cuda_api", LIBCUDA, load_error), events=(event,))
    api = from_plain({**values, "init_code": values.get("init")}, CudaApi, what="libcuda's answer")
    # The CUDA version of the toolkit's stub or of a cuda-compat library is not the driver's.
    is_foreign = values.get("stub") or values.get("compat")
    driver = Driver(
        cuda=api.version if api.init_code == 0 and not is_foreign else None,
        libcuda_path=values.get("library"),
    )
    readings = (
        *readings_of("cuda_api", LIBCUDA, api),
        *readings_of("driver", LIBCUDA, driver),
        *shared.readings,
    )
    return replace(shared, cuda_api=api, driver=driver, readings=readings)


# --- the output of both children ------------------------------------------------------------------


def parse_answer(source: str, answer: Answer) -> tuple[dict[str, Any], Snapshot]:
    """The values in a child's output, and a snapshot of what both libraries have in common: the
    GPUs, an event for each missing value that should exist, and the readings.

    >>> values, shared = parse_answer(NVML, {"init": 9, "message": "Driver Not Loaded"})
    >>> values["init"], values["devices"], shared.gpus
    (9, None, None)
    """
    if "problem" in answer:
        return {"devices": None}, Snapshot(events=(_child_failure(source, answer),))
    # An empty list means that there are no GPUs. None means that the library did not start.
    listed = answer.get("devices")
    values = {**answer, "devices": listed}
    events = tuple(_missing_values(source, answer, listed or ()))
    if listed is None:
        return values, Snapshot(events=events)
    gpus = []
    for device in listed:
        instances = device.get("mig_instances")
        fields = {
            **device,
            INDEX_FIELDS[source]: device["index"],
            "name": device.get("name") or UNNAMED,
            "mig_instances": instances or (),
            "mig_count": None if instances is None else len(instances),
        }
        gpus.append(from_plain(fields, Gpu, what="a GPU"))
    return values, Snapshot(gpus=tuple(gpus), events=events, readings=gpu_readings(source, gpus))


def _child_failure(source: str, answer: Answer) -> Event:
    """The event for a child that failed, hung or crashed, with the step that it was in, such as
    `{"step": "cuInit"}` or, for a call about one GPU, also `"gpu": 1`."""
    problem, step = str(answer["problem"]), answer.get("step") or {}
    # `system.processes` uses these texts.
    how = "failed"
    if problem.startswith("no answer"):
        how = "hung"
    elif problem.startswith(("crashed", "exit", "ended")):
        how = "crashed"
    values = {"asked": source, "how": how, "problem": problem}
    values.update({key: str(value) for key, value in step.items()})
    text = problem
    if step:
        of_gpu = f" of GPU {step['gpu']}" if "gpu" in step else ""
        text = f"{problem}, in {step['step']}{of_gpu}"
    return Event(kind="child-failed", values=values, source=source, text=text)


def _missing_values(source: str, answer: Answer, devices: Sequence[Answer]) -> Iterator[Event]:
    """Events for values of GPUs that are impossible, or missing although every GPU should have
    them, and for calls that failed although the library had started."""

    def event(kind: str, problem: Answer, where: str = "", **of_gpu: str) -> Event:
        """An event about a field; `where` and `of_gpu` name the GPU if it is a GPU's."""
        field, code, text = problem["field"], str(problem["code"]), str(problem["text"])
        values = {"asked": source, **of_gpu, "field": field, "code": code, "problem": text}
        quote = f"{where}{field}: {text}"
        return Event(kind=kind, values=values, source=source, text=quote)

    for device in devices:
        # A lost GPU has no values, and another finding reports it.
        if device.get("lost"):
            continue
        index, bus = str(device["index"]), device.get("pci_bus_id") or ""
        where = f"GPU {index} {bus}".rstrip() + ": "
        # If a field has several problems, the last one counts.
        faults = {fault["field"]: fault for fault in filter(_is_fault, device.get("problems", ()))}
        for field, fault in faults.items():
            if field in NEEDED or fault["code"] == NOT_PLAUSIBLE:
                yield event("gpu-read-failed", fault, where, gpu=index, bus=bus)
    if answer.get("init") == 0:
        for problem in filter(_is_fault, answer.get("problems", ())):
            yield event("driver-does-not-answer", problem)


def _is_fault(problem: Answer) -> bool:
    """Whether a problem is a real fault, and not just a value that some drivers or GPUs do not
    have. Every driver can list the GPUs and their handles."""
    code = problem["code"]
    is_from_every_driver = problem["field"] in ("devices", "handle")
    return code not in ABSENT or (is_from_every_driver and code == NO_SUCH_CALL)
