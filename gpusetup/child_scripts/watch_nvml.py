"""Sample NVML at a steady interval and print one line of JSON each. Runs in a child of our own.

    watch_nvml.py SECONDS [COUNT]      COUNT 0 or none: until nobody reads any more

The first line says what there is (if `init` is not 0, nothing follows):

    {"init": 0, "message": "Success", "driver_version": "580.95.05",
     "gpus": [{"index": 0, "mig_index": null, "mig_of": null, "name": "NVIDIA L40S",
               "uuid": "GPU-...", "lost": false, "problem": null}]}

Before it comes a line for each call until then, said before it is made, in case that one never
comes back: {"step": "nvmlDeviceGetHandleByIndex", "gpu": 1}.

Then one line is read from stdin: the places in `gpus` to watch, as a JSON list. Then, each time:

    {"at": "2026-11-20T06:03:41.123Z", "seconds": 1.002, "gpus": [{
        "index": 0, "mig_index": null, "mig_of": null, "name": "NVIDIA L40S", "uuid": "GPU-...",
        "utilization_percent": 97, "memory_busy_percent": 41, "memory_used_bytes": 31138512896,
        "memory_total_bytes": 48305799168, "temperature_celsius": 71, "power_watts": 342.8,
        "power_limit_watts": 350.0, "clock_sm_mhz": 2490, "clock_sm_max_mhz": 2520,
        "clock_memory_mhz": 9001, "throttle_reasons": ["sw_power_cap"],
        "processes": [{"pid": 4711, "name": "python", "memory_bytes": 31000000000,
                       "kind": "compute", "sm_percent": 96}],
        "lost": false, "problem": null}]}

and what else `FIELDS` and `COUNTERS` name. If there is time for it, a line for each call comes
before a sample too.

What NVML does not tell is null. NVML's memory counts for a MIG instance; its utilisation, clocks,
power and temperature are only told for the whole GPU. Units and meaning: nvml.h
(NVML_FI_DEV_PCIE_COUNT_*: bytes; NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*: KiB, over all links if
the scope is all ones; nvmlDeviceGetProcessUtilization: percent). Python 3.8 syntax; imports pynvml
and the neighbour `read_nvml`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

Answer = Dict[str, Any]

SLOW_SECONDS = 30.0
"""How often what hardly changes (limits) is read again."""
QUICK_SECONDS = 0.2
"""Below this interval only the first sample's calls are said before they are made."""
ABSENT = (3, 6, 13)
"""NVML: not supported, nothing found, function not found: a gap, not a trouble."""
LOST = 15
HEAVIER_THAN_ALL = 1 << 62
"""NVML's "not available" for a process's memory is all bits set (Windows with WDDM)."""
MOST_NAMES = 4096
LANE_BYTES = (0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)
"""A second, one way, by the generation of PCIe (PCI-SIG)."""


