"""The CUDA driver API's own answer, asked in a child: `child_scripts/read_cuda.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Event, Reading, Snapshot
from gpusetup.probe.nvml import heard
from gpusetup.readings.side import told
from gpusetup.system.system import System

SOURCE = "libcuda"


def read_cuda(system: System, limit: float) -> Snapshot:
    return parse_cuda(system.ask("read_cuda", timeout=limit))


def parse_cuda(answer: Mapping[str, Any]) -> Snapshot:
    """The child's answer as values.

    >>> parse_cuda({"init": 804, "init_name": "CUDA_ERROR_COMPAT…"}).cuda_api.init_code
    804
    """
    said, side = heard(SOURCE, answer, "cuda_index", "cuda_api")
    if problem := said.get("load_error"):  # no libcuda, or none that one can start
        return Snapshot(
            events=(Event(kind="libcuda-missing", source=SOURCE, text=problem),),
            readings=(Reading(subject="cuda_api", source=SOURCE, problem=problem),),
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
        *told("cuda_api", SOURCE, api),
        *told("driver", SOURCE, driver),
        *side.readings,
        *(Reading(subject=path, source=SOURCE, problem=f"this is {text}") for text in foreign),
    )
    return replace(side, cuda_api=api, driver=driver, readings=readings)


NOT_THE_DRIVERS = {"stub": "the toolkit's stub library", "compat": "a cuda-compat library"}
