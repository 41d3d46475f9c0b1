"""Runs real training steps with one setting and measures them: the trials of `gpusetup tune`.

The target interpreter runs this file by its path. Each line of standard input is a request in JSON,
and each line of standard output is its answer (what the user's code prints goes to standard error).
After an answer with `"spent": true`, the next request needs a new process. Python 3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw",
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true, "loaded": false, "workers": 4 | null}
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from typing import Any, Dict, Iterable, List, Optional

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import end_with_parent  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
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


# --- one request after the other, so that torch is imported once ---------------------------------

LEFT_BYTES = 64 << 20
"""How many bytes a request may leave behind in a process that takes the next request: cuBLAS keeps
workspaces of up to 32 MiB. More than this belongs to the user's code, and would distort the next
size."""


RETURNS = (
    "the function takes the batch size (or nothing) and returns model and batch, or a dict with "
    "'model', 'batch', 'loss', 'optimizer', 'dataset'"
)
NEEDS_LOSS = "also return a loss: a function of the model's output and the target"


def answer_or_error(request: Answer) -> Answer:
    """The result, or the error that was raised."""
    try:
        if request["mode"] == "devices":
            return run_devices(request)
        return trial_steps.run_steps(request)  # type: ignore[no-any-return]
    except BaseException as problem:
        # Any exception of the user's code, even SystemExit, is the answer.
        return {"status": "error", "detail": description(problem)}


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


def warm_optimizer() -> None:
    """Run an optimizer's first step before forking, because it imports modules, which takes
    seconds."""
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    # Any optimizer imports these modules.
    torch.optim.AdamW([weight]).step()


def release_gpu_memory() -> bool:
    """Free the last request's GPU memory. Returns whether almost nothing of it is left."""
    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_allocated()) <= LEFT_BYTES
    except Exception:  # a driver in a bad state may raise anything
        return False


def release_host_memory(imported_bytes: Optional[int]) -> bool:
    """Free the last request's host memory. Returns whether almost nothing of it is left."""
    gc.collect()
    with contextlib.suppress(Exception):  # only glibc has malloc_trim
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    resident = trial_memory.process_memory("VmRSS")
    if resident is None or imported_bytes is None:
        return False
    return int(resident) - imported_bytes <= LEFT_BYTES


class Fork:
    """A fork of this process that answers requests on the CPU, until a request makes it unusable.

    It imports the user's code once for all sizes. If a size runs out of memory, crashes or leaves
    memory behind, only its fork ends, and the next size gets a new one.
    """

    def __init__(self) -> None:
        parent = os.getpid()
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                # Close the parent's ends of the pipes, or the fork would wait for itself.
                os.close(self.requests)
                os.close(self.answers)
                end_with_parent.end_with(parent)
                answer_until_spoilt(os.fdopen(requests, "rb"), answers)
            os._exit(0)  # end at once, without cleanup that a driver in a bad state may not survive
        os.close(requests)
        os.close(answers)
        self.lines = os.fdopen(self.answers, "rb")

    def answer(self, request: Answer) -> Answer:
        """The fork's result, or how it died (its exit code; negative for a signal)."""
        with contextlib.suppress(OSError):  # the fork has ended already
            os.write(self.requests, json.dumps(request).encode() + b"\n")
        # An empty line means that the fork ended without an answer.
        answer_line = self.lines.readline()
        with contextlib.suppress(ValueError):
            return json.loads(answer_line)  # type: ignore[no-any-return]
        return {"status": "died", "exit": self.end()}

    def end(self) -> int:
        """Wait until the fork has ended, and return its exit code."""
        # The fork ends by itself when its pipe of requests is closed.
        os.close(self.requests)
        self.lines.close()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return -os.WTERMSIG(status)
        return os.WEXITSTATUS(status)


def answer_until_spoilt(requests: Iterable[bytes], answers: int) -> None:
    """Runs in a fork. It prints an answer for each request, and the last answer says that the fork
    ends."""
    first_bytes = None
    for line in requests:
        request = json.loads(line)
        answer = answer_or_error(request)
        imported_bytes = answer.pop("imported_bytes", None)
        # Compare every later size with the memory before the first one.
        first_bytes = first_bytes or imported_bytes
        # The compiler does not free the memory of compiled code.
        is_sound = answer["status"] == "ok" and not request.get("compile")
        answer["spent"] = not is_sound or not release_host_memory(first_bytes)
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if answer["spent"]:
            break


FORKS: List[Fork] = []
"""The fork that answers the next request; empty if the last fork can no longer be used."""


def answer_in_fork(request: Answer) -> Answer:
    """Answer the request in the existing fork or, if there is none, in a new one."""
    if not FORKS:
        FORKS.append(Fork())
    answer = FORKS[0].answer(request)
    if answer["status"] == "died":
        FORKS.clear()
    elif answer.pop("spent"):
        FORKS.pop().end()
    return answer


def answer_request(request: Answer) -> Answer:
    """Run a request. On the CPU it runs in a fork. On a GPU, which forks cannot share, it runs in
    this process, until a compiled model, an unexpected error or memory that cannot be freed makes
    the process unusable."""
    on_gpu = request.get("device") != "cpu" and torch.cuda.is_available()
    if not on_gpu and hasattr(os, "fork"):
        warm_optimizer()
        return answer_in_fork(request)
    answer = answer_or_error(request)
    answer.pop("imported_bytes", None)
    if not on_gpu:  # Windows cannot fork, and memory left by this size would distort the next
        return {**answer, "spent": True}
    ran = answer["status"] == "ok"
    if request["mode"] == "devices" and ran:
        return answer
    is_sound = ran or "OutOfMemoryError" in answer["detail"]
    is_spoilt = request.get("compile") or not is_sound
    return {**answer, "spent": is_spoilt or not release_gpu_memory()}


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
