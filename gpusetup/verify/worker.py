"""The worker process that computes: reads one job per line, and answers with one line of JSON. Only
this process loads torch.

Everything that libraries print to stdout goes to stderr, so that it does not mix with the answers.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import queue
import shutil
import sys
import threading
import time
import traceback
import warnings
from typing import NoReturn, Optional, TextIO

from .checks.table import function_of, named
from .device.importing import first_line
from .judging.refusals import refuses
from .values import (
    FAILED,
    OTHER_ACCELERATORS,
    SKIPPED,
    Outcome,
    Row,
    RunOptions,
    kind,
    run_options,
    set_for_checks,
    sticky,
)


def main() -> NoReturn:
    """Run jobs until the parent closes the pipe, which ends the process (`read_jobs`)."""
    answers, questions = take_streams()
    start = json.loads(questions.readline())
    sys.path[:] = start["path"]
    # JSON turns tuples into lists, so convert them back.
    only = tuple(start["options"]["only"])
    set_for_checks(options=RunOptions(**{**start["options"], "only": only}))
    # The checks do not need NumPy, so they also run without it.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    # Silence torch's log, which is for torch's developers.
    if not start["verbose"]:
        logging.disable(logging.WARNING)
    faulthandler.enable()
    jobs = read_jobs(questions, start["folder"])
    while True:
        job = json.loads(jobs.get())
        # If a check hangs, print its stack two seconds before the parent ends the process, but not
        # in the check's first second.
        seconds_to_stack = max(1.0, job["limit"] - 2.0)

        def tell(message: Row, silence: float = seconds_to_stack) -> None:
            # Every message restarts the time limit, so the time until the stack starts again too.
            faulthandler.dump_traceback_later(silence, exit=False)
            answers.write(json.dumps(message) + "\n")
            answers.flush()

        options = run_options()._replace(in_float64=job["in_float64"])
        set_for_checks(options=options, tell=tell)
        faulthandler.dump_traceback_later(seconds_to_stack, exit=False)
        tell(answer_to(job, start["verbose"]))
        faulthandler.cancel_dump_traceback_later()


def take_streams() -> "tuple[TextIO, TextIO]":
    """The pipes from and to the parent. Afterwards, stdout goes to stderr, and stdin is empty.

    The data loader's workers are forked from here, and close their stdin first. Closing a file in
    which another thread waits for a line would block forever, so stdin is replaced.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
    return answers, questions


def read_jobs(questions: TextIO, folder: Optional[str]) -> "queue.Queue[str]":
    """The jobs as they arrive. When the parent closes the pipe, or is killed, this process deletes
    its folder of temporary files and exits, whatever the check is doing."""
    lines: "queue.Queue[str]" = queue.Queue()

    def listen() -> None:
        for line in questions:
            lines.put(line)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return lines


def answer_to(job: Row, verbose: bool) -> Row:
    """Run one check, and return its outcome, also for an exception, and its seconds."""
    began = time.perf_counter()
    try:
        check = named(job["name"])
        run = function_of(check)
        # A check of the host must not start CUDA, even if `--device` names a GPU.
        is_on_gpu = "cuda" in check.on and job["device"].startswith("cuda")
        if is_on_gpu:
            # If a call names no device, libraries use the current one.
            import torch

            torch.cuda.set_device(job["device"])
        with warnings.catch_warnings():
            # The checks call layers in unusual ways, so torch's warnings about that mean nothing.
            if not verbose:
                warnings.simplefilter("ignore")
            outcome = run(job["device"])
    except Exception as problem:  # any error that torch raises is the check's result
        outcome = outcome_of_error(problem, job["device"])
        if verbose:
            sys.stderr.write(traceback.format_exc())
    return {"outcome": outcome._asdict(), "seconds": time.perf_counter() - began}


def outcome_of_error(problem: Exception, device: str) -> Outcome:
    """The outcome of a check that raised an error: failed, or skipped if the error says nothing
    about the device."""
    # Python's error if TMPDIR, /tmp and the working folder are all read-only. Torch's compiler,
    # which some optimizers import, needs one of them.
    if "No usable temporary directory" in str(problem):
        hint = "set TMPDIR to a folder that you can write to"
        return Outcome(SKIPPED, "no writable temporary folder", hint=hint)
    # torch's backends for Intel's and Apple's GPUs lack some operators, and report that.
    if kind(device) in OTHER_ACCELERATORS and refuses(problem):
        return Outcome(SKIPPED, f"torch lacks this on {device}: {first_line(problem)}")
    hint = "`gpusetup doctor` names the cause; `-v` shows where it arose"
    # The check itself needs little memory, so other programs must be using it.
    if "out of memory" in str(problem):
        hint = "other programs use the GPU's memory: `nvidia-smi` shows which"
    return Outcome(FAILED, first_line(problem), hint=hint, spent=sticky(problem))
