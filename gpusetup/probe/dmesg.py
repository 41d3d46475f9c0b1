"""What the kernel log says about NVIDIA GPUs: Xid errors, a GPU or a module that did not start.

Read under `--deep` only: the log is often closed to users, and long.
"""

from __future__ import annotations

import re

from gpusetup.model import Event, Reading
from gpusetup.probe.side import GpuSide
from gpusetup.probe.system import System

COMMANDS = (
    ("dmesg",),
    ("journalctl", "-k", "-b", "--no-pager", "-o", "cat"),
)
SECONDS = 10.0
EVENTS_KEPT = 50
TEXT_KEPT = 300

BUS = r"(?P<bus_id>[0-9a-fA-F:.]*[0-9a-fA-F])"

# kind -> pattern; the named groups become the event's values. Sources: NVIDIA's "Xid Errors"
# guide and the messages of the kernel module and of the kernel's module loader.
KINDS: tuple[tuple[str, str], ...] = (
    ("xid", rf"NVRM: (?:GPU at )?Xid \(PCI:{BUS}[^)]*\): (?P<number>\d+)"),
    ("nvrm-api-mismatch", r"NVRM: API mismatch: the client .*has the version (?P<client>[\d.]+\d)"),
    ("gpu-init-failed", rf"NVRM: (?:GPU {BUS}: )?(?:RmInitAdapter|rm_init_adapter) failed"),
    ("gpu-fell-off-bus", rf"NVRM: GPU {BUS}: .*fallen off the bus"),
    ("gpu-not-supported-by-driver", r"NVRM: The NVIDIA .*(?:not supported|legacy)"),
    ("module-key-rejected", r"[Kk]ey was rejected by service|[Mm]odule is rejected"),
    ("nouveau-in-the-way", r"NVRM: .*nouveau"),
)


def read_dmesg(system: System) -> GpuSide:
    """The first command that may read the log; the readings say why another could not."""
    readings: list[Reading] = []
    for command in COMMANDS:
        said = system.run(command, SECONDS)
        if said.ok:
            return _told(" ".join(command), parse_kernel_log(said.stdout), readings)
        problem = said.problem or said.stderr.strip()[:TEXT_KEPT] or f"exit {said.exit}"
        readings.append(Reading(subject="events", source=command[0], problem=problem))
    return GpuSide(readings=tuple(readings))


def _told(source: str, events: tuple[Event, ...], former: list[Reading]) -> GpuSide:
    count = Reading(subject="events", source=source, value=f"{len(events)} lines about the GPU")
    return GpuSide(events=events, readings=(*former, count))


def parse_kernel_log(text: str) -> tuple[Event, ...]:
    """The last lines that match, oldest first; any prefix (time, host) is allowed.

    >>> line = "[12.5] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', GPU has fallen off the bus."
    >>> dict(parse_kernel_log(line)[0].values)
    {'bus_id': '0000:65:00', 'number': '79'}
    """
    found = (event for line in text.splitlines() if (event := event_of(line)))
    return tuple(found)[-EVENTS_KEPT:]


def event_of(line: str) -> Event | None:
    """The first kind that a line of the kernel log matches."""
    for kind, pattern in KINDS:
        if hit := re.search(pattern, line):
            values = {name: value for name, value in hit.groupdict().items() if value}
            return Event(
                kind=kind, values=values, source="kernel log", text=line.strip()[:TEXT_KEPT]
            )
    return None
