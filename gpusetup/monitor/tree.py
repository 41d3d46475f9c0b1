"""The command's processes: CPU, memory, what they read, and which are DataLoader workers.

`psutil` asks; what it means is decided in `tree_sample`, a function of plain values. Edge.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from gpusetup.model.frozen import Frozen, replace
from gpusetup.monitor.host import asked
from gpusetup.monitor.values import TreeSample
from gpusetup.probe.host import read_quota
from gpusetup.system.system import System

WORKER_NAME = "pt_data_worker"
"""What a DataLoader worker of torch 2.6 and newer calls itself (torch.utils.data, worker.py)."""
COUNTERS = {"read_bytes": "read_bytes", "input_bytes": "read_chars", "write_bytes": "write_bytes"}
"""Our name, and psutil's."""
COLLECTIVES = re.compile(r"nccl", re.IGNORECASE)
"""In the names of threads that torch.distributed starts (ProcessGroupNCCL.cpp: `pt_nccl_watchdg`,
`pt_nccl_heartbt`) and of NCCL's own (`NCCL Service`)."""
MOST_THREADS = 512
STAT = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


class Process(Frozen):
    """One process of the tree at one moment; counters since its start."""

    pid: int
    parent: int
    started: float
    name: str
    command: tuple[str, ...]
    cpu_seconds: float
    memory_bytes: int
    moved: Mapping[str, int | None] = {}
    """Bytes, by the names of `COUNTERS`."""
    blocked: bool = False
    """Asleep without interruption: it waits for a disk."""
    collective_threads: int | None = None

    @property
    def key(self) -> tuple[int, float]:
        """A pid alone may have been given away again."""
        return self.pid, self.started


Known = Mapping[tuple[int, float], Process]


def tree_sample(
    before: Known, now: Sequence[Process], seconds: float, on_gpu: frozenset[int] = frozenset()
) -> TreeSample:
    """What the processes did in the `seconds` since `before`; one that is new began at nothing."""
    workers = loader_workers(now, on_gpu)
    shares, rates = dict[int, float](), dict[str, Any]()
    for one in now:
        old = before.get(one.key)
        spent = max(0.0, one.cpu_seconds - (old.cpu_seconds if old else 0.0))
        shares[one.pid] = spent / seconds * 100 if seconds > 0 else 0.0
        for name, count in one.moved.items():
            more = max(0, (count or 0) - ((old and old.moved.get(name)) or 0))
            if count is not None and seconds > 0:
                field = f"{name}_per_second"
                rates[field] = rates.get(field, 0) + more / seconds
    threads = [p.collective_threads for p in now if p.collective_threads is not None]
    others = [share for pid, share in shares.items() if pid not in workers]
    return TreeSample(
        processes=len(now),
        cpu_percent=round(sum(shares.values()), 1),
        busiest_cpu_percent=round(max(others, default=0.0), 1),
        memory_bytes=sum(p.memory_bytes for p in now),
        loader_workers=len(workers),
        loader_cpu_percent=round(sum(shares[pid] for pid in workers), 1),
        blocked_processes=sum(p.blocked for p in now),
        gpu_processes=len(on_gpu & shares.keys()) or None,
        collective_threads=sum(threads) if threads else None,
        **{name: round(rate) for name, rate in rates.items()},
    )


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
    commands = {p.pid: p.command for p in tree}
    parents = {p.parent for p in tree}
    named = frozenset(p.pid for p in tree if p.name == WORKER_NAME)
    return named or frozenset(
        p.pid
        for p in tree
        if p.pid not in parents | on_gpu
        and p.command == commands.get(p.parent)
        and "python" in p.name.lower()
    )


class Tree:
    """Watches a process and everything that it starts."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        self._before: Known = {}
        self._at = time.monotonic()
        self._cores, self._periods = _cores(), _periods()

    def sample(self, on_gpu: frozenset[int] = frozenset()) -> TreeSample | None:
        """None when nothing of it is left, or nothing is told of what is."""
        each = (self.root, *(asked(self.root.children, True) or ()))
        read = (asked(self._read, one, one.pid in on_gpu) for one in each)
        now = [found for found in read if found is not None]
        at, periods = time.monotonic(), _periods()
        if not now:
            return None
        told = tree_sample(self._before, now, at - self._at, on_gpu)
        passed, held = (late - old for late, old in zip(periods, self._periods, strict=True))
        self._before, self._at, self._periods = {p.key: p for p in now}, at, periods
        share = round(held / passed * 100, 1) if passed > 0 else None
        return replace(told, cores=self._cores, held_back_percent=share)

    def has_ended(self) -> bool:
        """Whether the process itself is gone, or a zombie."""
        zombie = asked(self.root.status) == psutil.STATUS_ZOMBIE
        return zombie or not asked(self.root.is_running)

    def _read(self, one: psutil.Process, on_gpu: bool) -> Process | None:
        """One process; None for a zombie. What it is called may be hidden (Windows, another
        user's), what it uses is needed."""
        with one.oneshot():
            status = one.status()
            if status == psutil.STATUS_ZOMBIE:
                return None
            times, io = one.cpu_times(), asked(lambda: one.io_counters())
            started = one.create_time()
            known = self._before.get((one.pid, started))
            return Process(
                pid=one.pid,
                parent=one.ppid(),
                started=started,
                name=asked(one.name) or "",
                command=known.command if known else tuple(asked(one.cmdline) or ()),
                cpu_seconds=times.user + times.system,
                memory_bytes=one.memory_info().rss,
                moved={name: getattr(io, theirs, None) for name, theirs in COUNTERS.items()},
                blocked=status == psutil.STATUS_DISK_SLEEP,
                collective_threads=_collective_threads(one.pid) if on_gpu else None,
            )


def _collective_threads(pid: int) -> int | None:
    """How many threads of a process are NCCL's, by their names; None if they are not told."""
    try:
        names = sorted(Path(f"/proc/{pid}/task").glob("*/comm"))[:MOST_THREADS]
        told = [bool(COLLECTIVES.search(file.read_text(encoding="utf-8"))) for file in names]
    except (OSError, UnicodeDecodeError):
        return None
    return sum(told) if told else None


def _periods() -> tuple[int, int]:
    """Periods of our cgroup's CPU quota, and those in which it was used up; 0 if there is none."""
    said = next((text for file in STAT if (text := asked(file.read_text))), "")
    told = dict(re.findall(r"^(nr_periods|nr_throttled) (\d+)$", said, re.M))
    return int(told.get("nr_periods", 0)), int(told.get("nr_throttled", 0))


def _cores() -> float | None:
    """The cores that this process may use, as its affinity and its cgroup's quota have them."""
    mine = asked(lambda: psutil.Process().cpu_affinity())
    usable = len(mine) if mine else asked(psutil.cpu_count)
    quota = read_quota(System())
    return min(usable, quota) if usable and quota else usable


def running(pid: int) -> tuple[Tree, tuple[str, ...] | None] | None:
    """A process that runs already, with its command; None if it cannot be seen."""
    try:
        tree = asked(Tree, pid)
    except (ValueError, OverflowError):
        return None
    return (tree, tuple(asked(tree.root.cmdline) or ()) or None) if tree else None
