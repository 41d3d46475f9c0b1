"""The CUDA driver API's own answer, asked in a child: `child_scripts/read_cuda.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Event, Gpu, Reading
from gpusetup.model.versions import Capability
from gpusetup.probe.nvml import READ_FAILED, no_answer, so_far
from gpusetup.readings.measures import NOT_PLAUSIBLE, wrong_in
from gpusetup.readings.side import UNNAMED, GpuSide, told, told_gpus
from gpusetup.system.system import System

SOURCE = "libcuda"


def read_cuda(system: System, limit: float) -> GpuSide:
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Mapping[str, Any]) -> GpuSide:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    if "problem" not in answer:
        return _side_of(answer)
    silent = no_answer(SOURCE, answer)
    before = _side_of(so_far(answer)) if answer.get("parts") else GpuSide()
    return replace(
        before,
        events=(*silent.events, *before.events),
        readings=(*silent.readings, *before.readings),
    )


def sound(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without what cannot be; each such value is a problem of its GPU."""
    listed = answer.get("devices")
    if listed is None:
        return dict(answer)
    wrong = [wrong_in(one) for one in listed]
    found = [
        {"gpu": one.get("index"), "field": field, "code": NOT_PLAUSIBLE, "text": text}
        for one, fields in zip(listed, wrong, strict=True)
        for field, text in fields.items()
    ]
    devices = [{**one, **dict.fromkeys(w)} for one, w in zip(listed, wrong, strict=True)]
    return {**answer, "devices": devices, "problems": [*(answer.get("problems") or ()), *found]}


def _side_of(said: Mapping[str, Any]) -> GpuSide:
    answer = sound(said)
    if answer.get("load_error"):
        return _not_loaded(str(answer["load_error"]))
    api = CudaApi(
        init_code=answer.get("init"),
        init_name=answer.get("init_name"),
        device_count=answer.get("device_count"),
        version=answer.get("version"),
    )
    foreign = answer.get("stub") or answer.get("compat")
    driver = Driver(
        cuda=api.version if api.init_code == 0 and not foreign else None,
        libcuda_path=answer.get("library"),
        seconds=answer.get("seconds"),
    )
    return GpuSide(
        driver=driver,
        cuda_api=api,
        gpus=gpus_of(answer),
        events=failed_calls(answer),
        readings=(
            *told("cuda_api", SOURCE, api),
            *told("driver", SOURCE, driver),
            *told_gpus(SOURCE, gpus_of(answer) or ()),
            *oddities(answer),
        ),
    )


def _not_loaded(problem: str) -> GpuSide:
    """No libcuda, or none that one can start."""
    return GpuSide(
        events=(Event(kind="libcuda-missing", source=SOURCE, text=problem),),
        readings=(Reading(subject="cuda_api", source=SOURCE, problem=problem),),
    )


def failed_calls(answer: Mapping[str, Any]) -> tuple[Event, ...]:
    """What CUDA should tell once it has started: how many GPUs, and of each what it is."""
    devices = {one.get("index"): one for one in answer.get("devices") or ()}
    return tuple(
        Event(
            kind=READ_FAILED if "gpu" in problem else "cuda-init-failed",
            values={
                "asked": SOURCE,
                **{key: str(value) for key, value in problem.items() if key != "text"},
                "problem": str(problem["text"]),
                **_bus(devices.get(problem.get("gpu"))),
            },
            source=SOURCE,
            text=f"{problem['field']}: {problem['text']}",
        )
        for problem in answer.get("problems") or ()
        if problem["code"] is not None
    )


def _bus(device: Mapping[str, Any] | None) -> dict[str, str]:
    bus = (device or {}).get("pci_bus_id")
    return {"bus": bus} if bus else {}


def gpus_of(answer: Mapping[str, Any]) -> tuple[Gpu, ...] | None:
    """None where cuInit failed: then CUDA does not say how many there are."""
    devices = answer.get("devices")
    return None if devices is None else tuple(gpu_of(device) for device in devices)


def gpu_of(device: Mapping[str, Any]) -> Gpu:
    capability = device.get("compute_capability")
    return Gpu(
        name=device.get("name") or UNNAMED,
        uuid=device.get("uuid"),
        cuda_index=device.get("index"),
        pci_bus_id=device.get("pci_bus_id"),
        memory_total_bytes=device.get("memory_total_bytes"),
        compute_capability=Capability.parse(capability) if capability else None,
    )


def oddities(answer: Mapping[str, Any]) -> tuple[Reading, ...]:
    """A library that is not the driver's own, and values that failed."""
    kinds = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}
    return tuple(
        Reading(subject="driver.libcuda_path", source=SOURCE, problem=f"this is {text}")
        for key, text in kinds.items()
        if answer.get(key)
    ) + tuple(
        Reading(subject=f"cuda_api.{problem['field']}", source=SOURCE, problem=problem["text"])
        for problem in answer.get("problems") or ()
    )
