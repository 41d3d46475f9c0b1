"""Reads the driver and every GPU with NVML, and prints lines of JSON. Runs in a child process.

    read_nvml.py                      once
    read_nvml.py SECONDS [COUNT]      a sample each time; without COUNT, or with 0, endlessly

The answer, `{"init": 0, "message": "Success", "nvml_version": "13.580.95.05",
"driver_version": "580.95.05", "cuda_version": "13.0", "devices": [...], "problems": [...]}`, has
the fields of `gpusetup.model.machine.Gpu` for each device (and `index` and `persistence`). If
`init`, what nvmlInit returned, is not 0, the answer has only it, the message, the
library's version and the problems. If a value is null, `problems` says why: `{"field":
"ecc_enabled", "code": 3, "text": "Not Supported"}`. Without the binding, the answer is
`{"problem": "..."}`.

Before that line it prints one for each call, because a call may never return:
{"step": "nvmlDeviceGetMemoryInfo", "gpu": 1}.

A sample, `{"at": "2026-11-20T06:03:41.123Z", "seconds": 1.002, "gpus": [{"index": 0, "lost": false,
"problem": null, ...}]}`, has the fields in `EVERY_SAMPLE` and `COUNTERS`. A
value is null if NVML does not report it, such as the utilisation of a GPU with MIG. If there is no
GPU to sample, the only line gives the reason: {"init": 9, "message": "..."}.

Python 3.8 syntax; imports the standard library, pynvml, and its neighbours.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict

HERE = os.path.dirname(os.path.abspath(__file__))
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import nvml_fields  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]
say = driver_answers.say
LOST_CODE = 15
"""NVML_ERROR_GPU_IS_LOST."""


def devices(nvml: Any) -> list[Answer]:
    """Every GPU that NVML lists, with its values and what could not be read."""

    def handle_of(index: int) -> Any:
        # From here on, announced steps name this GPU.
        nvml.gpu = index
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return nvml, handle

    answers: list[Answer] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        device = driver_answers.read_device(nvml.NVMLError, index, handle_of, nvml_fields.FIELDS)
        device["lost"] = any(problem["code"] == LOST_CODE for problem in device["problems"])
        answers.append(device)
    return answers


LIBRARY_FIELDS: nvml_fields.Fields = (
    ("nvml_version", lambda nvml: nvml.nvmlSystemGetNVMLVersion()),
)
"""Fields of the library itself, which it knows even if it cannot reach the driver."""
ALL_FIELDS: nvml_fields.Fields = (
    *LIBRARY_FIELDS,
    ("driver_version", lambda nvml: nvml.nvmlSystemGetDriverVersion()),
    (
        "cuda_version",
        lambda nvml: driver_answers.cuda_version(nvml.nvmlSystemGetCudaDriverVersion()),
    ),
    ("devices", devices),
)


class Announced:
    """Wraps the binding and prints each call before making it, so that the parent knows which call
    hangs. `gpu` is the GPU that is being read; None while fields of the whole system are read."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self.gpu: int | None = None

    def __getattr__(self, name: str) -> Any:
        """A function of the binding that prints its call, or any other of the binding's names."""
        value = getattr(self._nvml, name)
        if not (name.startswith("nvml") and callable(value)):
            return value

        def call(*arguments: Any) -> Any:
            say({"step": name} if self.gpu is None else {"step": name, "gpu": self.gpu})
            return value(*arguments)

        setattr(self, name, call)  # the next access finds it and does not come here
        return call


def binding() -> Any:
    """The module pynvml, also from the folder that holds gpusetup, which `-I` leaves out."""
    sys.path.append(os.path.dirname(os.path.dirname(HERE)))
    import pynvml

    return pynvml


def once() -> Answer:
    """The answer of `read_nvml.py` without arguments, as the top of this file describes it."""
    try:
        nvml = Announced(binding())
    except ImportError as problem:
        return {"problem": "nvidia-ml-py cannot be imported: %s" % problem}
    fields, init = ALL_FIELDS, {"init": 0, "message": "Success"}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        fields, init = LIBRARY_FIELDS, {"init": problem.value, "message": str(problem)}
    return dict(driver_answers.read_fields(nvml.NVMLError, fields, nvml), **init)


# --- samples --------------------------------------------------------------------------------------

GAP_CODES = (3, 6, 13)
"""NVML's codes for "not supported", "not found" and "function not found": a missing value, not a
problem."""
KINDS = {"C": "compute", "G": "graphics", "C+G": "both"}


