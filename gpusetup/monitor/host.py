"""Reads the CPU, memory, disks and network of the machine and of the command's processes with
psutil, and finds the DataLoader workers among these processes. Reads the machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any, TypeVar

import psutil

from gpusetup.monitor.documents import HostSample, TreeSample
from gpusetup.probe.host import read_cpu_quota
from gpusetup.system.system import System

T = TypeVar("T")


def or_none(read: Callable[..., T], *arguments: object) -> T | None:
    """The value that a psutil function returns. None if the process has ended or belongs to another
    user, or if the system lacks the value. Errors are caught so that watching never stops."""
    try:
        return read(*arguments)
    except (psutil.Error, OSError, RuntimeError, AttributeError, LookupError, ValueError):
        return None
    except OverflowError:  # a pid that no process can have
        return None


SHORTEST_SECONDS = 1e-3
"""The least time between two samples in seconds, because we divide by it."""


class HostSampler:
    """Takes samples of this machine; values that the system does not report are None.

    The first sample has no rates, because it only takes the baseline.
    """

    def __init__(self) -> None:
        self._cores = or_none(psutil.cpu_count)
        # When the counters were last read (0 before the first sample), and their values.
        self._at, self._before = 0.0, dict[str, int]()

    def sample(self) -> HostSample:
        """What the machine uses now, with rates since the previous sample."""
        at = time.monotonic()
        disk, network = or_none(psutil.disk_io_counters), or_none(psutil.net_io_counters)
        counters = {"disk_read": disk.read_bytes, "disk_write": disk.write_bytes} if disk else {}
        if network:
            # Sent bytes do not matter, because a training waits only for data that it receives.
            counters["network_receive"] = network.bytes_recv
        memory = or_none(psutil.virtual_memory)
        cpu_percent = None
        # psutil's first value covers no time, so the first sample asks for it but does not use it.
        busy_percent = or_none(psutil.cpu_percent)
        if busy_percent is not None and self._at:
            # psutil's value is a share of all cores.
            cpu_percent = round(busy_percent * (self._cores or 1), 1)
        seconds, before = max(at - self._at, SHORTEST_SECONDS), self._before
        self._at, self._before = at, counters
        rates = {}
        for name in counters.keys() & before.keys():
            # A counter may have been reset (for example, because a disk was removed).
            moved = max(0, counters[name] - before[name])
            rates[f"{name}_bytes_per_second"] = round(moved / seconds)
        return HostSample(
            cpu_percent=cpu_percent,
            cores=self._cores,
            memory_used_bytes=memory.total - memory.available if memory else None,
            memory_total_bytes=memory.total if memory else None,
            **rates,
        )


# --- the command's processes ----------------------------------------------------------------------

WORKER_NAME = "pt_data_worker"
"""The process name of a DataLoader worker in torch 2.6 and newer (torch.utils.data, worker.py)."""
IO_COUNTERS = {
    "read_bytes": "read_bytes",
    "input_bytes": "read_chars",
    "write_bytes": "write_bytes",
}
"""Our names for the counters, and psutil's. Nothing on macOS, no `read_chars` on Windows."""
FIELDS = ["pid", "ppid", "create_time", "name", "cmdline", "cpu_times", "memory_info", "status"]
if hasattr(psutil.Process, "io_counters"):  # not on macOS
    FIELDS.append("io_counters")
ProcessFacts = dict[str, Any]
"""What psutil reports about a process, by the names in `FIELDS`; a value is None if it is hidden
(Windows, another user's process)."""


def loader_workers(tree: Sequence[ProcessFacts], on_gpu: Set[int] = frozenset()) -> Set[int]:
    """The pids of the DataLoader workers, recognised by their name or, with older torch, as Python
    forks that have no children and are not on a GPU.

    >>> def python(pid, parent, name="python"):
    ...     return {"pid": pid, "ppid": parent, "name": name, "cmdline": ["python", "t.py"]}
    >>> sorted(loader_workers([python(1, 0), python(2, 1), python(3, 1)]))
    [2, 3]
    >>> sorted(loader_workers([python(1, 0), python(2, 1, "pt_data_worker"), python(3, 1)]))
    [2]
    """
    named_workers = {process["pid"] for process in tree if process["name"] == WORKER_NAME}
    if named_workers:
        return named_workers
    parents = {process["ppid"] for process in tree}
    # psutil returns no name for a process that it may not inspect.
    python_commands = {
        process["pid"]: process["cmdline"]
        for process in tree
        if "python" in (process["name"] or "").lower()
    }
    # A fork has its parent's command line, whereas a separately started program has another one.
    forks = {
        process["pid"]
        for process in tree
        if process["cmdline"] and process["cmdline"] == python_commands.get(process["ppid"])
    }
    # Leave out processes on a GPU, because ranks started by torch.multiprocessing are forks too.
    return forks - parents - on_gpu


