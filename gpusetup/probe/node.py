"""A node's health within seconds: NVML, the kernel's files and its log.

Neither torch nor CUDA is started, so that a job that runs beside it notices nothing. All sources
share one limit; what has not answered then is unknown, and a driver that hangs is a finding.
"""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from gpusetup.messages.driver import KERNEL_LOG
from gpusetup.messages.search import events_of, text_of
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Reading, Snapshot
from gpusetup.model.patterns import lazy
from gpusetup.probe.deadline import BackgroundCall
from gpusetup.probe.driver_libraries import read_nvml
from gpusetup.probe.gpu import FILES, NOT_ASKED, combine_sources, hint_at_a_driver
from gpusetup.probe.host import read_memory, read_os
from gpusetup.readings.sources import merged_snapshots, missing
from gpusetup.system.processes import no_answer_in
from gpusetup.system.system import System, list_or_empty, read_or_none, unless_refused

LIMIT_SECONDS = 3.5
"""For all sources. A child that cannot be killed is given up a second later."""
LOG_SECONDS = 1.5
"""For each of the commands that may read the kernel's log."""
T = TypeVar("T")
SYSFS_CLASSES = "/sys/class"
INFINIBAND = f"{SYSFS_CLASSES}/infiniband"


class NodeRecord(Frozen):
    """What was read of a node."""

    snapshot: Snapshot
    facts: Mapping[str, str] = {}
    """What a snapshot has no place for: links, free disk."""


def read_node(system: System, limit: float = LIMIT_SECONDS) -> NodeRecord:
    """Everything that is known of a node within `limit` seconds; all sources are asked at once."""
    until = time.monotonic() + limit
    log_call = BackgroundCall(read_kernel_log, system, min(LOG_SECONDS, limit / 2))
    facts_call = BackgroundCall(lambda: dict(_links_and_disks(system)))
    files = [read(system) for read in FILES[system.family]]
    nvml = read_nvml(system, limit) if hint_at_a_driver(files) else NOT_ASKED
    if system.family == "linux":
        files.append(_result_by(until, log_call, missing("events", "log", no_answer_in(limit))))
    gpu_side = combine_sources(system, (nvml,), files)
    snapshot = merged_snapshots((gpu_side, read_os(system), Snapshot(memory=read_memory(system))))
    unknown: dict[str, str] = {}
    facts = _result_by(until, facts_call, unknown)
    return NodeRecord(snapshot=snapshot, facts=facts)


def _result_by(until: float, call: BackgroundCall[T], otherwise: T) -> T:
    """An answer that came in time; a file of a device that hangs is unknown."""
    return call.result() if call.ended_within(until - time.monotonic()) else otherwise


def name_of_node() -> str:
    """The node's own name, without its domain."""
    return platform.node().partition(".")[0]


def _links_and_disks(system: System) -> Iterator[tuple[str, str]]:
    """What the kernel's files tell of links and disks."""
    yield from links(system).items()
    for name, path in (("disk.root_free_gib", "/"), ("disk.tmp_free_gib", "/tmp")):
        if space := unless_refused(system.space, path):
            yield name, f"{space.free_bytes / (1 << 30):.0f}"


def links(system: System) -> dict[str, str]:
    """The InfiniBand and RoCE ports that are up, and those that are not, as sysfs shows them.

    No device is a known answer (`none`); nothing is told where sysfs cannot be read.
    """
    up: Counter[str] = Counter()
    down: list[str] = []
    if unless_refused(system.list, SYSFS_CLASSES) is None:
        return {}
    for device in list_or_empty(system, INFINIBAND):
        for port in list_or_empty(system, f"{INFINIBAND}/{device}/ports"):
            state, rate, layer = (
                (read_or_none(system, f"{INFINIBAND}/{device}/ports/{port}/{name}") or "").strip()
                for name in ("state", "rate", "link_layer")
            )
            if state.endswith("ACTIVE"):
                up[f"{layer} {rate or 'unknown rate'}".strip()] += 1
            else:
                down.append(f"{device}/{port}")
    active = ", ".join(f"{count} x {kind}" for kind, count in sorted(up.items())) or "none"
    return {"links.active": active, "links.down": ", ".join(sorted(down)) or "none"}


COMMANDS = (
    ("dmesg",),
    ("journalctl", "-k", "-b", "--no-pager", "-o", "cat"),
)
MAX_EVENTS = 50


def read_kernel_log(system: System, limit: float) -> Snapshot:
    """The first command that may read the log; the readings say why another could not.

    Each command may take `limit` seconds.
    """
    readings: list[Reading] = []
    events: tuple[Event, ...] = ()
    for command in COMMANDS:
        output = system.run(command, limit)
        if output.ok:
            events = parse_kernel_log(output.stdout)
            source, count = " ".join(command), f"{len(events)} lines about the GPU"
            readings.append(Reading(subject="events", source=source, value=count))
            break
        problem = output.problem or output.stderr.strip()[:300] or f"exit {output.exit}"
        readings.append(Reading(subject="events", source=command[0], problem=problem))
    return Snapshot(events=events, readings=tuple(readings))


def parse_kernel_log(text: str) -> tuple[Event, ...]:
    """The newest events, oldest first; any prefix (time, host) is allowed.

    >>> line = "[12.5] NVRM: Xid (PCI:0000:65:00): 119, pid=7, Timeout after 6s"
    >>> dict(parse_kernel_log(line)[0].values)
    {'bus_id': '0000:65:00', 'number': '119'}
    """
    log = text_of(bare_lines(text))
    found = sorted(events_of(log, KERNEL_LOG), key=lambda event: log.flat.find(event.text or ""))
    events = (replace(event, source="kernel log") for event in found)
    each = {(event.kind, *sorted(event.values.items())): event for event in events}
    return tuple(each.values())[-MAX_EVENTS:]


PREFIX = lazy(
    r"""
    (?: <\d{1,3}> | \w+\s*:\w+\s*:\s )?                             # dmesg's level
    (?: \w{3}\ +\d{1,2}\ [\d:]{8}\ \S{1,64}\ kernel:\ )?            # journald's clock
    (?: \[ [^\]\n]{5,40} \]\s? ){0,2}                               # the kernel's own, its caller
    """,
    re.VERBOSE,
)


def bare_lines(log: str) -> list[str]:
    """
    >>> bare_lines("[   12.512345] NVRM: x\\nNov 20 06:03:41 node-1 kernel: [ 1.123456] nvidia: y")
    ['NVRM: x', 'nvidia: y']
    """
    return [PREFIX.sub("", line, count=1) for line in log.splitlines()]
