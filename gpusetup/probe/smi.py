"""Asking `nvidia-smi` for all that it knows: `-q -x`, which is cut where nvidia-smi dies in it."""

from __future__ import annotations

import ntpath
from collections.abc import Iterable

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Reading, Snapshot
from gpusetup.probe.nvml import no_answer
from gpusetup.readings.nvidia_smi.log import parse_xml
from gpusetup.readings.nvidia_smi.values import parse_error
from gpusetup.readings.side import missing, told, told_gpus
from gpusetup.system.processes import how_it_ended
from gpusetup.system.system import System, exists

SOURCE = "nvidia-smi"
WINDOWS_PLACES = (
    ("SystemRoot", "C:\\Windows", "System32"),
    ("ProgramFiles", "C:\\Program Files", "NVIDIA Corporation\\NVSMI"),
)
LINUX_PLACES = ("/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi")


def find_smi(system: System) -> str | None:
    """On PATH, or where the driver puts it."""
    if found := system.which("nvidia-smi"):
        return found
    places: Iterable[str] = LINUX_PLACES
    if system.family == "windows":
        environ = system.environ()
        places = (
            ntpath.join(environ.get(name, usual), folder, "nvidia-smi.exe")
            for name, usual, folder in WINDOWS_PLACES
        )
    return next((path for path in places if exists(system, path)), None)


def read_smi(system: System, limit: float) -> Snapshot:
    """Everything that nvidia-smi says within `limit` seconds, its errors as values."""
    program = find_smi(system)
    if program is None:
        return missing("driver", SOURCE, "no such program")
    said = system.run((program, "-q", "-x"), limit)
    smi = parse_xml(said.stdout)
    if smi.gpus is None and smi.nvml_code is None:
        error = parse_error(said.stderr)
        if error is None:
            died = said.problem or how_it_ended(said.exit or 0)
            return no_answer(SOURCE, {"problem": died})
        smi = error
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
