"""Sample NVML at a steady interval and print one line of JSON each. Runs in a child of our own.

    watch_nvml.py SECONDS [COUNT]      COUNT 0 or none: until nobody reads any more

If there is nothing to watch, the only line says why: {"init": 9, "message": "Driver Not Loaded"}.
Else, each time:

    {"at": "2026-11-20T06:03:41.123Z", "seconds": 1.002, "gpus": [{
        "index": 0, "name": "NVIDIA L40S", "uuid": "GPU-...",
        "utilization_percent": 97, "memory_busy_percent": 41, "memory_used_bytes": 31138512896,
        "memory_total_bytes": 48305799168, "temperature_celsius": 71, "power_watts": 342.8,
        "power_limit_watts": 350.0, "clock_sm_mhz": 2490, "clock_sm_max_mhz": 2520,
        "throttle_reasons": ["sw_power_cap"],
        "processes": [{"pid": 4711, "name": "python", "memory_bytes": 31000000000,
                       "kind": "compute", "sm_percent": 96}],
        "lost": false, "problem": null}]}

and what else `SELDOM` and `COUNTERS` name.

What NVML does not tell is null, as the utilisation of a GPU with MIG. Units and meaning: nvml.h
(NVML_FI_DEV_PCIE_COUNT_*: bytes; NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*: KiB, over all links if
the scope is all ones; nvmlDeviceGetProcessUtilization: percent). Python 3.8 syntax; imports pynvml
and the neighbour `read_nvml`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, Tuple

import driver_answers as ANSWERS  # type: ignore[import-not-found, unused-ignore]
import read_nvml as READ  # type: ignore[import-not-found, unused-ignore]

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]

SLOW_SECONDS = 30.0
"""How often what hardly changes (limits) is read again."""
ABSENT = (3, 6, 13)
"""NVML: not supported, nothing found, function not found: a gap, not a trouble."""
LOST = 15
LANE_BYTES = (0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)
"""A second, one way, by the generation of PCIe (PCI-SIG)."""


READS = dict(READ.FIELDS)


def pcie_limit(nvml: Any, handle: Any) -> float | None:
    """Bytes a second, one way."""
    generation, width = (READS[name](nvml, handle) for name in ("pcie_generation", "pcie_width"))
    return LANE_BYTES[generation] * width if generation < len(LANE_BYTES) else None


def counted(nvml: Any, handle: Any) -> Dict[str, int]:
    """The counters that this driver tells."""
    values = nvml.nvmlDeviceGetFieldValues(handle, [row[1:3] for row in COUNTERS])
    told = ((row, values[place]) for place, row in enumerate(COUNTERS))
    return {row[0]: int(one.value.ullVal) * row[3] for row, one in told if one.nvmlReturn == 0}


def of_probe(names: str) -> Fields:
    return tuple((name, READS[name]) for name in names.split())


ALWAYS = of_probe("memory_used_bytes memory_total_bytes processes")
"""What a GPU that is lost is asked too: each call may take seconds."""
OFTEN: Fields = (
    *of_probe("utilization_percent temperature_celsius power_watts throttle_reasons"),
    ("memory_busy_percent", lambda n, h: int(n.nvmlDeviceGetUtilizationRates(h).memory)),
    ("clock_sm_mhz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    ("counters", counted),
)
SELDOM: Fields = (
    *of_probe("power_limit_watts power_limit_default_watts clock_sm_max_mhz"),
    (
        "power_limit_max_watts",
        lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000,
    ),
    ("pcie_limit_bytes_per_second", pcie_limit),
)
KINDS = {"C": "compute", "G": "graphics", "C+G": "both"}
EVERY_LINK = 0xFFFFFFFF
COUNTERS = (
    ("pcie_rx_bytes_per_second", 198, 0, 1),
    ("pcie_tx_bytes_per_second", 197, 0, 1),
    ("nvlink_rx_bytes_per_second", 139, EVERY_LINK, 1024),
    ("nvlink_tx_bytes_per_second", 138, EVERY_LINK, 1024),
)
"""Field of the answer, field of NVML, its scope, bytes in one."""


class Watched:
    """One GPU, with what it told the last time."""

    def __init__(self, handle: Any, identity: Answer) -> None:
        self.handle, self.identity = handle, troubled(identity)
        self.seldom: Answer = {}
        self.seldom_at = -SLOW_SECONDS
        self.counters: Dict[str, int] = {}
        self.at = 0.0
        self.used_since = 0
        self.lost = False

    def sample(self, nvml: Any, now: float) -> Answer:
        if self.handle is None:
            return dict(self.identity, processes=None)
        fields = ALWAYS
        if not self.lost:
            fields += (*OFTEN, ("use", self.use))
            if now - self.seldom_at >= SLOW_SECONDS:
                fields, self.seldom_at = fields + SELDOM, now
        told = READ.ask(nvml, fields, self.handle)
        self.seldom.update((name, told[name]) for name, _ in SELDOM if name in told)
        use = told.pop("use", None) or {}
        for row in told["processes"] or ():
            row.update(kind=KINDS[row["kind"]], sm_percent=use.get(row["pid"]))
        told.update(self.rates(now, told.pop("counters", None) or {}), **self.seldom)
        answer = troubled(dict(self.identity, **told))
        self.lost = answer["lost"]
        return answer

    def rates(self, now: float, told: Dict[str, int]) -> Answer:
        """What the counters grew by a second, since the answer before."""
        before, passed = self.counters, now - self.at
        self.counters, self.at = told, now
        return {
            name: round((told[name] - before[name]) / passed)
            for name in told
            if passed > 0 and before.get(name, told[name] + 1) <= told[name]
        }

    def use(self, nvml: Any, handle: Any) -> Dict[int, int]:
        """pid -> percent of the multiprocessors; the latest of each. Nothing new: NVML's error."""
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, self.used_since)
        latest = sorted((int(one.timeStamp), int(one.pid), int(one.smUtil)) for one in samples)
        self.used_since = latest[-1][0] if latest else self.used_since
        return {pid: use for _, pid, use in latest if pid and use <= 100}


