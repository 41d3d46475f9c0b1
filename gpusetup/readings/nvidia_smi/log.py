"""The long output of `nvidia-smi`, `-q`: its tree becomes a flat map, `pci.pci_bus_id` ->
`00000000:07:00.0`, of which `fields.py` makes a GPU."""

from __future__ import annotations

import re

from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.fields import Flat, first, gpu_of
from gpusetup.readings.nvidia_smi.values import Smi


def smi_of(head: Flat, gpus: list[Flat]) -> Smi:
    """From 610 on the versions have new names, and the old ones may hold a remark."""
    kept = [first(gpu, "persistence_mode", values.flag) for gpu in gpus]
    return Smi(
        driver_version=first(head, "kmd_version driver_version", values.dotted),
        cuda_version=first(head, "cuda_umd_version cuda_version", values.dotted),
        gpus=tuple(map(gpu_of, gpus)),
        persistence=all(kept) if kept and None not in kept else None,
        nvml_code=0,
    )


LABEL = lazy(r"^(\s*)(\S[^:]*?)\s*(?::\s(.*)|:)?$")
GPU_HEAD = lazy(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
VERSIONS = {"driver_version", "kmd_version", "cuda_version", "cuda_umd_version"}


def parse_query(text: str) -> Smi:
    """`nvidia-smi -q`, whole, cut, or a part of it (`-d PERFORMANCE`): a label without a value is
    a heading, and deeper labels belong to it.

    >>> smi = parse_query('''Driver Version                            : 545.29.06
    ... Attached GPUs                             : 1
    ... GPU 00000000:0B:00.0
    ...     Clocks Event Reasons
    ...         SW Power Cap                      : Active''')
    >>> smi.driver_version, smi.gpus[0].throttle_reasons
    ('545.29.06', ('sw_power_cap',))
    """
    head: Flat = {}
    gpus: list[Flat] = []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if begins := GPU_HEAD.match(line):
            gpus.append({"id": [begins[1]]})
            above = []
        elif found := LABEL.match(line):
            depth = len(found[1])
            above = [one for one in above if one[0] < depth]
            above.append((depth, re.sub(r"[^a-z0-9]+", "_", found[2].lower()).strip("_")))
            if found[3] is not None:
                flat, name = gpus[-1] if gpus else head, ".".join(one for _, one in above)
                flat.setdefault(name, []).append(found[3].strip())
    if not gpus and not head.keys() & VERSIONS:
        return values.parse_error(text) or Smi(problems=("no nvidia-smi log",))
    return smi_of(head, gpus)
