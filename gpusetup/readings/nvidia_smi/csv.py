"""`nvidia-smi --query-gpu=… --format=csv` and `nvidia-smi -L`: texts with one GPU a line."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.fields import NAMES, Flat, first, gpu_of
from gpusetup.readings.nvidia_smi.log import smi_of
from gpusetup.readings.nvidia_smi.values import Smi

PLAIN = "index name uuid count serial timestamp pid pstate"
"""Words that are a column, and alone no header."""
OTHER = "gpu_name gpu_uuid gpu_bus_id driver_version pid process_name used_gpu_memory used_memory"
FIELD = lazy(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[\w%/]+\])?")
REFUSED = lazy(r'Field "([^"]+)" is not a valid field to query')


def refused_field(text: str) -> str | None:
    """The field that this nvidia-smi does not know.

    >>> refused_field('Field "compute_cap" is not a valid field to query.')
    'compute_cap'
    """
    found = REFUSED.search(text)
    return found.group(1) if found else None


def parse_csv(text: str) -> Smi:
    """The GPUs of a CSV with a header; a last line that is cut gives what it holds.

    >>> head = "index, name, memory.total [MiB]"
    >>> smi = parse_csv(head + "\\n0, NVIDIA L4, 23034 MiB\\n1, [GPU is lost]")
    >>> [(gpu.name, gpu.memory_total_bytes, gpu.lost) for gpu in smi.gpus], smi.complete
    ([('NVIDIA L4', 24152899584, None), ('unknown', None, True)], False)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((place for place, line in enumerate(lines) if is_header(line)), None)
    if start is None:
        return values.parse_error(text) or Smi(complete=False, problems=("no CSV header",))
    header = [name.partition(" [")[0].strip() for name in lines[start].split(",")]
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[start + 1 :]]
    rows = [{name: [cell] for name, cell in zip(header, row, strict=False)} for row in cells]
    attached = {"attached_gpus": [str(len(rows))]}
    smi = smi_of({**(rows[0] if rows else {}), **attached}, rows, complete=True)
    gpus = with_processes(rows) if "pid" in header else smi.gpus
    return replace(smi, gpus=gpus, complete=all(len(row) == len(header) for row in rows))


def is_header(line: str) -> bool:
    """Names of fields only, and one of them known; a plain word alone is none.

    >>> is_header("index, name, driver_version"), is_header("0, NVIDIA L4, 580.95.05")
    (True, False)
    >>> is_header("memory.total [MiB]"), is_header("name"), is_header("timestamp, power.draw [W]")
    (True, False, True)
    """
    cells = [name.strip() for name in line.split(",")]
    names = [cell.partition(" [")[0] for cell in cells]
    known = NAMES.union(OTHER.split()).intersection(names)
    if not all(map(FIELD.fullmatch, cells)):
        return len(known) >= 2 and len(known) * 2 >= len(names)
    return bool(known) and (len(cells) > 1 or names[0] not in PLAIN.split())


def with_processes(rows: list[Flat]) -> tuple[Gpu, ...]:
    """`--query-compute-apps`: one line a process; a GPU for all that name the same one.

    >>> apps = with_processes([{"gpu_bus_id": ["00000000:01:00.0"], "pid": ["7"]}, {"pid": ["8"]}])
    >>> [(gpu.pci_bus_id, len(gpu.processes)) for gpu in apps]
    [('00000000:01:00.0', 1), (None, 1)]
    """
    gpus: dict[Gpu, list[GpuProcess]] = {}
    for row in rows:
        pid, name, used = (
            first(row, names, values.cell)
            for names in ("pid", "process_name", "used_gpu_memory used_memory")
        )
        if (pid or "").isdecimal():
            gpus.setdefault(gpu_of(row), []).append(values.process("C", pid, name, used))
    return tuple(replace(gpu, processes=tuple(held)) for gpu, held in gpus.items())


GPU_LINE = lazy(r"GPU (\d+): (.+?)(?: \(UUID: ([\w-]+)\)?)?\s*$")
MIG_LINE = lazy(r"MIG (\S+)\s+Device\s+(\d+): \(UUID: ([\w/-]+)\)?")


def parse_list(text: str) -> Smi:
    """`nvidia-smi -L`, with the MIG instances of each GPU.

    >>> text = "GPU 0: NVIDIA A30 (UUID: GPU-1)\\n  MIG 1g.6gb Device 0: (UUID: MIG-2)"
    >>> parse_list(text).gpus[0].mig_instances
    ('MIG-2',)
    """
    gpus: list[Gpu] = []
    for line in text.splitlines():
        mig, gpu = MIG_LINE.search(line), GPU_LINE.search(line)
        if mig and gpus:
            held = (*gpus[-1].mig_instances, mig[3])
            gpus[-1] = replace(gpus[-1], mig_instances=held, mig_enabled=True, mig_count=len(held))
        elif gpu and not mig:
            gpus.append(Gpu(nvml_index=int(gpu[1]), name=gpu[2].strip(), uuid=gpu[3]))
    if not gpus:
        return values.parse_error(text) or Smi(complete=False, problems=("no GPU line",))
    return Smi(gpus=tuple(gpus), nvml_code=0)
