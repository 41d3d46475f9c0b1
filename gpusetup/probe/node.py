"""Reads a node's health within seconds, from NVML, kernel files and the kernel log.

Neither torch nor CUDA is started, so a running job is not disturbed. All sources share one time
limit. A source that has not answered by then is unknown, and a driver that hangs is a finding.
"""

from __future__ import annotations

import platform
import time
from concurrent.futures import wait

from gpusetup.messages.driver import KERNEL_LOG
from gpusetup.messages.search import events_of, text_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Reading, Snapshot
from gpusetup.probe.deadline import in_background
from gpusetup.probe.driver_files import read_driver_files
from gpusetup.probe.driver_libraries import read_nvml
from gpusetup.probe.gpu import NOT_ASKED, combine_sources, hint_at_a_driver
from gpusetup.probe.host import read_memory, read_os
from gpusetup.readings.sources import merged_snapshots, missing
from gpusetup.system.processes import no_answer_in
from gpusetup.system.system import System

LIMIT_SECONDS = 3.5
"""The time limit in seconds for all sources together. If a child cannot be killed, we stop waiting
for it one second later."""
LOG_SECONDS = 1.5
"""The time limit in seconds for each command that may read the kernel log."""


def read_node(system: System, limit: float = LIMIT_SECONDS) -> Snapshot:
    """Everything about a node within `limit` seconds; sources are read in parallel."""
    until = time.monotonic() + limit
    # Half of the limit, because a second command is tried if the first may not read the log.
    log_call = in_background(read_kernel_log, system, min(LOG_SECONDS, limit / 2))
    files = read_driver_files(system)
    nvml = read_nvml(system, limit) if hint_at_a_driver(files) else NOT_ASKED
    if system.family == "linux":
        ended, _ = wait([log_call], timeout=max(0.0, until - time.monotonic()))
        no_log = missing("events", "log", no_answer_in(limit))
        files.append(log_call.result() if ended else no_log)
    gpu_side = combine_sources(system, (nvml,), files)
    host = Snapshot(memory=read_memory(system))
    return merged_snapshots((gpu_side, read_os(system), host))


def name_of_node() -> str:
    """The node's name in Slurm, otherwise its own name without the domain."""
    return System().environ().get("SLURMD_NODENAME") or platform.node().partition(".")[0]


COMMANDS = (
    ("dmesg", "--notime"),
    ("journalctl", "-k", "-b", "--no-pager", "-o", "cat"),
)
"""Commands that print the kernel log, each message without its time. The second one also works for
users who may not run the first."""
LONGEST_PROBLEM = 300
"""The most characters that a reading quotes of a command's error message."""
MAX_EVENTS = 50
"""The maximum number of events, because a failing GPU writes the same lines thousands of times."""


def read_kernel_log(system: System, limit: float) -> Snapshot:
    """The events in the kernel log, from the first command that is allowed to read it.

    Each command may take `limit` seconds. If one could not read the log, a reading says why.
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
        problem = output.problem or output.stderr.strip()[:LONGEST_PROBLEM] or f"exit {output.exit}"
        readings.append(Reading(subject="events", source=command[0], problem=problem))
    return Snapshot(events=events, readings=tuple(readings))


def parse_kernel_log(text: str) -> tuple[Event, ...]:
    """The last events in a kernel log without times, oldest first.

    >>> line = "NVRM: Xid (PCI:0000:65:00): 119, pid=7, Timeout after 6s"
    >>> dict(parse_kernel_log(line)[0].values)
    {'bus_id': '0000:65:00', 'number': '119'}
    """
    log = text_of(text.splitlines())
    events = events_of(log, KERNEL_LOG)
    # They are grouped by message, so sort them by their place in the text (`flat`).
    in_order = sorted(events, key=lambda event: log.flat.find(event.text or ""))
    # Keep a repeated event once, at its first place in the log but with its last text.
    distinct: dict[tuple[object, ...], Event] = {}
    for event in in_order:
        key = (event.kind, *sorted(event.values.items()))
        distinct[key] = replace(event, source="kernel log")
    return tuple(distinct.values())[-MAX_EVENTS:]
