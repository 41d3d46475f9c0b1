"""Asking `nvidia-smi`: the CSV query first, then the XML, the banner last.

The CSV is the sturdiest, the XML knows more (and is cut where nvidia-smi dies in it), the banner
is read only for a CUDA version that nothing else told.
"""

from __future__ import annotations

import ntpath
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Reading
from gpusetup.probe.nvml import no_answer
from gpusetup.probe.patience import Patience
from gpusetup.readings.nvidia_smi.csv import QUERY, parse_csv, refused_field
from gpusetup.readings.nvidia_smi.log import parse_xml
from gpusetup.readings.nvidia_smi.table import parse_table
from gpusetup.readings.nvidia_smi.values import Smi, parse_error
from gpusetup.readings.side import GpuSide, enriched, missing, told, told_gpus
from gpusetup.system.processes import Output, how_it_ended
from gpusetup.system.system import System, exists

SOURCE = "nvidia-smi"
WINDOWS_PLACES = (
    ("SystemRoot", "C:\\Windows", "System32"),
    ("ProgramFiles", "C:\\Program Files", "NVIDIA Corporation\\NVSMI"),
)
LINUX_PLACES = ("/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi")
FIELDS_GIVEN_UP = 6
"""How many fields may be unknown to an old nvidia-smi before the query is given up."""


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


def read_smi(system: System, limit: float) -> GpuSide:
    """Everything that nvidia-smi says, its errors as values; `limit` is for all its answers."""
    program = find_smi(system)
    if program is None:
        return missing("driver", SOURCE, "no such program")
    patience = Patience(limit)
    said = query(system, program, patience)
    if said.problem or (said.exit or 0) < 0:
        return no_answer(SOURCE, {"problem": said.problem or how_it_ended(said.exit or 0)})
    csv = parsed_or_error(said, parse_csv)
    if csv.nvml_code or csv.gpus == ():
        return side_of((csv,), seconds=said.seconds)
    xml_said = system.run((program, "-q", "-x"), patience.left())
    cut = Smi(complete=False, problems=(xml_said.problem or "no answer",))
    xml = cut if xml_said.problem else parsed_or_error(xml_said, parse_xml)
    outputs = [csv, xml]
    if not xml.cuda_version and not xml_said.problem:
        outputs.append(parsed_or_error(system.run((program,), patience.left()), parse_table))
    return side_of(outputs, seconds=max(said.seconds, xml_said.seconds))


def query(system: System, program: str, patience: Patience) -> Output:
    """The CSV; a field that this nvidia-smi does not know is left out (R470: `compute_cap`)."""
    fields = list(QUERY)
    for _ in range(FIELDS_GIVEN_UP):
        argv = (program, f"--query-gpu={','.join(fields)}", "--format=csv")
        said = system.run(argv, patience.left())
        unknown = refused_field(said.stdout + said.stderr)
        if unknown not in fields:
            return said
        fields.remove(unknown)
    return said


def parsed_or_error(said: Output, parse: Callable[[str], Smi]) -> Smi:
    """What it printed, else the error that its exit code is (nvidia-smi exits with NVML's code)."""
    smi = parse(said.stdout)
    if smi.gpus or smi.nvml_code is not None:
        return smi
    error = parse_error(said.stderr)
    if error is not None:
        return error
    died = f"exit {said.exit}: {(said.stdout + said.stderr).strip()[:200]}"
    return replace(smi, problems=(*smi.problems, died))


def side_of(outputs: Sequence[Smi], *, seconds: float | None = None) -> GpuSide:
    """One or several outputs of one nvidia-smi, the more trusted first."""

    def first(name: str) -> Any:
        values = (getattr(smi, name) for smi in outputs)
        return next((value for value in values if value is not None), None)

    driver = Driver(
        version=first("driver_version"),
        cuda=first("cuda_version"),
        nvml_message=first("message"),
        seconds=seconds,
        **{name: first(name) for name in ("library_version", "nvml_code", "persistence")},
    )
    lists = [smi.gpus for smi in outputs if smi.gpus is not None]
    others = [gpu for gpus in lists for gpu in gpus]
    gpus = tuple(enriched(gpu, others) for gpu in next(filter(None, lists), ()))
    problems = (problem for smi in outputs for problem in smi.problems)
    return GpuSide(
        driver=driver,
        gpus=gpus if lists else None,
        readings=(
            *told("driver", SOURCE, driver),
            *(told_gpus(SOURCE, gpus) if lists else ()),
            *(Reading(subject="driver", source=SOURCE, problem=problem) for problem in problems),
        ),
    )