def neighbour(name: str) -> Any:
    """A script beside this file, also under `-I`."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


READ = neighbour("read_nvml")
READS = dict(READ.FIELDS)


def utilization(nvml: Any, handle: Any) -> Answer:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_percent": int(rates.gpu), "memory_busy_percent": int(rates.memory)}


def pcie_limit(nvml: Any, handle: Any) -> float | None:
    """Bytes a second, one way."""
    generation = int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))
    width = int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    return LANE_BYTES[generation] * width if generation < len(LANE_BYTES) else None


OFTEN: Dict[str, Callable[..., Any]] = {
    **{name: READS[name] for name in ("temperature_celsius", "power_watts", "throttle_reasons")},
    "clock_sm_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    "clock_memory_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
}
SELDOM: Dict[str, Callable[..., Any]] = {
    **{name: READS[name] for name in ("power_limit_watts", "power_limit_default_watts")},
    "clock_sm_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
    "power_limit_max_watts": lambda n, h: (
        n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000
    ),
    "temperature_slowdown_celsius": lambda n, h: n.nvmlDeviceGetTemperatureThreshold(
        h, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    ),
    "pcie_limit_bytes_per_second": pcie_limit,
}
MEMORY = ("memory_used_bytes", "memory_total_bytes")
EVERY_LINK = 0xFFFFFFFF
COUNTERS = (
    ("pcie_rx_bytes_per_second", 198, 0, 1),
    ("pcie_tx_bytes_per_second", 197, 0, 1),
    ("nvlink_rx_bytes_per_second", 139, EVERY_LINK, 1024),
    ("nvlink_tx_bytes_per_second", 138, EVERY_LINK, 1024),
)
"""Field of the answer, field of NVML, its scope, bytes in one."""


class Watched:
    """One GPU or MIG instance, with what it told the last time."""

    def __init__(self, handle: Any, identity: Answer, bus: str | None = None) -> None:
        self.handle, self.identity, self.bus = handle, identity, bus
        self.is_instance = identity["mig_of"] is not None
        self.seldom: Answer = {}
        self.seldom_at = -SLOW_SECONDS
        self.counters: Dict[str, Tuple[float, int]] = {}
        self.used_since = 0
        self.lost, self.problem = identity["lost"], identity["problem"]

    def sample(self, nvml: Any, now: float) -> Answer:
        answer = dict(self.identity)
        if self.handle is None:
            return dict(answer, processes=None)
        nvml.gpu, nvml.bus = self.identity["index"], self.bus
        self.problem, self.lost = None, False
        answer.update((name, self.ask(nvml, READS[name])) for name in MEMORY)
        if not self.is_instance:
            answer.update(self.ask(nvml, utilization) or {})
            answer.update((name, self.ask(nvml, read)) for name, read in OFTEN.items())
            if now - self.seldom_at >= SLOW_SECONDS:
                self.seldom = {name: self.ask(nvml, read) for name, read in SELDOM.items()}
                self.seldom_at = now
            answer.update(self.seldom)
            answer.update(self.rates(now, self.ask(nvml, counted) or {}))
        answer["processes"] = self.processes(nvml)
        answer.update(lost=self.lost, problem=self.problem)
        return answer

    def ask(self, nvml: Any, read: Callable[[Any, Any], Any]) -> Any:
        """The answer, or None; a trouble is kept, and one that is lost is asked nothing more."""
        if self.lost:
            return None
        try:
            return read(nvml, self.handle)
        except nvml.NVMLError as problem:
            if problem.value not in ABSENT:
                self.problem = self.problem or str(problem)
                self.lost = problem.value == LOST
        except AttributeError as problem:
            self.problem = self.problem or "this binding: %s" % problem
        return None

    def rates(self, now: float, told: Dict[str, int]) -> Answer:
        """What the counters grew by a second, since the answer before."""
        before, self.counters = self.counters, {name: (now, told[name]) for name in told}
        since = {name: before[name] for name in told if name in before}
        return {
            name: round((told[name] - old) / (now - at))
            for name, (at, old) in since.items()
            if now > at and told[name] >= old
        }

    def processes(self, nvml: Any) -> Any:
        """Both kinds, the heaviest first; None if neither is told."""
        found: Dict[int, Answer] = {}
        lists = {kind: self.ask(nvml, running(kind)) for kind in ("Graphics", "Compute")}
        for kind, told in lists.items():
            for one in told or ():
                row = process(nvml, one)
                row["kind"] = "both" if row["pid"] in found else kind.lower()
                found[row["pid"]] = row
        use = self.ask(nvml, self.process_use) if found and not self.is_instance else None
        for pid, row in found.items():
            row["sm_percent"] = (use or {}).get(pid)
        rows = sorted(found.values(), key=lambda row: -(row["memory_bytes"] or 0))
        return rows if any(told is not None for told in lists.values()) else None

    def process_use(self, nvml: Any, handle: Any) -> Dict[int, int]:
        """pid -> percent of the multiprocessors; the latest of each. Nothing new: NVML's error."""
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, self.used_since)
        latest = sorted((int(one.timeStamp), int(one.pid), int(one.smUtil)) for one in samples)
        self.used_since = latest[-1][0] if latest else self.used_since
        return {pid: use for _, pid, use in latest if pid and use <= 100}


def counted(nvml: Any, handle: Any) -> Dict[str, int]:
    """The counters that this driver tells."""
    values = nvml.nvmlDeviceGetFieldValues(handle, [(row[1], row[2]) for row in COUNTERS])
    told = ((row, values[place]) for place, row in enumerate(COUNTERS))
    return {row[0]: int(one.value.ullVal) * row[3] for row, one in told if one.nvmlReturn == 0}


