"""What gpusetup asks nvidia-smi itself: how several GPUs are connected, and, where Python cannot
load NVIDIA's library, the GPUs.

In some containers and on some clusters, `libnvidia-ml` is missing or broken for Python, but
`nvidia-smi` works. It prints name, memory and compute capability, which is enough to tune a config.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from gpusetup.accelerators.makers import identified
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Reading, Snapshot, visible_gpus
from gpusetup.readings.environment import positions_named
from gpusetup.readings.smi_csv import output_of
from gpusetup.readings.smi_topology import parse_topology
from gpusetup.system.processes import Output
from gpusetup.system.system import HOLD_BACK, System

PROGRAM = "nvidia-smi"
FIELDS = ("index", "name", "uuid", "memory.total", "compute_cap")
"""Fields from the list in `nvidia-smi --help-query-gpu`."""
LIMIT_SECONDS = 20.0
"""The time limit in seconds. Without persistence mode, nvidia-smi takes about a second per GPU."""


def with_gpus_of_nvidia_smi(machine: Snapshot, system: System) -> Snapshot:
    """The machine with GPUs from nvidia-smi, if no other source knows the memory of a visible GPU.

    If CUDA_VISIBLE_DEVICES hides all GPUs, the machine stays as it is.
    """
    visible = visible_gpus(machine)
    all_are_hidden = machine.gpus and not visible
    if all_are_hidden or any(gpu.memory_total_bytes for gpu in visible):
        return machine
    query = (f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader")
    output = ask_nvidia_smi(system, query, LIMIT_SECONDS)
    # Drivers before 470 do not know `compute_cap` and reject the query.
    listed = output_of(FIELDS, output.stdout.splitlines()) if output and output.ok else None
    if listed is None:
        return machine
    _, nvidia_smi = listed
    gpus = tuple(map(identified, nvidia_smi.gpus or ()))
    # nvidia-smi also lists the GPUs that this variable hides.
    variable = system.environ().get("CUDA_VISIBLE_DEVICES")
    if variable is not None:
        names = [(gpu.nvml_index, gpu.uuid) for gpu in gpus]
        gpus = tuple(gpus[position] for position in positions_named(variable, names))
    if not gpus:
        return machine
    models = ", ".join(gpu.name for gpu in gpus)
    reading = Reading(subject="gpus", source=PROGRAM, value=models)
    return replace(machine, gpus=gpus, readings=(*machine.readings, reading))


def ask_nvidia_smi(system: System, options: Sequence[str], limit: float) -> Output | None:
    """What nvidia-smi prints with these options within `limit` seconds; None if it is missing."""
    program = system.which(PROGRAM)
    if program is None:
        return None
    # On Linux, a query must not load kernel modules or create device nodes, as nvidia-smi does.
    starter: tuple[str, ...] = ()
    if system.family == "linux":
        starter = (sys.executable, "-I", "-S", HOLD_BACK)
    return system.run((*starter, program, *options), limit)


def read_topology(system: System, limit: float) -> Snapshot:
    """How the GPUs are connected, and to which NUMA node, from `nvidia-smi topo -m`; an empty
    snapshot without its matrix."""
    output = ask_nvidia_smi(system, ("topo", "-m"), limit)
    # nvidia-smi underlines the heading with a terminal's codes, in a pipe too.
    plain = re.sub(r"\x1b\[[\d;]*m", "", output.stdout if output else "")
    return parse_topology(plain.splitlines())
