"""The long outputs of `nvidia-smi`: `-q` as text and `-q -x` as XML (formats v11, v12, v13).

Both hold the same tree. Either becomes a flat map, `pci.pci_bus_id` -> `00000000:07:00.0`, of which
`smi_fields` makes a GPU. XML is read tag by tag: one that is cut (nvidia-smi died in the middle of
it) gives what it holds and `complete=False`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.fields import Flat, first, gpu_of, put
from gpusetup.readings.nvidia_smi.values import Smi


def smi_of(head: Mapping[str, str], gpus: list[Flat], *, complete: bool) -> Smi:
    """From 610 on the versions have new names, and the old ones may hold a remark."""
    kept = [values.flag(gpu.get("persistence_mode")) for gpu in gpus]
    attached = values.integer(head.get("attached_gpus"))
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

TAG = lazy(r"<(/?)([A-Za-z_][\w.-]*)([^<>]*)>([^<]*)")
ROOT = "nvidia_smi_log"


def parse_xml(text: str) -> Smi:
    """`nvidia-smi -q -x`, whole or cut.

    >>> smi = parse_xml("<nvidia_smi_log><driver_version>595.84</driver_version><attached_gpus>2"
    ...     "</attached_gpus><gpu id='0'><product_name>NVIDIA L4</product_name><pci><pci_bus>06<")
    >>> smi.driver_version, smi.gpus[0].name, smi.complete, smi.problems
    ('595.84', 'NVIDIA L4', False, ('cut after 1 of 2 GPUs',))
    """
    if f"<{ROOT}" not in text:
        return values.parse_error(text) or Smi(complete=False, problems=("no XML",))
    head: Flat = {}
    gpus: list[Flat] = []
    for path, value in leaves(text):
        if path == ("gpu", "@id"):
            gpus.append({"@id": value})
        elif path[0] == "gpu" and gpus and path[1:]:
            put(gpus[-1], path[1:], value)
        else:
            head.setdefault(".".join(path), value)
    return smi_of(head, gpus, complete=f"</{ROOT}>" in text)


def leaves(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each value with the names above it, the root's left out; a GPU begins with its `@id`."""
    from html import unescape

    path: list[str] = []
    for closing, name, rest, content in TAG.findall(text.partition(f"<{ROOT}")[2]):
        if closing:
            while name in path and path.pop() != name:
                pass
            continue
        if name == "gpu" and not path:
            found = re.search(r"id=[\"']([^\"']*)", rest)
            yield ("gpu", "@id"), found[1] if found else ""
        if not rest.rstrip().endswith("/"):
            path.append(name)
        if content.strip():
            yield tuple(path), unescape(content.strip())


# --- the text of `nvidia-smi -q` ----------------------------------------------------------------

LABEL = lazy(r"^(\s*)(\S[^:]*?)\s*(?::\s(.*)|:)?$")
GPU_HEAD = lazy(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")

VERSIONS = {"driver_version", "kmd_version", "cuda_version", "cuda_umd_version"}


def parse_query(text: str) -> Smi:
    """`nvidia-smi -q`, whole, cut, or a part of it (`-d PERFORMANCE`).

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
            gpus.append({"@id": begins.group(1)})
            above = []
        else:
            _add_line(line, above, gpus[-1] if gpus else head)
    if not gpus and not head.keys() & VERSIONS:
        return values.parse_error(text) or Smi(complete=False, problems=("no nvidia-smi log",))
    attached = values.integer(head.get("attached_gpus"))
    return smi_of(head, gpus, complete=attached in (None, len(gpus)))


def _add_line(line: str, above: list[tuple[int, str]], flat: Flat) -> None:
    """One label: a heading when it has no value; deeper labels belong to it."""
    found = LABEL.match(line)
    if not found:
        return
    depth, label, value = len(found.group(1)), found.group(2), found.group(3)
    while above and above[-1][0] >= depth:
        above.pop()
    name = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
    if value is not None:
        put(flat, (*(one for _, one in above), name), value.strip())
    above.append((depth, name))
