"""The child that computes: reads one job a line, answers one line of JSON. It alone loads torch.

What libraries print on stdout goes to stderr, so that the answers stay clean.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import queue
import sys
import threading
import time
import warnings
from typing import Any, Dict, TextIO

from .checks.memory import available_bytes
from .checks.table import function_of, named
from .device.importing import first_line
from .values import (
    FAILED,
    SKIPPED,
    After,
    Asked,
    Going,
    Outcome,
    Telling,
    WrongQuestion,
    ask_for,
    go_on,
    sticky,
    tell_progress_to,
)

BESIDE_THE_POINT = ("Failed to initialize NumPy", "TensorFloat32 tensor cores")
"""Warnings of torch that say nothing about the device: it works without NumPy, and the compiler
advises TF32."""


def main() -> int:
    """Serve jobs until the parent closes the pipe."""
    answers, questions = take_stdout(), take_stdin()
    start = json.loads(questions.readline())
    sys.path[:] = start["path"]
    ask_for(Asked(**{**start["asked"], "only": tuple(start["asked"]["only"])}))
    for text in BESIDE_THE_POINT:
        warnings.filterwarnings("ignore", text)
    if not start["verbose"]:
        logging.disable(logging.WARNING)
    end_with_parent()
    faulthandler.enable()
    for line in iter(jobs(questions).get, ""):
        job = json.loads(line)
        tell_progress_to(progress(answers, job.get("limit", 3600.0)))
        after = After(**job["after"]) if job.get("after") else None
        go_on(Going(after, time.monotonic() + job.get("whole", 3600.0)))
        limit_memory(job["device"])
        answers.write(json.dumps(served(job, start["verbose"])) + "\n")
        answers.flush()
        faulthandler.cancel_dump_traceback_later()
    return 0


def progress(answers: TextIO, limit_seconds: float) -> Telling:
    """What tells the parent where a check is; a hang leaves its stack before the parent ends it."""

    def watch() -> None:
        faulthandler.dump_traceback_later(max(1.0, limit_seconds - 2.0), exit=False)

    def tell(said: Dict[str, Any]) -> None:
        watch()
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    watch()
    return tell


def jobs(questions: TextIO) -> "queue.Queue[str]":
    """The jobs as they come; where the parent closes the pipe, the process ends at once."""
    found: "queue.Queue[str]" = queue.Queue()

    def listen() -> None:
        for line in questions:
            found.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return found


def end_with_parent() -> None:
    """On Linux the kernel ends this process with its parent, also one that was killed."""
    if sys.platform != "linux":
        return
    import ctypes
    import signal

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def take_stdin() -> TextIO:
    """The pipe from the parent; from now on stdin is empty.

    The loader's workers are forked from here and close their stdin first: that of a file in which
    another thread waits for a line would keep them for ever.
    """
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
    return questions


def take_stdout() -> TextIO:
    """The pipe to the parent; from now on file descriptor 1 is stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


MEMORY_SHARE, LEAST_MEMORY = 0.8, 3 * 2**30
"""Of what the machine has left, and so many bytes at least: what a CPU's check may take."""


def limit_memory(device: str) -> None:
    """On a CPU torch refuses what the machine does not have, before the kernel kills somebody. A
    driver maps more than any machine has: on a GPU there is no limit."""
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = most
    if device == "cpu":
        allowed = max(LEAST_MEMORY, int(MEMORY_SHARE * available_bytes()))
        allowed = allowed if most == resource.RLIM_INFINITY else min(allowed, most)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, most))


def served(job: Dict[str, Any], verbose: bool) -> Dict[str, Any]:
    """Run one check; an exception in it is a failed check, a wrong question the user's."""
    began = time.perf_counter()
    try:
        check = named(job["name"])
        if check.scratch and not has_scratch():
            outcome = Outcome(SKIPPED, "no writable temporary folder", hint=SCRATCH)
            return {"outcome": outcome._asdict(), "seconds": 0.0}
        run = function_of(check)
        if "cuda" in check.on and job["device"].startswith("cuda"):
            _make_current(job["device"])
        with warnings.catch_warnings():
            if not verbose and not any(each.startswith("host") for each in check.on):
                # Of layers and losses that are called in every way there is; of the host's checks
                # torch's warnings are the reason.
                warnings.simplefilter("ignore")
            outcome = run(job["device"])
    except WrongQuestion as wrong:  # only here is torch, which knows what there is to ask
        return {"wrong": wrong.message, "hint": wrong.hint}
    except Exception as problem:  # whatever torch raises is the check's answer
        outcome = raised(problem)
        if verbose:
            _show_trace()
    return {"outcome": outcome._asdict(), "seconds": time.perf_counter() - began}


SCRATCH = "set TMPDIR to a folder that can be written; torch's compiler is imported from there"


def has_scratch() -> bool:
    import tempfile

    try:
        tempfile.gettempdir()
    except OSError:
        return False
    return True


def _make_current(device: str) -> None:
    """What a library does without a word about a device, it does on this one."""
    import torch

    torch.cuda.set_device(device)


def raised(problem: Exception) -> Outcome:
    """The outcome of a check that ended in an exception."""
    text = str(problem)
    no_memory = "out of memory" in text
    hint = "the GPU's memory is taken: `nvidia-smi` shows by whom" if no_memory else None
    return Outcome(
        FAILED,
        first_line(problem),
        hint=hint or "`gpusetup doctor` names the cause; `-v` shows where it arose",
        spent=sticky(problem),
    )


def _show_trace() -> None:
    import traceback

    sys.stderr.write(traceback.format_exc())