class SampledGpu:
    """One GPU, with the values of the previous sample."""

    def __init__(self, handle: Any, identity: Answer) -> None:
        self.handle = handle
        self.identity = with_problem(identity)
        self.counters: Dict[str, int] = {}
        self.at = 0.0  # the second at which the counters were read
        self.used_since = 0  # NVML's time of the latest process use that was read, in µs
        self.lost = False

    def sample(self, nvml: Any, now: float) -> Answer:
        """The GPU's values now; only its problem if it had no handle from the beginning."""
        if self.handle is None:
            return dict(self.identity, processes=None)
        # Each call to a lost GPU may take seconds, so read only a few fields.
        fields = nvml_fields.EVEN_IF_LOST
        if not self.lost:
            fields += (*nvml_fields.EVERY_SAMPLE, ("use", self.process_use))
        values: Answer = driver_answers.read_fields(nvml.NVMLError, fields, nvml, self.handle)
        process_use = values.pop("use", None) or {}
        for row in values["processes"] or ():
            row["kind"] = KINDS[row["kind"]]
            row["sm_percent"] = process_use.get(row["pid"])
        rates = self.rates(now, values.pop("counters", None) or {})
        values.update(rates)
        answer = with_problem(dict(self.identity, **values))
        self.lost = answer["lost"]
        return answer

    def rates(self, now: float, values: Dict[str, int]) -> Answer:
        """How much the counters grew per second since the previous sample."""
        before, passed = self.counters, now - self.at
        self.counters, self.at = values, now
        # Two samples at the same moment have no rate, and neither has a counter that is new or was
        # reset.
        return {
            name: round((value - before[name]) / passed)
            for name, value in values.items()
            if passed > 0 and name in before and before[name] <= value
        }

    def process_use(self, nvml: Any, handle: Any) -> Dict[int, int]:
        """The latest use of the multiprocessors in percent, by pid. Raises NVML's error if there is
        nothing new."""
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, self.used_since)
        # Sorted by time, so that a process's latest row counts.
        rows = sorted((int(row.timeStamp), int(row.pid), int(row.smUtil)) for row in samples)
        if rows:
            latest_stamp, _, _ = rows[-1]
            self.used_since = latest_stamp
        # Skip the rows without a process, which fill up the array, and the wrong values that some
        # drivers report for a process that has just started.
        return {pid: percent for _, pid, percent in rows if pid and percent <= 100}


def with_problem(answer: Answer) -> Answer:
    """The answer, with its first problem that is more than a missing value."""
    every_problem = answer.pop("problems")
    problems = [problem for problem in every_problem if problem["code"] not in GAP_CODES]
    is_lost = any(problem["code"] == LOST_CODE for problem in problems)
    return dict(answer, lost=is_lost, problem=problems[0]["text"] if problems else None)


def sampled_gpu(nvml: Any, index: int) -> SampledGpu:
    """Read one GPU; without a handle, report only the problem."""
    get_handle = ("handle", lambda nvml, index: nvml.nvmlDeviceGetHandleByIndex(index))
    answer = driver_answers.read_fields(nvml.NVMLError, (get_handle,), nvml, index)
    handle = answer.pop("handle")
    if handle is not None:
        # Leave out the bus address, which samples do not contain.
        fields = nvml_fields.IDENTITY[1:]
        answer = driver_answers.read_fields(nvml.NVMLError, fields, nvml, handle)
    return SampledGpu(handle, {"name": None, "uuid": None, **answer, "index": index})


def print_samples(nvml: Any, gpus: list[SampledGpu], every: float, count: int) -> None:
    """Print `count` samples, or endlessly if that is 0, at multiples of the interval. If one is
    late, the missed ones are skipped."""
    began = time.monotonic()
    printed = 0
    while True:
        seconds, now = time.monotonic() - began, time.time()
        # In the format of our records; `%03d` cuts off the fraction of a millisecond.
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)
        rows = [gpu.sample(nvml, seconds) for gpu in gpus]
        say({"at": at, "seconds": round(seconds, 3), "gpus": rows})
        printed += 1
        if printed == count:
            return
        passed = time.monotonic() - began
        time.sleep((passed // every + 1) * every - passed)


def sample(every: float, count: int = 0) -> None:
    """Print samples until the reader closes the pipe, or one line that says why there are none."""
    try:
        nvml = binding()
    except ImportError as problem:
        say({"init": None, "message": "nvidia-ml-py cannot be imported: %s" % problem})
        return
    try:
        nvml.nvmlInit()
        gpus = [sampled_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as problem:
        say({"init": problem.value, "message": str(problem)})
        return
    print_samples(nvml, gpus, every, count)


if __name__ == "__main__":
    if not sys.argv[1:]:
        driver_answers.run(once)
    driver_answers.separate_output()
    try:
        sample(float(sys.argv[1]), *map(int, sys.argv[2:]))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the reader has gone, and Python would report an error when it flushes stdout