def troubled(answer: Answer) -> Answer:
    """With the first of its problems that is more than a gap."""
    trouble = [one for one in answer.pop("problems") if one["code"] not in ABSENT]
    lost = any(one["code"] == LOST for one in trouble)
    return dict(answer, lost=lost, problem=trouble[0]["text"] if trouble else None)


def watched(nvml: Any, index: int) -> Watched:
    """Without a handle it tells nothing but its problem."""
    told = READ.ask(nvml, (("handle", lambda n, at: n.nvmlDeviceGetHandleByIndex(at)),), index)
    handle = told.pop("handle")
    if handle is not None:
        told = READ.ask(nvml, READ.IDENTITY[1:], handle)
    return Watched(handle, {**dict.fromkeys(("name", "uuid")), **told, "index": index})


def watch(nvml: Any, found: list[Watched], every: float, count: int) -> None:
    """Samples at multiples of the interval; one that came too late is left out, not caught up."""
    began, done = time.monotonic(), 0
    while True:
        seconds, now = time.monotonic() - began, time.time()
        gpus = [gpu.sample(nvml, seconds) for gpu in found]
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)
        READ.say({"at": at, "seconds": round(seconds, 3), "gpus": gpus})
        done += 1
        if done == count:
            return
        passed = time.monotonic() - began
        time.sleep((passed // every + 1) * every - passed)


def main(arguments: list[str]) -> Any:
    every = float(arguments[0])
    count = int(arguments[1]) if len(arguments) > 1 else 0
    try:
        nvml = READ.binding()
    except ImportError as problem:
        return READ.say({"init": None, "message": "nvidia-ml-py cannot be imported: %s" % problem})
    try:
        nvml.nvmlInit()
        found = [watched(nvml, index) for index in range(READ.count_of(nvml))]
    except nvml.NVMLError as problem:
        return READ.say({"init": problem.value, "message": str(problem)})
    except READ.NotPlausible as problem:
        return READ.say({"init": None, "message": "not plausible: %s" % problem})
    watch(nvml, found, every, count)
    return None


if __name__ == "__main__":
    ANSWERS.keep_apart()
    try:
        main(sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # nobody reads any more; Python would complain when it flushes
