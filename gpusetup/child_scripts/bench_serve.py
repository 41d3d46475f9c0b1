"""Answers one request after the other, so that torch is imported once: for `bench.py`.

Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
from typing import Any, Callable, Dict

import torch

Answer = Dict[str, Any]
Run = Callable[[Answer], Answer]
PR_SET_PDEATHSIG = 1
LEFT_BYTES = 64 << 20
"""cuBLAS keeps workspaces of up to 32 MiB; what stays above is the user's."""


def tried(run: Run, request: Answer) -> Answer:
    """The answer, or what was raised instead."""
    try:
        return run(request)
    except BaseException as problem:
        detail = "%s: %s" % (type(problem).__name__, str(problem)[:2000])
        return {"status": "error", "detail": detail}


def in_fork(run: Callable[[], Answer]) -> Answer:
    """The answer of a fork, or how it died (its exit code, negative for a signal)."""
    parent = os.getpid()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                end_with(parent)
                json.dump(run(), file)
                file.flush()
            os._exit(0)  # at once: a driver in a bad state must not be asked to tidy up
        status = os.waitpid(pid, 0)[1]
        file.seek(0)
        with contextlib.suppress(ValueError):
            return json.load(file)  # type: ignore[no-any-return]
    gone = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {"status": "died", "exit": gone}


def end_with(parent: int) -> None:
    """Linux: the kernel ends this process with its parent."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def first_step() -> None:
    """Once for all forks: an optimizer's first step imports more, which takes seconds."""
    one = torch.zeros(1, requires_grad=True)
    one.grad = torch.zeros(1)
    torch.optim.AdamW([one]).step()


def emptied() -> bool:
    """Give back what the last request took of a GPU; whether next to nothing is left of it."""
    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_allocated()) <= LEFT_BYTES
    except Exception:  # whatever a driver in a bad state raises
        return False


def answered(run: Run, request: Answer) -> Answer:
    """On the CPU by a fork. On a GPU, which forks cannot share, by this process, until a compiled
    model, another error than the allocator's or memory that stays spoils it."""
    gpu = request.get("device") != "cpu" and torch.cuda.is_available()
    if not gpu and hasattr(os, "fork"):
        first_step()
        return in_fork(lambda: tried(run, request))
    answer = tried(run, request)
    if gpu and request.get("mode") == "devices" and answer["status"] == "ok":
        return answer
    sound = answer["status"] == "ok" or "OutOfMemoryError" in answer["detail"]
    kept = bool(request.get("compile"))
    return {**answer, "spent": not gpu or kept or not sound or not emptied()}


def serve(run: Run) -> None:
    """Answer each line, on streams that no other code reads or prints on."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for line in asked:
        answer = answered(run, json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if answer.get("spent"):
            break
