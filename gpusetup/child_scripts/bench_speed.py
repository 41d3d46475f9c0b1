"""How long a trial's steps take: beside `bench.py`.

Python 3.8 syntax.
"""

from __future__ import annotations

import time
from typing import Any, Iterator, List, Optional, Tuple

LEAST_SECONDS = 0.5
"""Steps are timed for so long at least: what disturbs them lasts for many short ones."""
ROUNDS = 3
"""Every worker's batch is timed so often at least."""


def in_rounds(seconds: List[float], workers: int) -> List[float]:
    """Seconds a step, over as many steps at a time as there are workers.

    Workers finish their batches together: one step waits for them, the others find theirs there.

    >>> in_rounds([0.5, 0.25, 0.25, 0.5, 0.25, 0.5], 2)
    [0.375, 0.375, 0.375]
    """
    if workers < 2:
        return seconds
    parts = [seconds[i : i + workers] for i in range(0, len(seconds) - workers + 1, workers)]
    return [sum(one) / workers for one in parts] or seconds


def spread(seconds: List[float]) -> Optional[float]:
    """How far the middle half of the steps lies apart, in percent of their median; of one: unknown.

    >>> spread([1.0, 1.1, 0.9, 1.0, 9.0]), spread([1.0])
    (10.000000000000009, None)
    """
    if len(seconds) < 2:
        return None
    ordered, cut = sorted(seconds), len(seconds) // 4
    return 100 * (ordered[-1 - cut] - ordered[cut]) / ordered[len(ordered) // 2]


def timed(trial: Any, batches: Iterator[Any], count: int) -> Tuple[List[float], Optional[float]]:
    """The seconds of each step and what NVML said; nothing waits for the device in between."""
    stamps = [stamp(trial)]
    for _ in range(count):
        trial.step(next(batches))
        stamps.append(stamp(trial))
    busy = trial.memory.busy()
    if trial.device.startswith("cuda"):
        trial.torch.cuda.synchronize()
        return [stamps[i].elapsed_time(stamps[i + 1]) / 1000 for i in range(count)], busy
    return [stamps[i + 1] - stamps[i] for i in range(count)], busy


def stamp(trial: Any) -> Any:
    """Now: on a GPU an event among its work, else the clock."""
    if not trial.device.startswith("cuda"):
        return time.perf_counter()
    event = trial.torch.cuda.Event(enable_timing=True)
    event.record()
    return event
