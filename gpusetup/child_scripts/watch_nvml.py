"""Sample NVML at a steady interval and print one line of JSON each. Runs in a child of our own.

    watch_nvml.py SECONDS [COUNT]      COUNT 0 or none: until nobody reads any more

The first line says what there is (where `init` is not 0, nothing follows):

    {"init": 0, "message": "Success", "driver_version": "580.95.05",
     "gpus": [{"index": 0, "mig_index": null, "mig_of": null, "name": "NVIDIA L40S",
               "uuid": "GPU-...", "lost": false, "problem": null}]}

Before it stands a line for each call until then, said before it is made, in case that one never
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

and the limits and rates of `SELDOM` and of `nvml_links`.

Where there is time for it, a line for each call stands before a sample too.

What NVML does not tell is null. NVML's memory counts for a MIG instance; its utilisation, clocks,
power and temperature are only told for the whole GPU. Python 3.8 syntax; imports pynvml and the
neighbours `read_nvml` and `nvml_links`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

Answer = Dict[str, Any]
Fields = Tuple[Tuple[str, Callable[..., Any]], ...]

SLOW_SECONDS = 30.0
"""How often what hardly changes (limits) is read anew."""
ABSENT = (3, 6, 13)
"""NVML: not supported, nothing found, function not found: a gap, not a trouble."""
LOST = 15
HEAVIER_THAN_ALL = 1 << 62
"""NVML's "not available" for a process's memory is all bits set (Windows with WDDM)."""


def neighbour(name: str) -> Any:
    """A script beside this file, also under `-I`."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


READ, LINKS = neighbour("read_nvml"), neighbour("nvml_links")
READS = dict(READ.FIELDS)


def memory(nvml: Any, handle: Any) -> Answer:
    used, total = (READS[name](nvml, handle) for name in MEMORY_FIELDS)
    return {"memory_used_bytes": used, "memory_total_bytes": total}


def utilization(nvml: Any, handle: Any) -> Answer:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_percent": int(rates.gpu), "memory_busy_percent": int(rates.memory)}


def clock(kind: str, call: str = "nvmlDeviceGetClockInfo") -> Callable[[Any, Any], int]:
    return lambda nvml, handle: int(getattr(nvml, call)(handle, getattr(nvml, kind)))


