"""Runs real training steps with one setting and measures them: the trials of `gpusetup tune`.

The target interpreter runs this file by its path. Each line of standard input is a request in JSON,
and each line of standard output is its answer (what the user's code prints goes to standard error).
After an answer with `"spent": true`, the next request needs a new process. Python 3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false,
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true, "loaded": false, "workers": 4 | null}
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import sys
from typing import Any, Dict, List

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trial_memory  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trial_steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]


def run_devices(request: Answer) -> Answer:
    """The available device, its name, and how much of its memory may be used."""
    device = trial_memory.device_of(request)
    is_cuda = device.startswith("cuda")
    memory = trial_memory.memory_of(device, request)
    # GPUs older than Ampere emulate bf16, which is slow.
    is_old = is_cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {
        "status": "ok",
        "device": device,
        "limit_bytes": memory.limit,
        "name": torch.cuda.get_device_name(device) if is_cuda else "the CPU",
        "counts": memory.peak() is not None,
        "half": "fp16" if is_old else "bf16",
    }


RETURNS = (
    "the function takes the batch size (or nothing) and returns model and batch, or a dict with "
    "'model', 'batch', 'loss', 'optimizer', 'dataset'"
)
NEEDS_LOSS = "also return a loss: a function of the model's output and the target"
LONGEST_ERROR = 2000
"""The greatest length of an error message, in characters: torch's messages may list every kernel.
"""


def description(problem: BaseException) -> str:
    """An error's class and message, with a hint in the last line if we know one.

    >>> missing = steps.NoSuchFunction("there is no `a`")
    >>> description(ValueError("no data")), description(missing)
    ('ValueError: no data', 'there is no `a`')
    """
    text = str(problem)[:LONGEST_ERROR]
    if isinstance(problem, steps.NoLoss):
        return "%s\nhint: %s" % (text, NEEDS_LOSS)
    if isinstance(problem, steps.Contract):
        return "%s\nhint: %s" % (text, RETURNS)
    # Our own errors need no class name, because their messages are complete and contain a hint.
    kind = type(problem)
    is_ours = kind.__module__.startswith("gpusetup.") or isinstance(problem, steps.NoSuchFunction)
    return text if is_ours else "%s: %s" % (kind.__name__, text)


LEFT_BYTES = 64 << 20
"""How many bytes a trial may leave behind in a process that runs the next one: cuBLAS keeps
workspaces of up to 32 MiB. More than this belongs to the user's code, and would distort the next
size."""
OWN_BYTES: List[int] = []
"""The memory of the host that stays in this process after its first trial: torch and the user's
code."""


def answer_request(request: Answer) -> Answer:
    """Run a request. It is the process's last one if it would distort the next size: after a
    compiled model, an unexpected error, or a trial whose memory cannot be freed."""
    try:
        if request["mode"] == "devices":
            return run_devices(request)
        answer: Answer = trial_steps.run_steps(request)
    except BaseException as problem:
        # Any exception of the user's code, even SystemExit, is the answer.
        answer = {"status": "error", "detail": description(problem)}
    is_sound = answer["status"] == "ok" or "OutOfMemoryError" in answer["detail"]
    # The compiler does not free the memory of compiled code.
    is_reusable = is_sound and not request.get("compile")
    return {**answer, "spent": not is_reusable or left_bytes(request) > LEFT_BYTES}


def left_bytes(request: Answer) -> float:
    """Free the last trial's memory. Returns how many bytes of it are left, infinity if
    unknown."""
    gc.collect()
    if request.get("device") != "cpu" and torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return int(torch.cuda.memory_allocated())
        except Exception:  # a driver in a bad state may raise anything
            return math.inf
    with contextlib.suppress(Exception):  # only glibc has malloc_trim
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    resident = trial_memory.process_memory("VmRSS")
    if resident is None:
        return math.inf
    OWN_BYTES[:] = OWN_BYTES or [resident]
    return float(resident - OWN_BYTES[0])


def serve() -> None:
    """Answer each line of stdin, on streams that no other code can read or write."""
    requests = os.fdopen(os.dup(0), "rb")
    # If the user's code reads from stdin, it gets an empty input.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    driver_answers.separate_output(to=2)
    sys.stdout = sys.stderr
    for line in requests:
        answer = answer_request(json.loads(line))
        driver_answers.say(answer)
        if answer.get("spent"):
            break


if __name__ == "__main__":
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != HERE]
    serve()
    os._exit(0)
