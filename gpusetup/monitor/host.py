"""Reads the CPU, memory, disks and network of the machine and of the command's processes with
psutil, and finds the DataLoader workers among these processes. Reads the machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
    except (psutil.Error, OSError, RuntimeError, AttributeError, KeyError):
        return None


class HostSampler:
    """Takes samples of this machine; values that the system does not report are None.

    The first sample has no rates, because it only takes the baseline.
    """

    def __init__(self) -> None:
        self._cores = or_none(psutil.cpu_count)
        # When the counters were last read, and their values.
        self._at = 0.0
        self._before: dict[str, int] | None = None

    def sample(self) -> HostSample:
        sampled_at = time.monotonic()
        counters = _counters()
        memory = or_none(psutil.virtual_memory)
        # psutil's first value covers no time, so call it in every sample, including the first.
        busy_percent = or_none(psutil.cpu_percent)
        before = self._before
        seconds = sampled_at - self._at
        self._at = sampled_at
        self._before = counters
        is_baseline = before is None
        cpu_percent = None
        if busy_percent is not None and not is_baseline:
            cores = self._cores or 1
            cpu_percent = round(busy_percent * cores, 1)
        return HostSample(
            cpu_percent=cpu_percent,
            cores=self._cores,
            memory_used_bytes=memory.total - memory.available if memory else None,
            memory_total_bytes=memory.total if memory else None,
            **rates(before or {}, counters, seconds),
        )


def rates(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, int]:
    """The growth of each counter per second; counters that only one of the two readings contains
    are left out.

    >>> rates({"disk_read": 100}, {"disk_read": 300, "network_receive": 5}, 2.0)
    {'disk_read_bytes_per_second': 100}
    """
    grown: dict[str, int] = {}
    # Two samples taken at the same moment give no rate.
    if seconds <= 0:
        return grown
    for name in after.keys() & before.keys():
        # A counter may have been reset (for example, because a disk was removed); count this as no
        # growth.
        growth = max(0, after[name] - before[name])
        rate = round(growth / seconds)
        grown[f"{name}_bytes_per_second"] = rate
    return grown


def _counters() -> dict[str, int]:
    """The bytes read from and written to disks and received over the network so far; a counter that
    the system hides is left out."""
    counters: dict[str, int] = {}
    disk = or_none(psutil.disk_io_counters)
    if disk:
        counters["disk_read"] = disk.read_bytes
        counters["disk_write"] = disk.write_bytes
    # Sent bytes do not matter, because a training waits only for data that it receives.
    network = or_none(psutil.net_io_counters)
    if network:
        counters["network_receive"] = network.bytes_recv
    return counters


WORKER_NAME = "pt_data_worker"
"""The process name of a DataLoader worker in torch 2.6 and newer (torch.utils.data, worker.py)."""
IO_COUNTERS = {
    "read_bytes": "read_bytes",
    "input_bytes": "read_chars",
    "write_bytes": "write_bytes",
}
"""Our names for the counters, and psutil's."""
ASKED = ("pid", "ppid", "create_time", "name", "cmdline", "cpu_times", "memory_info", "status")
FIELDS = (*ASKED, *(name for name in ("io_counters",) if hasattr(psutil.Process, name)))
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
    commands = {}
    for process in tree:
        # The name may be missing, because psutil returns none for a process that it may not
        # inspect.
        program = process["name"] or ""
        if "python" in program.lower():
            commands[process["pid"]] = process["cmdline"]
    forks = set()
    for process in tree:
        command = process["cmdline"]
        parents_command = commands.get(process["ppid"])
        # A fork has its parent's command line, whereas a separately started program has a different
        # one.
        is_fork = bool(command) and command == parents_command
        has_child = process["pid"] in parents
        if is_fork and not has_child:
            forks.add(process["pid"])
    # Leave out processes on a GPU, because ranks started by torch.multiprocessing are forks too.
    return forks - on_gpu