MEMORY_FIELDS = ("memory_used_bytes", "memory_total_bytes")
RATE_FIELDS = ("utilization_percent", "memory_busy_percent")
GROUPS: Tuple[Tuple[Tuple[str, ...], Callable[..., Any]], ...] = (
    (RATE_FIELDS, utilization),
    (MEMORY_FIELDS, memory),
)
"""Fields that one call answers together."""
OFTEN: Fields = (
    ("temperature_celsius", READS["temperature_celsius"]),
    ("power_watts", READS["power_watts"]),
    ("clock_sm_mhz", clock("NVML_CLOCK_SM")),
    ("clock_memory_mhz", clock("NVML_CLOCK_MEM")),
    ("throttle_reasons", READS["throttle_reasons"]),
)
SELDOM: Fields = (
    ("power_limit_watts", READS["power_limit_watts"]),
    ("clock_sm_max_mhz", clock("NVML_CLOCK_SM", "nvmlDeviceGetMaxClockInfo")),
    ("power_limit_default_watts", READS["power_limit_default_watts"]),
    (
        "power_limit_max_watts",
        lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000,
    ),
    (
        "temperature_slowdown_celsius",
        lambda n, h: n.nvmlDeviceGetTemperatureThreshold(h, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
    ("pcie_limit_bytes_per_second", LINKS.pcie_limit),
)


class Watched:
    """One GPU or MIG instance, with what it told the last time."""

    def __init__(self, handle: Any, identity: Answer, bus: str | None = None) -> None:
        self.handle = handle
        self.bus = bus
        self.identity = identity
        self.is_instance = identity["mig_of"] is not None
        self.seldom: Answer = {}
        self.seldom_at = -SLOW_SECONDS
        self.links = LINKS.Links(0.0)
        self.problem: str | None = identity["problem"]
        self.lost: bool = identity["lost"]

    def sample(self, nvml: Any, now: float) -> Answer:
        self.problem, self.lost = None, False
        answer = dict(self.identity)
        for names, read in GROUPS[1:] if self.is_instance else GROUPS:
            answer.update(self.ask(nvml, read) or dict.fromkeys(names))
        if not self.is_instance:
            for name, read in OFTEN:
                answer[name] = self.ask(nvml, read)
            answer.update(self.limits(nvml, now))
            answer.update(self.links.rates(nvml, self.handle, now, self.ask))
        answer["processes"] = self.processes(nvml)
        answer.update(lost=self.lost, problem=self.problem)
        return answer

    def limits(self, nvml: Any, now: float) -> Answer:
        if now - self.seldom_at >= SLOW_SECONDS:
            self.seldom = {name: self.ask(nvml, read) for name, read in SELDOM}
            self.seldom_at = now
        return self.seldom

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

    def processes(self, nvml: Any) -> Any:
        """Both kinds, the heaviest first; None where neither is told."""
        lists = (self.ask(nvml, compute_processes), self.ask(nvml, graphics_processes))
        if lists == (None, None):
            return None
        found = {row["pid"]: row for rows in reversed(lists) for row in rows or ()}
        drawing = {row["pid"] for row in lists[1] or ()}
        for row in lists[0] or ():
            row["kind"] = "both" if row["pid"] in drawing else row["kind"]
        use = self.ask(nvml, self.links.process_use) if found and not self.is_instance else None
        for pid, row in found.items():
            row["sm_percent"] = (use or {}).get(pid)
        return sorted(found.values(), key=lambda row: -(row["memory_bytes"] or 0))


NAMES_OF_ONE: Fields = READ.IDENTITY[1:]
NAMES: dict[int, str | None] = {}
"""What NVML calls a process; in a container it may not tell (pids are then the host's)."""


def process_name(nvml: Any, pid: int) -> str | None:
    if pid not in NAMES:
        if len(NAMES) > 4096:
            NAMES.clear()
        try:
            NAMES[pid] = nvml.nvmlSystemGetProcessName(pid) or None
        except (nvml.NVMLError, UnicodeDecodeError):
            NAMES[pid] = None
    return NAMES[pid]


def rows_of(nvml: Any, processes: Any, kind: str) -> list[Answer]:
    return [
        {
            "pid": int(one.pid),
            "name": process_name(nvml, int(one.pid)),
            "memory_bytes": used_memory(one.usedGpuMemory),
            "kind": kind,
        }
        for one in processes
    ]


def used_memory(count: int | None) -> int | None:
    return None if count is None or count >= HEAVIER_THAN_ALL else int(count)


def compute_processes(nvml: Any, handle: Any) -> list[Answer]:
    return rows_of(nvml, nvml.nvmlDeviceGetComputeRunningProcesses(handle), "compute")


def graphics_processes(nvml: Any, handle: Any) -> list[Answer]:
    return rows_of(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses(handle), "graphics")


def identity(nvml: Any, index: int, handle: Any, **more: Any) -> Answer:
    named = READ.ask(nvml, NAMES_OF_ONE, handle)
    trouble = [one for one in named.pop("problems") if one["code"] not in ABSENT]
    lost = any(one["code"] == LOST for one in trouble)
    problem = trouble[0]["text"] if trouble else None
    start = {"index": index, "mig_index": None, "mig_of": None, "lost": lost, "problem": problem}
    return dict(start, **named, **more)


def bus_of(nvml: Any, handle: Any) -> str | None:
    try:
        return READS["pci_bus_id"](nvml, handle)  # type: ignore[no-any-return]
    except (nvml.NVMLError, UnicodeDecodeError):
        return None


def devices(nvml: Any) -> list[Watched]:
    """Every GPU, each followed by its MIG instances."""
    found: List[Watched] = []
    for index in range(READ.count_of(nvml)):
        nvml.gpu, nvml.bus = index, None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as problem:
            found.append(unreachable(index, problem))
            continue
        nvml.bus = bus_of(nvml, handle)
        gpu = identity(nvml, index, handle)
        found.append(Watched(handle, gpu, nvml.bus))
        found += instances(nvml, index, handle, gpu["uuid"])
    return found


def unreachable(index: int, problem: Any) -> Watched:
    gone = Watched(None, {
        "index": index, "mig_index": None, "mig_of": None, "name": None, "uuid": None,
        "lost": problem.value == LOST, "problem": str(problem),
    })  # fmt: skip
    gone.sample = lambda nvml, now: dict(gone.identity, processes=None)  # type: ignore[method-assign]
    return gone


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


def now_in_words() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)


QUICK_SECONDS = 0.2
"""Below this interval only the first sample's calls are said before they are made."""


def say(answer: Answer) -> None:
    READ.say(answer)


def watch(nvml: Any, watched: list[Watched], every: float, count: int) -> None:
    """Samples at multiples of the interval; one that came too late is left out, not caught up."""
    began = time.monotonic()
    done = 0
    for gpu in watched:
        gpu.links = LINKS.Links(every)
    while True:
        seconds = time.monotonic() - began
        gpus = [sampled(nvml, gpu, seconds) for gpu in watched]
        if every < QUICK_SECONDS and not nvml.quiet:
            nvml.quiet = True
        say({"at": now_in_words(), "seconds": round(seconds, 3), "gpus": gpus})
        done += 1
        if done == count:
            return
        passed = time.monotonic() - began
        time.sleep((passed // every + 1) * every - passed)


def sampled(nvml: Any, one: Watched, seconds: float) -> Answer:
    nvml.gpu, nvml.bus = one.identity["index"], one.bus
    return one.sample(nvml, seconds)


def main(arguments: list[str]) -> None:
    every = float(arguments[0])
    count = int(arguments[1]) if len(arguments) > 1 else 0
    try:
        nvml = READ.Announced(READ.binding())
    except ImportError as problem:
        return say({"init": None, "message": "nvidia-ml-py cannot be imported: %s" % problem})
    try:
        nvml.nvmlInit()
        found = devices(nvml)
        nvml.gpu = nvml.bus = None
        driver = READ.ask(nvml, READ.SYSTEM_FIELDS[:1])["driver_version"]
    except nvml.NVMLError as problem:
        return say({"init": problem.value, "message": str(problem)})
    except READ.NotPlausible as problem:
        return say({"init": None, "message": "not plausible: %s" % problem})
    hello = {"init": 0, "message": "Success", "driver_version": driver}
    say(dict(hello, gpus=[gpu.identity for gpu in found]))
    chosen = json.loads(sys.stdin.readline() or "[]")
    watch(nvml, [found[place] for place in chosen], every, count)
    return None


if __name__ == "__main__":
    READ.ANSWERS.keep_apart()
    try:
        main(sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # nobody reads any more; Python would complain when it flushes
