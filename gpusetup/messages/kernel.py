"""What the kernel's log says about NVIDIA GPUs: one table for the live log and for reports.

Sources: the messages of the open kernel modules, NVIDIA's guides "Xid Errors" and "Fabric Manager
User Guide" (SXid), the kernel's module loader and its watch over tasks that hang.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from gpusetup.messages.row import Key, Row, found_in, gathered, key_of, row

BUS = r"(?P<bus_id>[0-9a-f]{2,8}:[0-9a-f:.]{1,13}[0-9a-f])"

KERNEL_LOG = (
    row(
        "xid",
        "xid",
        rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>(?!154\b)\d{{1,4}})",
        by="number",
        gathers="bus_id",
    ),
    row(
        "xid",
        "154",
        rf"\bXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>154)\b"
        r"(?:.{0,120}?recovery action changed from .{3,60}? to 0x\w{1,8} \((?P<recovery>[\w /-]{3,40})\))?",
        by="recovery",
        gathers="bus_id",
    ),
    row(
        "sxid",
        "sxid",
        rf"\bSXid \((?:PCI:)?{BUS}[^)]{{0,20}}\): (?P<number>\d{{5}}), (?:Always[ -])?Fatal\b",
        by="number",
        gathers="bus_id",
    ),
    row(
        "nvrm-api-mismatch",
        "api mismatch",
        r"API mismatch: \w+ client .{0,60}?version (?P<client>\d[\d.]{3,12}\d)"
        r"(?:.{0,60}?module has(?: \S{1,40}){0,4}? the version (?P<kernel>\d[\d.]{3,12}\d))?",
    ),
    row(
        "nvrm-api-mismatch",
        "nvidia-nvswitch: version mismatch",
        r"nvidia-nvswitch: Version mismatch, kernel version (?P<kernel>[\d.]{3,14}\d) user version (?P<client>[\d.]{3,14}\d)",
    ),
    row(
        "gpu-init-failed",
        "initadapter",
        rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{BUS}:? ?)?:?\s?(?:RmInitAdapter)(?:: | )(?:failed|cannot)!?"
        r"(?: \((?P<code>0x[0-9a-fx:]{1,24})\))?",
    ),
    row("gpu-init-failed", "rm_init_adapter", rf"(?:GPU {BUS}: )?rm_init_adapter.{{0,12}} failed"),
    row("gpu-init-failed", "none of the nvidia devices were"),
    row("gpu-init-failed", "probe routine failed", r"NVIDIA probe routine failed"),
    row(
        "gpu-init-failed",
        "probe of",
        rf"nvidia\w{{0,8}}:? .{{0,24}}probe of {BUS} failed with error",
    ),
    row(
        "gpu-init-failed",
        "region assigned to your nvidia",
        r"I/?O region assigned to your NVIDIA device",
        lacks="address space",
    ),
    row("gpu-init-failed", "bar1 is 0m", r"NVRM: BAR1 is 0M", lacks="address space"),
    row("gpu-init-failed", "failed to wait for gfw", r"failed to wait for GFW.?boot"),
    row("gpu-init-failed", "failed to copy vbios"),
    row(
        "gpu-fell-off-bus",
        "fallen off the bus",
        rf"(?:(?:GPU (?:at )?|Xid \()(?:PCI:)?{BUS}\)?:?(?:(?!NVRM|Xid|GPU \S*:).){{0,80}})?fallen off the bus",
    ),
    row(
        "gpu-requires-reset", "nv_err_reset_required", r"\bReset required \[NV_ERR_RESET_REQUIRED\]"
    ),
    row(
        "gpu-not-supported-by-driver",
        "not supported by",
        rf"NVRM: The NVIDIA (?:GPU )?{BUS}.{{0,120}}?not supported by (?:the )?(?:NVIDIA )?(?P<driver>[\d.]{{3,14}}|open)?",
    ),
    row(
        "gpu-not-supported-by-driver",
        "installed in this system is",
        r"installed in this system is .{0,24}?not supported by.{0,40}?"
        r"(?:NVIDIA (?P<driver>\d{3}[\d.]{1,10}\d) driver|open .{0,24}?nvidia\.ko)",
    ),
    row(
        "gpu-not-supported-by-driver",
        "legacy drivers",
        r"(?:The NVIDIA (?P<name>[\w ()-]{3,50}?) (?:GPU )?installed in this system is .{0,24}?)?"
        r"supported through the NVIDIA (?P<driver>[\d.x]{3,14}) Legacy",
    ),
    row(
        "gpu-not-supported-by-driver",
        "open kernel modules",
        r"requires? use of the NVIDIA open kernel modules",
        driver="closed",
    ),
    row("gpu-not-supported-by-driver", "nvidia.ko because it does not include", driver="open"),
    row(
        "gsp-timeout",
        "rpc",
        r"Time(?:d )?out (?:waiting for RPC|after \d+s? of waiting for RPC).{0,40}GSP",
    ),
    row(
        "gsp-timeout",
        "gsp",
        r"GSP(?: |-)?RM heartbeat timed out|GSP task (?:timeout|exception)|GSP .{0,20}lockdown",
    ),
    row("hardware-error", "nvlink", r"uncorrectable NVLink error", what="nvlink"),
    row("hardware-error", "nvlink", r"NVRM: .{0,40}NVLink: .{0,60}fatal", what="nvlink"),
    row(
        "module-key-rejected",
        "key was rejected by service",
        r"(?:insert (?:module )?'?(?P<module>[\w./-]{1,80})'?: )?Key was rejected by service",
    ),
    row(
        "module-key-rejected",
        "required key not available",
        r"(?:insert '?(?P<module>nvidia[\w-]*)'?: )Required key not available",
    ),
    row(
        "module-key-rejected",
        "module is rejected",
        r"(?:unsigned |nvidia.{0,20})module is rejected",
    ),
    row(
        "module-key-rejected",
        "not signed with a trusted key",
        r"PKCS#7 signature not signed with a trusted key",
    ),
    row(
        "module-key-rejected",
        "unsigned module loading",
        r"Lockdown: .{0,40}unsigned module loading is restricted",
    ),
    row(
        "module-key-rejected",
        "not signed by a key",
        r"not signed by a key that is trusted by the (?:Linux )?kernel",
    ),
    row(
        "driver-does-not-answer",
        "blocked for more than",
        r"task (?:nvidia[\w-]{0,20}|nvc:\[driver\]|nv_\w{1,20}):\d{1,8} blocked for more than \d{2,6} seconds",
        how="is blocked in the kernel",
    ),
    row(
        "driver-does-not-answer",
        "blocked for more than",
        r"blocked for more than \d{2,6} seconds.{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row(
        "driver-does-not-answer",
        "state:d",
        r"task:\S{1,40} state:D .{0,900}?\[nvidia(?:_uvm|_modeset)?\]",
        how="is blocked in the kernel",
    ),
    row("nouveau-in-the-way", "nouveau", r"NVRM: .{0,80}nouveau"),
)


LINES_OF_ONE = 12
"""How many lines one message may take; a trace of the kernel is longer, and told by its first."""
LONGEST = 1500
LOOKED_AT = 3000
"""How often a needle is looked at, from the end of the log on: what is new counts."""
PREFIX = re.compile(
    r"(?:<\d{1,3}>|\w+\s*:\w+\s*:\s)?(?:\[[^\]\n]{5,40}\]\s?|\w{3} +\d{1,2} [\d:]{8} \S{1,64} kernel: (?:\[[\s\d.]{5,20}\] )?)?"
)
"""dmesg's level, its clock, and journald's own."""


def in_kernel_log(log: str) -> tuple[tuple[str, dict[str, str], str], ...]:
    """The kinds of events of a whole log with their values and first lines, oldest first.

    >>> line = "[   12.512345] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."
    >>> [(kind, values) for kind, values, _ in in_kernel_log(line)][0]
    ('xid', {'bus_id': '0000:65:00', 'number': '79'})
    """
    lines = [PREFIX.sub("", line, count=1) for line in log.splitlines()]
    low = "\n".join(line.lower() for line in lines)
    starts = list(accumulate((len(line.lower()) + 1 for line in lines), initial=0))
    told = [one for row in KERNEL_LOG for one in _told(row, lines, low, starts)]
    return tuple((row.kind, values, lines[at]) for at, row, values in sorted(told, key=_place))


Told = tuple[int, Row, dict[str, str]]


def _place(one: Told) -> int:
    return one[0]


def _told(one: Row, lines: list[str], low: str, starts: list[int]) -> Iterator[Told]:
    """The events of one row: where each first stands, with what its repetitions add."""
    first: dict[Key, tuple[int, dict[str, str]]] = {}
    repeated: dict[Key, list[str]] = {}
    for at in reversed(_hits(one.needle, low, starts)):
        for values in _at(one, lines, at):
            key = key_of(one, values)
            first.setdefault(key, (at, values))
            repeated.setdefault(key, []).append(values.get(one.gathers, ""))
    for key, (at, values) in first.items():
        yield at, one, gathered(one, values, filter(None, repeated[key]))


def _hits(needle: str, low: str, starts: list[int]) -> list[int]:
    """The lines with a needle, the last first."""
    found: list[int] = []
    place = low.rfind(needle)
    while place >= 0 and len(found) < LOOKED_AT:
        line = bisect_right(starts, place) - 1
        found.append(line)
        place = low.rfind(needle, 0, starts[line])
    return found


def _at(one: Row, lines: list[str], at: int) -> Iterator[dict[str, str]]:
    """The messages that begin in one line, or in the line before it and reach into it."""
    before = lines[at - 1] if at else ""
    window = " ".join((before, *lines[at : at + LINES_OF_ONE]))[: len(before) + LONGEST]
    ends = len(before) + 1 + len(lines[at])
    for start, end, values in found_in(window, one):
        if start < ends and end > len(before) + 1:
            yield values
