"""What nccl-tests (`all_reduce_perf` and its kin) prints: the hosts and the bus bandwidth.

    #  Rank  0 Group  0 Pid  12345 on     gpu001 device  0 [0000:07:00] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time …
       134217728      33554432     float     sum      -1   1234.5  108.72  203.85      0   1230.1 …
    # Avg bus bandwidth    : 45.1234

Forms since 2016 are read: without a group, with `error` in place of `#wrong`, `N/A` where nothing
was checked, a test without in-place columns.
"""

from __future__ import annotations

import contextlib
import re

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lazy

RANK = lazy(
    r"^(?:.{0,80}?:\s*)?#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+"
    r"(\d+)\s+\[[^\]]*\]\s*(.*?)\s*$",
    re.M,
)
ROW = lazy(r"^(?:.{0,80}?:\s*)?\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(\S.*)$", re.M)
STARTING = lazy(r"Collective test starting:\s*(\w+)")
FAILED = lazy(
    r"^.*(?:Test NCCL failure|Test CUDA failure|Test failure|unhandled (?:system|cuda) error|"
    r"remote process exited|NCCL WARN).*$",
    re.M,
)
MOST_HOSTS = 100_000


class NcclRun(Frozen):
    """One run."""

    operation: str = ""
    """`all_reduce_perf`, …; empty where it does not say so."""
    hosts: tuple[str, ...] = ()
    """Each once, by rank."""
    ranks: int = 0
    device: str = ""
    size_bytes: int = 0
    """The largest message."""
    rate: float | None = None
    """Bus bandwidth at that size in bytes/s, the better of both columns; None without a row."""
    wrong: int = 0
    """Elements that were not what they should be, in all rows."""
    problem: str = ""


def parse_nccl_tests(text: str) -> NcclRun | None:
    """A run's output; None for any other text.

    >>> head = "#  Rank  0 Group  0 Pid 7 on n1 device 0 [0x07] NVIDIA H100\\n"
    >>> row = "  1024  256  float  sum  -1  10.0  0.10  0.20  0  10.0  0.10  0.19  0\\n"
    >>> found = parse_nccl_tests(head + row)
    >>> found.hosts, found.rate, found.wrong
    (('n1',), 200000000.0, 0)
    """
    ranks = RANK.findall(text)[:MOST_HOSTS]
    if not ranks:
        return None
    rows = [row for found in ROW.findall(text) if (row := _row(*found))]
    largest = max(rows, default=None)
    operation, failed = STARTING.search(text), FAILED.search(text)
    return NcclRun(
        operation=operation[1] if operation else "",
        hosts=tuple(dict.fromkeys(host for _, host, _, _ in sorted(ranks, key=_number))),
        ranks=len(ranks),
        device=ranks[0][3][:100],
        size_bytes=largest[0] if largest else 0,
        rate=largest[1] if largest else None,
        wrong=sum(row[2] for row in rows),
        problem=failed[0].strip()[:300] if failed else "" if rows else "it measured nothing",
    )


def _number(rank: tuple[str, ...]) -> int:
    return int(rank[0])


def _row(size: str, count: str, kind: str, rest: str) -> tuple[int, float, int] | None:
    """Size in bytes, the better bus bandwidth in bytes/s, wrong elements."""
    words = rest.split()
    columns = (words[-8:-4], words[-4:]) if len(words) >= 8 else (words[-4:],)
    rates, wrong = list[float](), 0
    for column in columns:  # time, algbw, busbw, wrong; N/A where it was not measured
        with contextlib.suppress(ValueError, IndexError):
            rates.append(float(column[2]))
            wrong += int(float(column[3]))
    return (int(size), max(rates) * 1e9, wrong) if rates else None
