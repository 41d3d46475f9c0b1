"""Which GPUs CUDA_VISIBLE_DEVICES leaves visible, where CUDA itself could not be asked.

Facts: the CUDA C++ programming guide, "CUDA Environment Variables", and what torch.cuda does with
the same variable: the first invalid entry ends the list, a repeated one empties it, a number may
have a tail (`1gpu` is 1), GPUs are named by index, by a unique prefix of `GPU-<uuid>` or by MIG
instance. Indices count in CUDA's order, which is the PCI order only under
CUDA_DEVICE_ORDER=PCI_BUS_ID; the default puts the fastest first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.model.machine import Gpu


def visible_by_variable(
    variable: str, gpus: Sequence[Gpu], *, pci_order: bool
) -> tuple[bool | None, ...]:
    """For each GPU (in NVML's order) whether the variable's value leaves it visible.

    None where the answer depends on CUDA's own order of the GPUs, or on a UUID that is not known.

    >>> two = (Gpu(name="NVIDIA L4", uuid="GPU-aa"), Gpu(name="NVIDIA L4", uuid="GPU-bb"))
    >>> visible_by_variable("1", two, pci_order=False)
    (False, True)
    >>> visible_by_variable("", two, pci_order=False)
    (False, False)
    >>> visible_by_variable("MIG-feee", (Gpu(name="A100"),), pci_order=False)
    (None,)
    """
    entries = [entry.strip() for entry in variable.split(",")]
    kind = entries[0][:4] if entries[0].startswith(("GPU-", "MIG-")) else ""
    chosen: list[int] = []
    for entry in entries:
        number = re.match(r"\+?(\d+)", entry)
        hits = [
            place
            for place, gpu in enumerate(gpus)
            if (_is_called(gpu, entry, kind) if kind else number and int(number[1]) == place)
        ]
        if len(hits) != 1:
            break
        chosen += hits
    asked = entries if kind else chosen
    left = set(chosen) if len(set(asked)) == len(asked) else set()
    if kind:
        unsure = any(gpu.uuid is None and not gpu.mig_instances for gpu in gpus)
    else:
        unsure = (
            not pci_order and len(left) not in (0, len(gpus)) and len({g.name for g in gpus}) > 1
        )
    return tuple(None if unsure else place in left for place in range(len(gpus)))


def _is_called(gpu: Gpu, entry: str, kind: str) -> bool:
    """By UUID, by a MIG instance of it, or by the older `MIG-GPU-<uuid>/<gi>/<ci>`."""
    name = entry.removeprefix("MIG-") if entry.startswith("MIG-GPU-") else entry
    start = name.partition("/")[0].lower()
    names = (gpu.uuid or "", *gpu.mig_instances)
    return entry.startswith(kind) and any(own.lower().startswith(start) for own in names)
