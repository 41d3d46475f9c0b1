"""Yes-or-no questions about where a program runs, for the records of causes."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from gpusetup.evidence.context import RuleContext, events, gpus
from gpusetup.model.machine import Events

if TYPE_CHECKING:
    from gpusetup.messages.programs import Program


def in_an_image_build(context: RuleContext) -> bool:
    """Whether the failure happened in a step of an image build, which never has a GPU."""
    return bool(events(context, "image-build"))


TORCHS_EXCEPTIONS = ("error", "OutOfMemoryError", "AcceleratorError", "DistBackendError")
"""torch's own exception classes; `error` stands for a message without a class."""


def program_of(context: RuleContext) -> Program | None:
    """The program of a text (`UNNAMED` if only its exception shows it); None if the text is not
    about a known one, or about torch itself."""
    name, failures = context.snapshot.failing.program, events(context, "program-failed")
    if name is None and not failures:
        return None
    # Import it here, because the table of programs is long and rarely needed.
    from gpusetup.messages.programs import BY_NAME, UNNAMED

    if name is not None:
        return BY_NAME.get(name)
    for failure in failures:
        exception = failure.values.get("exception", "error").rpartition(".")[2]
        # Another class, such as CuPy's `CUDADriverError`, is neither Python's nor torch's.
        if not hasattr(builtins, exception) and exception not in TORCHS_EXCEPTIONS:
            return UNNAMED
    return None


def uses_no_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that uses the GPU without torch."""
    program = program_of(context)
    return program is not None and not program.on_torch


def job_without_gpu(context: RuleContext) -> Events:
    """The events that show that a Slurm job requested no GPU and sees none; otherwise empty."""
    jobs = events(context, "slurm-job")
    # `gave`: Slurm itself reports a job without GPUs. Then a GPU that is listed in the text belongs
    # to the node and not to the job.
    if without_gpu := [event for event in jobs if "gave" in event.values]:
        return (without_gpu[0],)
    if not jobs or gpus(context):
        return ()
    # In a job without a GPU, Slurm's plugin sets CUDA_VISIBLE_DEVICES to an empty string.
    is_emptied = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES") == ""
    requests = {event.values.get("gpus") for event in jobs} - {None}
    # A text that only mentions Slurm ("not shown") may leave a request for GPUs out.
    if requests and not (requests == {"not shown"} and is_emptied):
        return ()
    messages = events(context, "no-devices-found", "cuda-unavailable")
    return (jobs[0], *messages) if messages or is_emptied else ()
