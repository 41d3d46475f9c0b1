"""The long outputs of `nvidia-smi`: `-q` as text and `-q -x` as XML (formats v11, v12, v13).

Both hold the same tree. Either becomes a flat map, `pci.pci_bus_id` -> `00000000:07:00.0`, of which
`smi_fields` makes a GPU. XML is read tag by tag: one that is cut (nvidia-smi died in the middle of
it) gives what it holds and `complete=False`.
"""

from __future__ import annotations

import re

from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.fields import Flat, first, gpu_of
from gpusetup.readings.nvidia_smi.values import Smi


def smi_of(head: Flat, gpus: list[Flat], *, complete: bool) -> Smi:
    """From 610 on the versions have new names, and the old ones may hold a remark."""
    kept = [first(gpu, "persistence_mode", values.flag) for gpu in gpus]
    attached = first(head, "attached_gpus", values.integer)
    return Smi(
        driver_version=first(head, "kmd_version driver_version", values.dotted),
        cuda_version=first(head, "cuda_umd_version cuda_version", values.dotted),
        gpus=tuple(map(gpu_of, gpus)),
        persistence=all(kept) if kept and None not in kept else None,
        nvml_code=0,
        complete=complete and attached in (None, len(gpus)),
        problems=() if complete else (f"cut after {len(gpus)} of {attached or 'unknown'} GPUs",),
    )


# --- XML ----------------------------------------------------------------------------------------

TAG = lazy(
    r"<(?P<leaf>[\w.-]+)[^<>]*>(?P<value>[^<]*)</(?P=leaf)\s*>"
    r"|<(?P<end>/)?(?P<name>[\w.-]+)(?:\s+id=[\"'](?P<id>[^\"']*))?[^<>]*(?<!/)>"
)
"""A value in its tags, else a tag that begins or ends a section."""
ROOT = "nvidia_smi_log"


def parse_xml(text: str) -> Smi:
    """`nvidia-smi -q -x`, whole or cut.

    >>> smi = parse_xml("<nvidia_smi_log><driver_version>595.84</driver_version><attached_gpus>2"
    ...     "</attached_gpus><gpu id='0'><product_name>NVIDIA L4</product_name><pci><pci_bus>06<")
    >>> smi.driver_version, smi.gpus[0].name, smi.complete, smi.problems
    ('595.84', 'NVIDIA L4', False, ('cut after 1 of 2 GPUs',))
    """
    from html import unescape

    if f"<{ROOT}" not in text:
        return values.parse_error(text) or Smi(complete=False, problems=("no XML",))
    head: Flat = {}
    gpus: list[Flat] = []
    path: list[str] = []
    for tag in TAG.finditer(text.partition(f"<{ROOT}")[2]):
        if tag["leaf"]:
            flat = gpus[-1] if gpus else head
            name = ".".join((*path, tag["leaf"]))
            flat.setdefault(name, []).append(unescape(tag["value"].strip()))
        elif tag["end"]:
            del path[-1:]
        elif tag["name"] == "gpu" and not path:
            gpus.append({"id": [tag["id"] or ""]})
        else:
            path.append(tag["name"])
    return smi_of(head, gpus, complete=f"</{ROOT}>" in text)


# --- the text of `nvidia-smi -q` ----------------------------------------------------------------

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
        return values.parse_error(text) or Smi(complete=False, problems=("no nvidia-smi log",))
    return smi_of(head, gpus, complete=True)
