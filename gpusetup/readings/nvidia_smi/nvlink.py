"""`nvidia-smi nvlink -s` (state) and `-e` (errors): each GPU's line, then its links."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Gpu
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi.csv import GPU_LINE
from gpusetup.readings.nvidia_smi.values import Smi, integer

LINK = lazy(r"^\s*Link (?P<link>\d{1,2}): (?P<said>\S.*?)\s*$")
SPEED = lazy(r"\d+(?:\.\d+)? GB/s")
COUNTER = lazy(r"(?P<what>[A-Z][\w -]{2,40}) Errors?: (?P<count>\d{1,19})")
COUNTED = ("replay", "recovery", "crc")
"""The counters that mean a bad link; drivers from 570 on print others, which are not summed."""
ALL_INACTIVE = "all links are inactive"


def parse_nvlink(text: str) -> Smi:
    """The GPUs with the state and the errors of their links.

    >>> text = '''GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-1)
    ...      Link 0: 25.781 GB/s
    ...      Link 1: <inactive>
    ...      Link 0: Replay Errors: 2
    ...      Link 0: Recovery Errors: 1'''
    >>> gpu = parse_nvlink(text).gpus[0]
    >>> gpu.nvlinks_active, gpu.nvlinks_inactive, gpu.nvlink_errors, gpu.nvlink_recoveries
    (1, (1,), 3, 1)
    """
    return Smi(gpus=tuple(gpu_of(head, lines) for head, lines in blocks(text)) or None)


def blocks(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Each GPU's line with the lines about its links."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        begins = GPU_LINE.match(line.strip())
        if begins and head and lines:
            yield head, lines
        if begins:
            head, lines = begins, []
        elif LINK.match(line) or ALL_INACTIVE in line.lower():
            lines.append(line)
    if head and lines:
        yield head, lines


def gpu_of(head: re.Match[str], lines: list[str]) -> Gpu:
    index, name, uuid = head.groups()
    links = [(int(hit["link"]), hit["said"]) for line in lines if (hit := LINK.match(line))]
    active = {link for link, said in links if SPEED.match(said)}
    silent = {link for link, said in links if "inactive" in said.lower()}
    told = bool(active or silent or any(ALL_INACTIVE in line.lower() for line in lines))
    counters = COUNTER.finditer(" ".join(said for _, said in links))
    counts = [(hit["what"].lower(), int(hit["count"])) for hit in counters]
    errors = [n for what, n in counts if any(word in what for word in COUNTED)]
    trained = [n for what, n in counts if "recovery" in what]
    return Gpu(
        name=name.strip(),
        nvml_index=integer(index),
        uuid=uuid,
        nvlinks_active=len(active) if told else None,
        nvlinks_inactive=tuple(sorted(silent)) if told else None,
        nvlink_errors=sum(errors) if errors else None,
        nvlink_recoveries=sum(trained) if trained else None,
    )