def running(kind: str) -> Callable[..., Any]:
    return lambda nvml, h: getattr(nvml, "nvmlDeviceGet%sRunningProcesses" % kind)(h)


NAMES: Dict[int, Any] = {}
"""What NVML calls a process; in a container it may not tell (pids are then the host's)."""


def process(nvml: Any, one: Any) -> Answer:
    pid, used = int(one.pid), one.usedGpuMemory
    if pid not in NAMES:
        if len(NAMES) > MOST_NAMES:
            NAMES.clear()
        try:
            NAMES[pid] = nvml.nvmlSystemGetProcessName(pid) or None
        except (nvml.NVMLError, UnicodeDecodeError):
            NAMES[pid] = None
    known = used is not None and used < HEAVIER_THAN_ALL
    return {"pid": pid, "name": NAMES[pid], "memory_bytes": int(used) if known else None}


def identity(nvml: Any, index: int, handle: Any, **more: Any) -> Answer:
    named = READ.ask(nvml, READ.IDENTITY[1:], handle)
    trouble = [one for one in named.pop("problems") if one["code"] not in ABSENT]
    lost = any(one["code"] == LOST for one in trouble)
    problem = trouble[0]["text"] if trouble else None
    start = {"index": index, "mig_index": None, "mig_of": None, "lost": lost, "problem": problem}
    return dict(start, **named, **more)


def devices(nvml: Any) -> list[Watched]:
    """Every GPU, each followed by its MIG instances."""
    found: List[Watched] = []
    for index in range(READ.count_of(nvml)):
        nvml.gpu, nvml.bus = index, None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as problem:
            gone = dict.fromkeys(("mig_index", "mig_of", "name", "uuid"))
            lost = problem.value == LOST
            found.append(Watched(None, dict(gone, index=index, lost=lost, problem=str(problem))))
            continue
        nvml.bus = READ.ask(nvml, READ.IDENTITY[:1], handle)["pci_bus_id"]
        gpu = identity(nvml, index, handle)
        found.append(Watched(handle, gpu, nvml.bus))
        found += instances(nvml, index, handle, gpu["uuid"])
    return found


def instances(nvml: Any, index: int, handle: Any, parent: str | None) -> list[Watched]:
    found: List[Watched] = []
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return found
        most = min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), READ.MOST_INSTANCES)
    except nvml.NVMLError:
        return found
    for place in range(most):
        try:
            child = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue
        slot = identity(nvml, index, child, mig_index=place, mig_of=parent)
        found.append(Watched(child, slot, nvml.bus))
    return found


def watch(nvml: Any, watched: list[Watched], every: float, count: int) -> None:
    """Samples at multiples of the interval; one that came too late is left out, not caught up."""
    began, done = time.monotonic(), 0
    while True:
        seconds, now = time.monotonic() - began, time.time()
        gpus = [gpu.sample(nvml, seconds) for gpu in watched]
        nvml.quiet = every < QUICK_SECONDS
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
        nvml = READ.Announced(READ.binding())
    except ImportError as problem:
        return READ.say({"init": None, "message": "nvidia-ml-py cannot be imported: %s" % problem})
    try:
        nvml.nvmlInit()
        found = devices(nvml)
        nvml.gpu = nvml.bus = None
        driver = READ.ask(nvml, READ.SYSTEM_FIELDS[:1])["driver_version"]
    except nvml.NVMLError as problem:
        return READ.say({"init": problem.value, "message": str(problem)})
    except READ.NotPlausible as problem:
        return READ.say({"init": None, "message": "not plausible: %s" % problem})
    hello = {"init": 0, "message": "Success", "driver_version": driver}
    READ.say(dict(hello, gpus=[gpu.identity for gpu in found]))
    chosen = json.loads(sys.stdin.readline() or "[]")
    watch(nvml, [found[place] for place in chosen], every, count)
    return None


if __name__ == "__main__":
    READ.ANSWERS.keep_apart()
    try:
        main(sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # nobody reads any more; Python would complain when it flushes
