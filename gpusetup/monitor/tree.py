"""The command's processes: CPU, memory, what they read, and which are DataLoader workers.

`psutil` asks; what it means is decided in `tree_sample`, a function of plain values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import psutil

from gpusetup.model.frozen import Frozen, replace
from gpusetup.monitor.host import asked
from gpusetup.monitor.quota import Quota, collective_threads
from gpusetup.monitor.values import TreeSample
from gpusetup.probe.host import read_quota
from gpusetup.system.system import System

WORKER_NAME = "pt_data_worker"
"""What a DataLoader worker of torch 2.6 and newer calls itself (torch.utils.data, worker.py)."""


class Process(Frozen):
    """One process of the tree at one moment; counters since its start."""

    pid: int
    parent: int
    started: float
    name: str
    command: tuple[str, ...]
    cpu_seconds: float
    memory_bytes: int
    read_bytes: int | None = None
    input_bytes: int | None = None
    write_bytes: int | None = None
    blocked: bool = False
    """Asleep without interruption: it waits for a disk."""
    collective_threads: int = 0

    @property
    def key(self) -> tuple[int, float]:
        """A pid alone may have been given away anew."""
        return self.pid, self.started


Known = Mapping[tuple[int, float], Process]


def tree_sample(
    before: Known, now: Sequence[Process], seconds: float, on_gpu: frozenset[int] = frozenset()
) -> TreeSample:
    """What the processes did in the `seconds` since `before`."""
    workers = loader_workers(now, on_gpu)
    spent = {p.pid: (_more(before, p, "cpu_seconds") or 0.0) for p in now}
    shares = {pid: used / seconds * 100 if seconds > 0 else 0.0 for pid, used in spent.items()}
    others = [share for pid, share in shares.items() if pid not in workers]
    rates = {f"{name}_per_second": _rate(before, now, name, seconds) for name in COUNTERS}
    return TreeSample(
        processes=len(now),
        cpu_percent=round(sum(shares.values()), 1),
        busiest_cpu_percent=round(max(others, default=0.0), 1),
        memory_bytes=sum(p.memory_bytes for p in now),
        loader_workers=len(workers),
        loader_cpu_percent=round(sum(shares[pid] for pid in workers), 1),
        blocked_processes=sum(p.blocked for p in now),
        gpu_processes=len(on_gpu & {p.pid for p in now}) or None,
        collective_threads=sum(p.collective_threads for p in now),
        **rates,
    )


COUNTERS = ("read_bytes", "input_bytes", "write_bytes")


def _more(before: Known, process: Process, field: str) -> float | None:
    """By how much a counter grew; one that is new began at nothing."""
    now, old = getattr(process, field), getattr(before.get(process.key), field, None) or 0
    return None if now is None else max(0, now - old)


def _rate(before: Known, now: Sequence[Process], field: str, seconds: float) -> float | None:
    """Bytes a second of those that tell; None where none does."""
    known = [more for p in now if (more := _more(before, p, field)) is not None]
    return round(sum(known) / seconds) if known and seconds > 0 else None


def loader_workers(tree: Sequence[Process], on_gpu: frozenset[int] = frozenset()) -> frozenset[int]:
    """The DataLoader workers: by their name, or (older torch) forks of a Python that have no child.

    >>> def python(pid, parent, name="python"):
    ...     return Process(pid=pid, parent=parent, started=0, name=name, command=("python", "t.py"),
    ...                    cpu_seconds=0, memory_bytes=0)
    >>> sorted(loader_workers([python(1, 0), python(2, 1), python(3, 1)]))
    [2, 3]
    >>> sorted(loader_workers([python(1, 0), python(2, 1, "pt_data_worker"), python(3, 1)]))
    [2]
    """
    named = frozenset(p.pid for p in tree if p.name == WORKER_NAME)
    if named:
        return named
    by_pid = {p.pid: p for p in tree}
    parents = {p.parent for p in tree}
    return frozenset(
        p.pid
        for p in tree
        if p.parent in by_pid
        and p.pid not in parents | on_gpu
        and p.command == by_pid[p.parent].command
        and "python" in p.name.lower()
    )


class Tree:
    """Watches a process and everything that it starts."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        self._before: dict[tuple[int, float], Process] = {}
        self._known: dict[tuple[int, float], tuple[str, ...]] = {}
        self._at = time.monotonic()
        self._cores = _cores()
        self._quota = Quota()

    def sample(self, on_gpu: frozenset[int] = frozenset()) -> TreeSample | None:
        """None when nothing of it is left, or nothing is told of what is."""
        now = self._processes(on_gpu)
        at = time.monotonic()
        if not now:
            return None
        told = tree_sample(self._before, now, at - self._at, on_gpu)
        self._before, self._at = {p.key: p for p in now}, at
        self._known = {p.key: p.command for p in now}
        return replace(told, cores=self._cores, held_back_percent=self._quota.held_back())

    def has_ended(self) -> bool:
        """Whether the process itself is gone, or a zombie."""
        zombie = asked(self.root.status) == psutil.STATUS_ZOMBIE
        return zombie or not asked(self.root.is_running)

    def _processes(self, on_gpu: frozenset[int]) -> list[Process]:
        each = (self.root, *(asked(self.root.children, True) or ()))
        read = (asked(self._read, one, one.pid in on_gpu) for one in each)
        return [found for found in read if found is not None]

    def _read(self, one: psutil.Process, on_gpu: bool) -> Process | None:
        """One process; None for a zombie. What it is called may be hidden (Windows, another
        user's), what it uses is needed."""
        with one.oneshot():
            status = one.status()
            if status == psutil.STATUS_ZOMBIE:
                return None
            times, io = one.cpu_times(), asked(lambda: one.io_counters())
            key = (one.pid, one.create_time())
            return Process(
                pid=one.pid,
                parent=one.ppid(),
                started=key[1],
                name=asked(one.name) or "",
                command=self._known.get(key) or tuple(asked(one.cmdline) or ()),
                cpu_seconds=times.user + times.system,
                memory_bytes=one.memory_info().rss,
                read_bytes=getattr(io, "read_bytes", None),
                input_bytes=getattr(io, "read_chars", None),
                write_bytes=getattr(io, "write_bytes", None),
                blocked=status == psutil.STATUS_DISK_SLEEP,
                collective_threads=collective_threads(one.pid) if on_gpu else 0,
            )


def _cores() -> float | None:
    """The cores that this process may use, as its affinity and its cgroup's quota have them."""
    mine = asked(lambda: psutil.Process().cpu_affinity())
    usable = len(mine) if mine else asked(psutil.cpu_count)
    quota = read_quota(System())
    return min(usable, quota) if usable and quota else usable


def running(pid: int) -> tuple[Tree, tuple[str, ...] | None] | None:
    """A process that runs already, with its command; None where it cannot be seen."""
    try:
        tree = asked(Tree, pid)
    except (ValueError, OverflowError):
        return None
    return (tree, tuple(asked(tree.root.cmdline) or ()) or None) if tree else None
