"""The CUDA driver API's own answer, asked in a child: `child_scripts/read_cuda.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusetup.model.codec import from_plain
from gpusetup.model.machine import CudaApi, Driver, Event, Reading
from gpusetup.probe.nvml import READ_FAILED, failure, gpu_of, no_answer, so_far, sound
from gpusetup.readings.side import GpuSide, told, told_gpus
from gpusetup.system.system import System

SOURCE = "libcuda"


def read_cuda(system: System, limit: float) -> GpuSide:
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Mapping[str, Any]) -> GpuSide:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    silent, said = no_answer(SOURCE, answer), so_far(answer)
    if problem := said.get("load_error"):  # no libcuda, or none that one can start
        return GpuSide(
            events=(Event(kind="libcuda-missing", source=SOURCE, text=problem),),
            readings=(Reading(subject="cuda_api", source=SOURCE, problem=problem),),
        )
    listed = said.get("devices")
    devices = [sound(device) for device in listed or ()]
    api = from_plain({**said, "init_code": said.get("init")}, CudaApi, what="libcuda's answer")
    foreign = said.get("stub") or said.get("compat")
    driver = Driver(
        cuda=api.version if api.init_code == 0 and not foreign else None,
        libcuda_path=said.get("library"),
        seconds=said.get("seconds"),
    )
    gpus = tuple(gpu_of(device, "cuda_index") for device in devices)
    impossible = ({"gpu": one["index"], **p} for one in devices for p in one["problems"])
    problems = (*(said.get("problems") or ()), *impossible)
    return GpuSide(
        driver=driver,
        cuda_api=api,
        gpus=None if listed is None else gpus,
        events=(*silent.events, *_failed_calls(problems, devices)),
        readings=(
            *silent.readings,
            *told("cuda_api", SOURCE, api),
            *told("driver", SOURCE, driver),
            *(told_gpus(SOURCE, gpus) if said else ()),
            *_oddities(said, problems),
        ),
    )


def _failed_calls(
    problems: Sequence[Mapping[str, Any]], devices: Sequence[Mapping[str, Any]]
) -> Iterator[Event]:
    """What CUDA should tell once it has started: how many GPUs, and of each what it is."""
    buses = {one["index"]: one.get("pci_bus_id") for one in devices}
    for problem in problems:
        if problem["code"] is None:
            continue
        if "gpu" not in problem:
            yield Event(kind="cuda-init-failed", **failure(SOURCE, problem, asked=SOURCE))
            continue
        gpu = problem["gpu"]
        more = {"gpu": str(gpu), **({"bus": bus} if (bus := buses.get(gpu)) else {})}
        yield Event(kind=READ_FAILED, **failure(SOURCE, problem, asked=SOURCE, **more))


def _oddities(said: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> Iterator[Reading]:
    """A library that is not the driver's own, and values that failed."""
    kinds = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}
    for key, text in kinds.items():
        if said.get(key):
            path = "driver.libcuda_path"
            yield Reading(subject=path, source=SOURCE, problem=f"this is {text}")
    for problem in problems:
        subject = f"cuda_api.{problem['field']}"
        yield Reading(subject=subject, source=SOURCE, problem=problem["text"])
