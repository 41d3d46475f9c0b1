"""`nvidia-smi -L`: one GPU a line."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.values import Smi

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
        return values.parse_error(text) or Smi(problems=("no GPU line",))
    return Smi(gpus=tuple(gpus), nvml_code=0)
