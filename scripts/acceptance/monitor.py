"""monitor on eight workloads of known kind: its verdict, its figures beside dmon's, its cost."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acceptance.processes import end
from acceptance.work import Said, Work

SECONDS, LEAST_SECONDS = 6.0, 3.0
"""How long a workload works, and the least that says something."""
START_SECONDS = 6.0
"""What monitor and a workload take beside, until the first was seen."""
UTILISATION_POINTS, POWER_PART = 15.0, 0.15
"""How far the mean may be from dmon's; the two sample at other moments."""
COST_PERCENT = 5.0
MOST_LINES = 10_000
"""Of dmon, which prints one a second."""
LOADS = Path(__file__).with_name("loads.py")


def run(work: Work) -> None:
    from acceptance.loads import LOADS as ALL

    names = list(ALL)[:2] if work.short else list(ALL)
    cost(work)
    rows: list[dict[str, Any]] = []
    start = START_SECONDS
    for place, name in enumerate(names):
        seconds = 1.0 if work.short else lasting(work.left() / (len(names) - place), start)
        if work.left() < seconds + start:
            break
        began = time.monotonic()
        rows.append(_watched(work, name, ALL[name][1], seconds))
        start = max(1.0, time.monotonic() - began - seconds)
        _judged(work, rows, len(ALL))


def lasting(there: float, start: float) -> float:
    """How long a workload works, of the seconds that it has with its start.

    >>> lasting(20, 4), lasting(9, 4), lasting(3, 4)
    (6.0, 5, 3.0)
    """
    return min(SECONDS, max(LEAST_SECONDS, there - start))


def _watched(work: Work, name: str, right: tuple[str, ...], seconds: float) -> dict[str, Any]:
    command = (sys.executable, str(LOADS), name, str(seconds), work.device)
    with dmon() as beside:
        said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command, limit=60)
    work.keep(f"monitor-{name}.jsonl", said.stdout)
    summary = said.document
    gpu = (summary.get("gpus") or [{}])[0]
    row = {
        "workload": name, "right": " or ".join(right), "verdict": summary.get("verdict"),
        "agrees": summary.get("verdict") in right, "evidence": summary.get("evidence")
        or said.problem, "seconds": round(said.seconds, 1), **_figures(gpu), **theirs(beside),
    }  # fmt: skip
    work.row("workloads", **row)
    return row


def _figures(gpu: dict[str, Any]) -> dict[str, float | None]:
    return {
        "utilisation": (gpu.get("utilization_percent") or {}).get("mean"),
        "power_watts": (gpu.get("power_watts") or {}).get("mean"),
        "memory_busy": (gpu.get("memory_busy_percent") or {}).get("mean"),
    }


@contextlib.contextmanager
def dmon() -> Iterator[list[str]]:
    """The lines of `nvidia-smi dmon` meanwhile; none where it cannot be run.

    On a terminal of its own, so that it holds no line back.
    """
    lines: list[str] = []
    ours, its = os.openpty()
    try:
        child = subprocess.Popen(
            ("nvidia-smi", "dmon", "-i", "0", "-s", "pu"), stdin=subprocess.DEVNULL, stdout=its,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        os.close(ours)
        os.close(its)
        yield lines
        return
    os.close(its)
    reader = threading.Thread(target=_heard, args=(ours, lines), daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        end(child)
        reader.join(5)


def _heard(terminal: int, lines: list[str]) -> None:
    """Its lines until it ended, which a terminal tells by an error."""
    with open(terminal, errors="replace") as opened, contextlib.suppress(OSError):
        for line in opened:
            if len(lines) < MOST_LINES:
                lines.append(line.rstrip()[:500])


def theirs(lines: list[str]) -> dict[str, float | None]:
    """dmon's means.

    >>> theirs(["# gpu    pwr  gtemp  sm  mem", "# Idx      W      C   %    %",
    ...     "    0    100     40  80   10", "    0    120     41  90   20"])
    {'dmon_utilisation': 85.0, 'dmon_power_watts': 110.0}
    """
    head = next((line.lstrip("# ").split() for line in lines if line.startswith("# gpu")), [])
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return {
        "dmon_utilisation": _mean(head, rows, "sm"),
        "dmon_power_watts": _mean(head, rows, "pwr"),
    }


def _mean(head: list[str], rows: list[list[str]], column: str) -> float | None:
    if column not in head:
        return None
    place = head.index(column)
    found = [float(row[place]) for row in rows if len(row) > place and row[place].isdigit()]
    return round(sum(found) / len(found), 1) if found else None


def _judged(work: Work, rows: list[dict[str, Any]], every: int) -> None:
    """After each workload, so that a killed part has said what it knew."""
    said = [row for row in rows if row["verdict"] is not None]
    wrong = [f"{row['workload']}: {row['verdict']}" for row in said if not row["agrees"]]
    told = f"{len(said) - len(wrong)} of {len(said)} right; other: {', '.join(wrong) or 'none'}"
    told += f"; without an answer: {len(rows) - len(said)}" * (len(said) < len(rows))
    whole = len(said) == every or bool(wrong)
    work.claim("monitor-verdicts", not wrong if whole else "open", told)
    pairs = [row for row in rows if None not in (row["utilisation"], row["dmon_utilisation"])]
    if pairs:
        far = max(pairs, key=lambda row: abs(row["utilisation"] - row["dmon_utilisation"]))
        told = "utilisation {utilisation:.0f} %, dmon {dmon_utilisation:.0f} % ({workload})"
        work.claim("monitor-figures", all(map(near, pairs)), f"farthest: {told.format(**far)}")


def near(row: dict[str, Any]) -> bool:
    apart = abs(row["utilisation"] - row["dmon_utilisation"])
    ours, other = row["power_watts"], row["dmon_power_watts"]
    power = ours is None or not other or abs(ours / other - 1) <= POWER_PART
    return bool(apart <= UTILISATION_POINTS and power)


def cost(work: Work) -> None:
    """The processor time of monitor alone, over its own seconds less its start."""
    short, long = (_spent(work, seconds) for seconds in (2, 4 if work.short else 6))
    told = [said for _, said in (short, long) if not samples(said)]
    if told:
        work.claim("monitor-cost", "open", told[0].problem)
        return
    percent = 100 * max(0.0, long[0] - short[0]) / (2 if work.short else 4)
    work.row("cost", percent_of_a_core=round(percent, 2), start_cpu_seconds=round(short[0], 2))
    work.claim("monitor-cost", percent < COST_PERCENT, f"{percent:.1f} % of a core")


def _spent(work: Work, seconds: int) -> tuple[float, Said]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = work.gpusetup("monitor", str(seconds), "--json", limit=seconds + 20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, said


def samples(said: Said) -> int:
    """How many samples it took of a GPU."""
    count = 0
    for line in said.stdout.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            count += found.get("kind") == "sample" and bool(found.get("gpus"))
    return count
