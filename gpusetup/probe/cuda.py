"""The CUDA driver API's own answer, asked in a child (`inside/read_cuda.py` documents its form)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.model import Capability, CudaApi, Driver, Gpu, Reading
from gpusetup.probe.nvml import no_answer
from gpusetup.probe.side import UNNAMED, GpuSide, told, told_gpus
from gpusetup.probe.system import System

SOURCE = "libcuda"


def read_cuda(system: System, limit: float) -> GpuSide:
    return parse_cuda(system.ask("read_cuda", timeout=limit), limit)


def parse_cuda(answer: Mapping[str, Any], limit: float = 30) -> GpuSide:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    if "problem" in answer:
        return no_answer(SOURCE, str(answer["problem"]), limit)
    if answer.get("load_error"):
        problem = str(answer["load_error"])
        return GpuSide(readings=(Reading(subject="cuda_api", source=SOURCE, problem=problem),))
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
        readings=(
            *told("cuda_api", SOURCE, api),
            *told("driver", SOURCE, driver),
            *told_gpus(SOURCE, gpus_of(answer) or ()),
            *oddities(answer),
        ),
    )


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
