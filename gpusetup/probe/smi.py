"""Asking `nvidia-smi` for all that it knows, or for less where it dies in it."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Reading, Snapshot
from gpusetup.probe.nvml import no_answer
from gpusetup.readings.nvidia_smi.csv import parse_csv
from gpusetup.readings.nvidia_smi.log import parse_xml
from gpusetup.readings.nvidia_smi.values import parse_error
from gpusetup.readings.side import missing, told, told_gpus
from gpusetup.system.processes import how_it_ended
from gpusetup.system.system import System

SOURCE = "nvidia-smi"
IN_SHORT = ("--query-gpu=index,name,uuid,pci.bus_id,driver_version,memory.total", "--format=csv")
"""What is asked where nvidia-smi dies in its long answer (a GPU is lost); every driver knows it."""


def read_smi(system: System, limit: float) -> Snapshot:
    """Everything that nvidia-smi says within `limit` seconds, its errors as values."""
    program = system.which(SOURCE)
    if program is None:
        return missing("driver", SOURCE, "no such program")
    said = system.run((program, "-q", "-x"), limit)
    smi = parse_xml(said.stdout)
    if smi.gpus is None and smi.nvml_code is None:
        smi = parse_error(said.stderr) or smi
    if not smi.complete and not said.problem:
        short = parse_csv(system.run((program, *IN_SHORT), limit - said.seconds).stdout)
        smi = replace(short, problems=smi.problems) if short.gpus else smi
    if smi.gpus is None and smi.nvml_code is None:
        return no_answer(SOURCE, {"problem": said.problem or how_it_ended(said.exit or 0)})
    gpus = smi.gpus
    if gpus and smi.complete:  # it lists them in NVML's order
        gpus = tuple(replace(gpu, nvml_index=place) for place, gpu in enumerate(gpus))
    driver = Driver(
        version=smi.driver_version,
        cuda=smi.cuda_version,
        library_version=smi.library_version,
        nvml_code=smi.nvml_code,
        nvml_message=smi.message,
        persistence=smi.persistence,
        seconds=said.seconds,
    )
    return Snapshot(
        driver=driver,
        gpus=gpus,
        readings=(
            *told("driver", SOURCE, driver),
            *(told_gpus(SOURCE, gpus) if gpus is not None else ()),
            *(Reading(subject="driver", source=SOURCE, problem=text) for text in smi.problems),
        ),
    )
