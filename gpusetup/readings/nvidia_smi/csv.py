"""`nvidia-smi --query-gpu=… --format=csv` and `nvidia-smi -L`: texts with one GPU a line."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.log import smi_of
from gpusetup.readings.nvidia_smi.values import Smi


def parse_csv(text: str) -> Smi:
    """The GPUs of a CSV with a header; a last line that is cut gives what it holds.

    >>> head = "index, name, memory.total [MiB]"
    >>> smi = parse_csv(head + "\\n0, NVIDIA L4, 23034 MiB\\n1, [GPU is lost]")
    >>> [(gpu.name, gpu.memory_total_bytes, gpu.lost) for gpu in smi.gpus], smi.complete
    ([('NVIDIA L4', 24152899584, None), ('unknown', None, True)], False)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or "name" not in lines[0].split(", "):
        return values.parse_error(text) or Smi(complete=False, problems=("no CSV header",))
    header = [name.partition(" [")[0].strip() for name in lines[0].split(",")]
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[1:]]
    rows = [{name: [cell] for name, cell in zip(header, row, strict=False)} for row in cells]
    attached = {"attached_gpus": [str(len(rows))]}
    smi = smi_of({**(rows[0] if rows else {}), **attached}, rows, complete=True)
    return replace(smi, complete=all(len(row) == len(header) for row in rows))


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