class ProcessTree:
    """Watches a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        # What each process had used by the previous sample, and when that sample was taken.
        self._before: dict[ProcessId, Counter[str]] | None = None
        self._at = 0.0
        self._children: dict[ProcessId, tuple[int, Counter[str]]] = {}
        """Each child with its parent's pid, and the bytes that the child has moved so far."""
        self._cores = _cores()

    def sample(self, on_gpu: Set[int] = frozenset()) -> TreeSample | None:
        """What the command's processes used since the previous sample.

        None at the first call, because it only takes the baseline: a process may have run for days
        before, and what it used then says nothing about now. Also None if no process is left, or if
        psutil reports none.
        """
        tree = self._processes()
        sampled_at = time.monotonic()
        usage = {identity(process): _usage(process) for process in tree}
        before = self._before
        seconds = max(sampled_at - self._at, SHORTEST_SECONDS)
        self._before = usage
        self._at = sampled_at
        if before is None or not tree:
            self._children = children_of(tree, usage)
            return None
        growth: dict[ProcessId, Counter[str]] = {}
        for key, used in usage.items():
            # A process that is new since the previous sample starts from zero.
            growth[key] = used - before.get(key, Counter())
        self._take_off_what_children_left(tree, usage, growth)
        total = sum(growth.values(), Counter())
        # psutil does not count all of these on every system: nothing on macOS, no `read_chars` on
        # Windows.
        moved_names = set[str]().union(*usage.values()) - {"cpu", CPU_WAIT}
        moved = {f"{name}_per_second": round(total[name] / seconds) for name in moved_names}
        cpu = {pid: _percent(used["cpu"], seconds) for (pid, _), used in growth.items()}
        workers = loader_workers(tree, on_gpu)
        workers_cpu = sum(cpu[pid] for pid in workers)
        main_cpu = [cpu[pid] for pid in cpu.keys() - workers]
        ranks = on_gpu & cpu.keys()
        statuses = Counter(process["status"] for process in tree)
        memory_bytes = sum(process["memory_info"].rss for process in tree)
        return TreeSample(
            processes=len(tree),
            cpu_percent=round(sum(cpu.values()), 1),
            busiest_cpu_percent=max(main_cpu, default=0.0),
            memory_bytes=memory_bytes,
            loader_workers=len(workers),
            loader_cpu_percent=round(workers_cpu, 1),
            blocked_processes=statuses[psutil.STATUS_DISK_SLEEP],
            cpu_wait_percent=_wait_percent(usage.values(), total, seconds),
            gpu_processes=len(ranks) or None,
            cores=self._cores,
            **moved,
        )

    def _take_off_what_children_left(
        self,
        tree: Sequence[ProcessFacts],
        usage: Mapping[ProcessId, Counter[str]],
        growth: dict[ProcessId, Counter[str]],
    ) -> None:
        """Subtract from each parent's growth what its ended children had moved, because that was
        already counted for the children.

        When a parent collects its child's exit status, Linux adds all that the child ever read and
        wrote to the parent's own counters (kernel/exit.c, wait_task_zombie). Without this
        correction, 10 ending loader workers would look like one process that reads gigabytes at
        once.
        """
        children_before = self._children
        present = {identity(process) for process in tree}
        by_pid = {process["pid"]: identity(process) for process in tree}
        for key, (parent_pid, moved) in children_before.items():
            parent = by_pid.get(parent_pid)
            has_ended = key not in present and not _is_zombie(key)
            if has_ended and parent is not None:
                growth[parent] -= moved
        # A zombie still has all its counters to hand over to its parent.
        waiting = {key: child for key, child in children_before.items() if _is_zombie(key)}
        self._children = {**waiting, **children_of(tree, usage)}

    def _processes(self) -> list[ProcessFacts]:
        """What psutil reports about the process and its current descendants, except for those that
        have ended or hide their figures."""
        # The root may have ended while its children keep running; in that case only the children
        # are watched.
        children = or_none(self.root.children, True) or ()
        tree = []
        for process in (self.root, *children):
            facts = or_none(process.as_dict, FIELDS)
            has_ended = not facts or facts["status"] == psutil.STATUS_ZOMBIE
            if facts is None or has_ended:
                continue
            # Leave out processes that hide their figures, such as those of another user.
            if facts["cpu_times"] and facts["memory_info"]:
                tree.append(facts)
        return tree

    def has_ended(self) -> bool:
        """Whether the process has ended or is a zombie."""
        status = or_none(self.root.status)
        # A zombie has ended, and waits until its parent collects its exit status.
        if status == psutil.STATUS_ZOMBIE:
            return True
        is_running = or_none(self.root.is_running)
        return not is_running


SHORTEST_SECONDS = 1e-3
"""The least time between two samples in seconds, because we divide by it."""
ProcessId = tuple[int, float]
"""A process by its pid and start time, because the system may reuse a pid."""


