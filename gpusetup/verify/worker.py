"""The child that computes: reads one job a line, answers one line of JSON. It alone loads torch.

What libraries print on stdout goes to stderr, so that the answers stay clean.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import warnings
from typing import Any, Dict, TextIO

from .checks import function_of, named
from .importing import first_line
from .values import FAILED, Asked, Outcome, ask_for

STICKY = ("CUDA error", "CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED")
"""After such an error the CUDA context of the process is gone; another process has its own."""


BESIDE_THE_POINT = ("Failed to initialize NumPy", "TensorFloat32 tensor cores")
"""Warnings of torch that say nothing about the device: it works without NumPy, and the compiler
advises TF32."""


def main() -> int:
    """Serve jobs until the parent closes the pipe."""
    answers = take_stdout()
    start = json.loads(sys.stdin.readline())
    sys.path[:] = start["path"]
    ask_for(Asked(**start["asked"]))
    for text in BESIDE_THE_POINT:
        warnings.filterwarnings("ignore", text)
    if start["verbose"]:
        faulthandler.enable()
    for line in sys.stdin:
        answers.write(json.dumps(served(json.loads(line), start["verbose"])) + "\n")
        answers.flush()
    return 0


def take_stdout() -> TextIO:
    """The pipe to the parent; from now on file descriptor 1 is stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def served(job: Dict[str, str], verbose: bool) -> Dict[str, Any]:
    """Run one check; an exception in it is a failed check."""
    began = time.perf_counter()
    try:
        check = named(job["name"])
        run = function_of(check)
        if "cuda" in check.on and job["device"].startswith("cuda"):
            _make_current(job["device"])
        outcome = run(job["device"])
    except Exception as problem:  # whatever torch raises is the check's answer
        outcome = raised(problem)
        if verbose:
            _show_trace()
    return {"outcome": outcome._asdict(), "seconds": time.perf_counter() - began}


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
        spent=any(word in text for word in STICKY),
    )


def _show_trace() -> None:
    import traceback

    sys.stderr.write(traceback.format_exc())
