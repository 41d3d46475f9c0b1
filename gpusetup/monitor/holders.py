"""Which processes use much of a GPU's memory, and which of them do not belong to the watched job.
Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.model.units import GIB
from gpusetup.monitor import marks
from gpusetup.monitor.documents import GpuSample, ProcessUse
from gpusetup.monitor.programs import kind_of

BIG_HOLDER = 10.0
"""The share of the GPU's memory, in percent, from which a process is named. A desktop and a bare
CUDA context use less."""
WAITING_KINDS = ("server", "notebook")
"""Kinds of programs that keep their memory while they wait for users."""


def big_holders(gpu: GpuSample) -> list[ProcessUse]:
    """The processes that use at least 10 % of the GPU's memory at this moment, largest first."""
    total_bytes = gpu.memory_total_bytes or 0
    least_bytes = total_bytes * BIG_HOLDER / 100
    holders = []
    for process in gpu.processes or ():
        # A process's memory may be unknown, because Windows does not report it.
        held_bytes = process.memory_bytes or 0
        if total_bytes and held_bytes >= least_bytes:
            holders.append(process)
    return sorted(holders, key=lambda process: -(process.memory_bytes or 0))


def without_resting(
    holders: Sequence[ProcessUse], samples: Sequence[GpuSample]
) -> list[ProcessUse]:
    """Only the given processes that may compute: a process that computed nothing in any sample is
    left out."""
    highest_shares: dict[int, float] = {}
    for gpu in samples:
        for process in gpu.processes or ():
            if process.sm_percent is not None:
                share_before = highest_shares.get(process.pid, 0.0)
                highest_shares[process.pid] = max(share_before, process.sm_percent)
    computing = []
    for holder in holders:
        highest_share = highest_shares.get(holder.pid)
        # Keep a process if it is unknown how much it computes, because nvidia-smi's table does not
        # show that.
        if highest_share is None or highest_share > marks.QUIET:
            computing.append(holder)
    return computing


def kind_of_process(process: ProcessUse) -> str:
    """The kind of program, such as `server`, judged by the process name; "" if the name does not
    show it."""
    return kind_of(None, (process.name or "",))


def foreign_holders(
    holders: Sequence[ProcessUse], command_kind: str | None = None
) -> list[ProcessUse]:
    """The processes among these holders that do not belong to the watched job.

    `command_kind`: the kind of the watched command, if it is known. A server or a notebook next to
    a training does not belong to it. If the programs have different names, the largest one counts
    as the job; processes with the same name may be its ranks.

    >>> def held(name, gib): return ProcessUse(pid=1, name=name, memory_bytes=gib << 30)
    >>> [use.name for use in foreign_holders([held("ollama", 14), held("python", 9)])]
    ['ollama']
    >>> foreign_holders([held("python", 14), held("python", 9)])
    []
    """
    waiting = [holder for holder in holders if kind_of_process(holder) in WAITING_KINDS]
    if command_kind is not None:
        return [] if command_kind in WAITING_KINDS else waiting
    if waiting:
        # If all of them are servers and notebooks, these are themselves the watched job.
        return waiting if len(waiting) < len(holders) else []
    # With several Python processes, it is unknown which of them is the job.
    if any(INTERPRETERS.search(holder.name or "") for holder in holders[1:]):
        return []
    job_name = holders[0].name if holders else None
    return [holder for holder in holders if holder.name != job_name]


INTERPRETERS = re.compile(r"(^|[/\\\\])(python[\d.]*(\.exe)?|pt_main_thread)( |$)")
"""Processes whose name does not show which program they run."""


LONGEST_OPTIONS = 24
"""How many characters of a process's options are shown, for example `-m ipykernel_launcher`."""


def named_with_size(process: ProcessUse) -> str:
    """
    >>> named_with_size(ProcessUse(pid=71, name="/usr/bin/ollama", memory_bytes=3 << 30))
    'ollama (PID 71, 3.0 GiB)'
    """
    path, dash, options = (process.name or "a process").replace("\\", "/").partition(" -")
    name = path.rpartition("/")[2]
    # The module that Python runs tells more than the name `python`.
    name += (dash + options)[:LONGEST_OPTIONS]
    gib = (process.memory_bytes or 0) / GIB
    return f"{name} (PID {process.pid}, {gib:.1f} GiB)"
