"""The machine and the command's processes: CPU, memory, disks and network, and which processes are
DataLoader workers. Edge: psutil asks.
"""

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
    """What psutil tells; None if the process has ended, is another user's, or the system has no
    such figure. Watching goes on: it must not break what is watched."""
    try:
        return read(*arguments)
    except (psutil.Error, OSError, RuntimeError, AttributeError, KeyError):
        return None


class Host:
    """Samples of this machine; what the system does not tell is None."""

    def __init__(self) -> None:
        self._cores, _ = or_none(psutil.cpu_count), or_none(psutil.cpu_percent)
        self._at, self._before = time.monotonic(), _counters()

    def sample(self) -> HostSample:
        now, counters = time.monotonic(), _counters()
        passed, before = now - self._at, self._before
        self._at, self._before = now, counters
        memory, busy = or_none(psutil.virtual_memory), or_none(psutil.cpu_percent)
        return HostSample(
            cpu_percent=None if busy is None else round(busy * (self._cores or 1), 1),
            cores=self._cores,
            memory_used_bytes=memory and memory.total - memory.available,
            memory_total_bytes=memory and memory.total,
            **{
                f"{name}_bytes_per_second": round(max(0, counters[name] - before[name]) / passed)
                for name in counters.keys() & before.keys()
                if passed > 0
            },
        )


def _counters() -> dict[str, int]:
    """Bytes so far; nothing if there is no network or disk, or it is hidden."""
    disk, network = or_none(psutil.disk_io_counters), or_none(psutil.net_io_counters)
    counters = {"disk_read": disk.read_bytes, "disk_write": disk.write_bytes} if disk else {}
    return counters | ({"network_receive": network.bytes_recv} if network else {})


WORKER_NAME = "pt_data_worker"
"""What a DataLoader worker of torch 2.6 and newer calls itself (torch.utils.data, worker.py)."""
IO_COUNTERS = {
    "read_bytes": "read_bytes",
    "input_bytes": "read_chars",
    "write_bytes": "write_bytes",
}
"""Our name, and psutil's."""


ASKED = ("pid", "ppid", "create_time", "name", "cmdline", "cpu_times", "memory_info", "status")
FIELDS = (*ASKED, *(name for name in ("io_counters",) if hasattr(psutil.Process, name)))
ProcessFacts = dict[str, Any]
"""What psutil tells of a process, by `FIELDS`; None if it is hidden (Windows, another user's)."""


def loader_workers(tree: Sequence[ProcessFacts], on_gpu: Set[int] = frozenset()) -> Set[int]:
    """The DataLoader workers: by their name, or (older torch) forks of a Python that have no child.

    >>> def python(pid, parent, name="python"):
    ...     return {"pid": pid, "ppid": parent, "name": name, "cmdline": ["python", "t.py"]}
    >>> sorted(loader_workers([python(1, 0), python(2, 1), python(3, 1)]))
    [2, 3]
    >>> sorted(loader_workers([python(1, 0), python(2, 1, "pt_data_worker"), python(3, 1)]))
    [2]
    """
    named = {one["pid"] for one in tree if one["name"] == WORKER_NAME}
    commands = {
        one["pid"]: one["cmdline"] for one in tree if "python" in (one["name"] or "").lower()
    }
    forks = {p["pid"] for p in tree if p["cmdline"] and p["cmdline"] == commands.get(p["ppid"])}
    return named or forks - {one["ppid"] for one in tree} - on_gpu


class ProcessTree:
    """Watches a process and everything that it starts."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        self._before: dict[tuple[int, float], Counter[str]] = {}
        self._at = time.monotonic()
        self._cores = _cores()

    def sample(self, on_gpu: Set[int] = frozenset()) -> TreeSample | None:
        """The processes since the last sample; None if none is left, or psutil tells of none."""
        processes = (self.root, *(or_none(self.root.children, True) or ()))
        facts = (or_none(one.as_dict, FIELDS) for one in processes)
        tree = [one for one in facts if one and one["status"] != psutil.STATUS_ZOMBIE]
        tree = [one for one in tree if one["cpu_times"] and one["memory_info"]]
        at = time.monotonic()
        if not tree:
            return None
        # A pid alone may have been given away again.
        usage = {(one["pid"], one["create_time"]): _usage(one) for one in tree}
        passed = max(at - self._at, 1e-3)
        growth = {key: count - self._before.get(key, Counter()) for key, count in usage.items()}
        total, names = sum(growth.values(), Counter()), set[str]().union(*usage.values()) - {"cpu"}
        rates = {f"{name}_per_second": round(total[name] / passed) for name in names}
        cpu = {pid: round(count["cpu"] / passed / 1e4, 1) for (pid, _), count in growth.items()}
        workers, ranks = loader_workers(tree, on_gpu), on_gpu & cpu.keys()
        self._before, self._at = usage, at
        return TreeSample(
            processes=len(tree),
            cpu_percent=round(sum(cpu.values()), 1),
            busiest_cpu_percent=max((cpu[pid] for pid in cpu.keys() - workers), default=0.0),
            memory_bytes=sum(one["memory_info"].rss for one in tree),
            loader_workers=len(workers),
            loader_cpu_percent=round(sum(cpu[pid] for pid in workers), 1),
            blocked_processes=sum(one["status"] == psutil.STATUS_DISK_SLEEP for one in tree),
            gpu_processes=len(ranks) or None,
            cores=self._cores,
            **rates,
        )

    def has_ended(self) -> bool:
        """Whether the process itself is gone, or a zombie."""
        zombie = or_none(self.root.status) == psutil.STATUS_ZOMBIE
        return zombie or not or_none(self.root.is_running)


def _usage(one: ProcessFacts) -> Counter[str]:
    """Microseconds of CPU, and what was moved, since its start."""
    io = one.get("io_counters")
    moved = {
        name: getattr(io, theirs) for name, theirs in IO_COUNTERS.items() if hasattr(io, theirs)
    }
    return Counter({**moved, "cpu": round(sum(one["cpu_times"][:2]) * 1e6)})


def _cores() -> float | None:
    """The cores that this process may use, as its affinity and its cgroup's quota have them."""
    mine = or_none(lambda: psutil.Process().cpu_affinity())
    usable = len(mine) if mine else or_none(psutil.cpu_count)
    quota = read_cpu_quota(System())
    return min(usable, quota) if usable and quota else usable


def running_process(pid: int) -> tuple[ProcessTree, tuple[str, ...] | None] | None:
    """A process that runs already, with its command; None if it cannot be seen."""
    try:
        tree = or_none(ProcessTree, pid)
    except (ValueError, OverflowError):
        return None
    return (tree, tuple(or_none(tree.root.cmdline) or ()) or None) if tree else None
