"""What the kernel log says about NVIDIA GPUs: Xid errors, a GPU or a module that did not start.

Read by `fleet check` only: the log is often closed to users, and long.
"""

from __future__ import annotations

import re

from gpusetup.messages.driver import KERNEL_LOG
from gpusetup.messages.search import events_of, text_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Reading, Snapshot
from gpusetup.model.patterns import lazy
from gpusetup.system.system import System

COMMANDS = (
    ("dmesg",),
    ("journalctl", "-k", "-b", "--no-pager", "-o", "cat"),
)
SECONDS = 10.0
EVENTS_KEPT = 50
TEXT_KEPT = 300


def read_dmesg(system: System, limit: float = SECONDS) -> Snapshot:
    """The first command that may read the log; the readings say why another could not.

    Each command may take `limit` seconds.
    """
    readings: list[Reading] = []
    events: tuple[Event, ...] = ()
    for command in COMMANDS:
        said = system.run(command, limit)
        if said.ok:
            events = parse_kernel_log(said.stdout)
            source, count = " ".join(command), f"{len(events)} lines about the GPU"
            readings.append(Reading(subject="events", source=source, value=count))
            break
        problem = said.problem or said.stderr.strip()[:TEXT_KEPT] or f"exit {said.exit}"
        readings.append(Reading(subject="events", source=command[0], problem=problem))
    return Snapshot(events=events, readings=tuple(readings))


def parse_kernel_log(text: str) -> tuple[Event, ...]:
    """The newest events, oldest first; any prefix (time, host) is allowed.

    >>> line = "[12.5] NVRM: Xid (PCI:0000:65:00): 119, pid=7, Timeout after 6s"
    >>> dict(parse_kernel_log(line)[0].values)
    {'bus_id': '0000:65:00', 'number': '119'}
    """
    log = text_of(bare_lines(text))
    found = sorted(events_of(log, KERNEL_LOG), key=lambda one: log.flat.find(one.text or ""))
    events = (replace(one, source="kernel log") for one in found)
    each = {(event.kind, *sorted(event.values.items())): event for event in events}
    return tuple(each.values())[-EVENTS_KEPT:]


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