class ProcessTree:
    """Watches a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        # When the previous sample was taken, and the CPU seconds of each process by then. A process
        # is identified by its pid and start time, because the system may reuse a pid.
        self._at = 0.0
        self._before: dict[tuple[int, float], float] | None = None
        # The most that the processes had moved together so far, for each of `IO_COUNTERS`.
        self._moved = Counter[str]()
        # The smaller of CPU affinity and cgroup quota; None if unknown. Without CPU affinity (on
        # macOS), all of the machine's cores are usable.
        affinity = or_none(lambda: psutil.Process().cpu_affinity())
        usable = len(affinity) if affinity else or_none(psutil.cpu_count)
        quota = read_cpu_quota(System())
        self._cores = min(usable, quota) if usable and quota else usable

    def sample(self, on_gpu: Set[int] = frozenset()) -> TreeSample | None:
        """What the command's processes used since the previous sample.

        None at the first call, because it only takes the baseline: a process may have run for days
        before, and what it used then says nothing about now. Also None if no process is left, or if
        psutil reports none.
        """
        tree, at = self._processes(), time.monotonic()
        seconds, self._at = max(at - self._at, SHORTEST_SECONDS), at
        before, is_baseline = self._before or {}, self._before is None
        # The first two values are the user and system times; the times of ended children follow.
        self._before = {}
        for process in tree:
            identity = (process["pid"], process["create_time"])
            self._before[identity] = sum(process["cpu_times"][:2])
        # When a parent collects its child's exit status, Linux adds all that the child ever read
        # and wrote to the parent's own counters (kernel/exit.c, wait_task_zombie). So these are
        # counted for all processes together, and only above the most that was seen so far.
        totals = _moved_by(tree)
        moved = totals - self._moved
        self._moved |= totals
        if is_baseline or not tree:
            return None
        # A new process starts from zero.
        cpu = {
            pid: round((used - before.get((pid, started), 0.0)) / seconds * 100, 1)
            for (pid, started), used in self._before.items()
        }
        workers = loader_workers(tree, on_gpu)
        statuses = Counter(process["status"] for process in tree)
        return TreeSample(
            processes=len(tree),
            cpu_percent=round(sum(cpu.values()), 1),
            busiest_cpu_percent=max((cpu[pid] for pid in cpu.keys() - workers), default=0.0),
            memory_bytes=sum(process["memory_info"].rss for process in tree),
            loader_workers=len(workers),
            loader_cpu_percent=round(sum(cpu[pid] for pid in workers), 1),
            blocked_processes=statuses[psutil.STATUS_DISK_SLEEP],
            # 0 is unknown too: in a container, the driver's pids are those of the host.
            gpu_processes=len(on_gpu & cpu.keys()) or None,
            cores=self._cores,
            **{f"{name}_per_second": round(moved[name] / seconds) for name in totals},
        )

    def _processes(self) -> list[ProcessFacts]:
        """What psutil reports about the process and its current descendants, except for those that
        have ended or hide their figures, such as those of another user."""
        descendants = or_none(lambda: self.root.children(recursive=True)) or ()
        tree = []
        for process in (self.root, *descendants):
            facts = or_none(process.as_dict, FIELDS)
            # It may have ended since we listed it; a zombie has ended, too.
            if facts is None or facts["status"] == psutil.STATUS_ZOMBIE:
                continue
            if facts["cpu_times"] and facts["memory_info"]:
                tree.append(facts)
        return tree

    def command(self) -> tuple[str, ...] | None:
        """The command line of the process; None if it is hidden."""
        words = or_none(self.root.cmdline)
        return tuple(words) if words else None

    def has_ended(self) -> bool:
        """Whether the process has ended, or is a zombie that its parent has yet to collect."""
        is_zombie = or_none(self.root.status) == psutil.STATUS_ZOMBIE
        return is_zombie or not or_none(self.root.is_running)


def _moved_by(tree: Sequence[ProcessFacts]) -> Counter[str]:
    """The bytes that these processes moved, for those of `IO_COUNTERS` that the system has."""
    totals = Counter[str]()
    for process in tree:
        io = process.get("io_counters")
        for name, psutil_name in IO_COUNTERS.items():
            if hasattr(io, psutil_name):
                totals[name] += getattr(io, psutil_name)
    return totals