def identity(process: ProcessFacts) -> ProcessId:
    """The pid and start time of a process, which together distinguish it from a later process with
    the same pid."""
    pid = process["pid"]
    started_at = process["create_time"]
    return pid, started_at


def children_of(
    tree: Sequence[ProcessFacts], usage: Mapping[ProcessId, Counter[str]]
) -> dict[ProcessId, tuple[int, Counter[str]]]:
    """Each process of the tree, with its parent's pid and the bytes that it has moved so far."""
    children = {}
    for process in tree:
        key = identity(process)
        used = usage[key]
        # A parent's CPU time is read without that of its children, so it needs no correction.
        moved = Counter({name: used[name] for name in used.keys() & IO_COUNTERS.keys()})
        children[key] = (process["ppid"], moved)
    return children


def _is_zombie(key: ProcessId) -> bool:
    """Whether a process has ended while its parent has not collected its exit status yet."""
    pid, _ = key
    return or_none(lambda: psutil.Process(pid).status()) == psutil.STATUS_ZOMBIE


MICROSECONDS = 1e6
"""Microseconds per second."""
CPU_WAIT = "cpu_wait"
MOST_THREADS = 64
"""How many threads of a process we read waiting times for, because each thread has its own file."""


def _cpu_wait(pid: int) -> int | None:
    """The microseconds for which a process's threads were ready to run but had no free core; at
    most 64 threads are read.

    None if the system does not measure this (Documentation/scheduler/sched-stats.rst: the second
    figure of /proc/PID/task/TID/schedstat, in nanoseconds).
    """
    waited = None
    try:
        threads = islice(Path(f"/proc/{pid}/task").iterdir(), MOST_THREADS)
        for thread in threads:
            text = (thread / "schedstat").read_text()
            _, delay_nanoseconds, _ = text.split()
            waited = (waited or 0) + int(delay_nanoseconds) // 1000
    except (OSError, ValueError):
        # The process has ended, or this system is not Linux.
        return waited
    return waited


def _wait_percent(
    usage: Iterable[Counter[str]], total: Counter[str], seconds: float
) -> float | None:
    """How long threads waited for a core, in percent of one core; None if this is unknown for all
    processes."""
    is_told = any(CPU_WAIT in used for used in usage)
    return _percent(total[CPU_WAIT], seconds) if is_told else None


def _percent(microseconds: int, seconds: float) -> float:
    """CPU time in microseconds as a percentage of one core over this many seconds."""
    cpu_seconds = microseconds / MICROSECONDS
    share = cpu_seconds / seconds
    return round(share * 100, 1)


def _usage(process: ProcessFacts) -> Counter[str]:
    """The CPU time and the waiting time for a core (in microseconds) of a process since its start,
    and the bytes that it moved."""
    # The first two values are the user and system times; the times of ended children follow.
    own_times = process["cpu_times"][:2]
    cpu_microseconds = round(sum(own_times) * MICROSECONDS)
    usage = Counter({"cpu": cpu_microseconds})
    waited = _cpu_wait(process["pid"])
    if waited is not None:
        usage[CPU_WAIT] = waited
    io = process.get("io_counters")
    for name, psutil_name in IO_COUNTERS.items():
        if hasattr(io, psutil_name):
            usage[name] = getattr(io, psutil_name)
    return usage


def _cores() -> float | None:
    """The number of cores that this process may use: the smaller of its CPU affinity and its cgroup
    quota; None if unknown."""
    affinity = or_none(lambda: psutil.Process().cpu_affinity())
    # Without CPU affinity (macOS), all of the machine's cores are usable.
    usable = len(affinity) if affinity else or_none(psutil.cpu_count)
    quota = read_cpu_quota(System())
    # Of CPU affinity and quota, the smaller one is the effective limit.
    if usable and quota:
        return min(usable, quota)
    return usable


class RunningProcess(NamedTuple):
    """A process that was already running when the monitor started, and its command line (None if
    that is hidden)."""

    tree: ProcessTree
    command: tuple[str, ...] | None


def running_process(pid: int) -> RunningProcess | None:
    """The running process with this pid and its command line; None if it cannot be read."""
    try:
        tree = or_none(ProcessTree, pid)
    except (ValueError, OverflowError):
        return None
    if tree is None:
        return None
    words = tuple(or_none(tree.root.cmdline) or ())
    return RunningProcess(tree, words or None)
