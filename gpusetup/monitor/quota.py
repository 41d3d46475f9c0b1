"""What Linux tells of a command beside psutil: its cgroup's CPU quota, the names of its threads."""

from __future__ import annotations

import re
from pathlib import Path

STAT = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))
COLLECTIVES = re.compile(r"nccl|pt_nccl", re.IGNORECASE)
"""In the names of threads that torch.distributed starts (ProcessGroupNCCL.cpp: `pt_nccl_watchdg`,
`pt_nccl_heartbt`) and of NCCL's own (`NCCL Service`)."""
MOST_THREADS = 512


class Quota:
    """How often the quota of our cgroup was used up, since the question before."""

    def __init__(self) -> None:
        self._before = counted(_text())

    def held_back(self) -> float | None:
        """Percent of the periods; None where there is no quota."""
        now, before = counted(_text()), self._before
        self._before = now
        if now is None or before is None or now[0] <= before[0]:
            return None
        return round((now[1] - before[1]) / (now[0] - before[0]) * 100, 1)


def counted(text: str) -> tuple[int, int] | None:
    """Periods, and those in which it was held back.

    >>> counted("usage_usec 7\\nnr_periods 40\\nnr_throttled 10\\n"), counted("usage_usec 7\\n")
    ((40, 10), None)
    """
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    told = [rows.get(name, "") for name in ("nr_periods", "nr_throttled")]
    if not all(value.isdecimal() for value in told) or told[0] == "0":
        return None
    return int(told[0]), int(told[1])


def _text() -> str:
    for file in STAT:
        try:
            return file.read_text(encoding="utf-8")
        except OSError:
            continue
    return ""


def collective_threads(pid: int) -> int:
    """How many threads of a process are NCCL's, by their names; 0 where they are not told."""
    try:
        names = sorted(Path(f"/proc/{pid}/task").glob("*/comm"))[:MOST_THREADS]
        return sum(bool(COLLECTIVES.search(file.read_text(encoding="utf-8"))) for file in names)
    except (OSError, UnicodeDecodeError):
        return 0
