"""Yes-or-no questions about where a program runs, for the records of causes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    in_container,
    on,
)
from gpusetup.model.machine import Events

if TYPE_CHECKING:
    from gpusetup.messages.programs import Program

Question = Callable[[RuleContext], bool]


def no(question: Question) -> Question:
    """The question's opposite."""
    return lambda context: not question(context)


def of_system(family: str) -> Question:
    """Whether the program runs on this operating system."""
    return lambda context: on(context, family)


def in_container_kind(kind: str) -> Question:
    """Whether the program runs in this kind of container."""
    return lambda context: context.snapshot.container.kind == kind


def in_an_image_build(context: RuleContext) -> bool:
    """Whether the failure happened in a step of an image build, which never has a GPU."""
    return bool(events(context, "image-build"))


ON_LINUX, ON_WINDOWS, ON_MACOS = map(of_system, ("linux", "windows", "macos"))
IN_DOCKER, IN_PODMAN, IN_KUBERNETES = map(in_container_kind, ("docker", "podman", "kubernetes"))
IN_A_CONTAINER = in_container
TORCHS_EXCEPTIONS = ("error", "OutOfMemoryError", "AcceleratorError", "DistBackendError")
"""torch's own exception classes; `error` stands for a message without a class."""


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that uses the GPU without torch."""
    # Import it here, because the table of programs is long and rarely needed.
    from gpusetup.messages.programs import BY_NAME

    name = context.snapshot.failing.program
    if name is not None:
        program = BY_NAME.get(name)
        return program is not None and not program.on_torch
    for event in events(context, "program-failed"):
        exception = event.values.get("exception", "error").rpartition(".")[2]
        # A class that is neither Python's nor torch's, such as CuPy's `CUDADriverError`.
        if not hasattr(builtins, exception) and exception not in TORCHS_EXCEPTIONS:
            return True
    return False


def program_of(context: RuleContext) -> Program | None:
    """The program of a text. Its table is loaded only if the text is about a program."""
    name = context.snapshot.failing.program
    is_unnamed = name is None and is_beside_torch(context)
    if name is None and not is_unnamed:
        return None
    from gpusetup.messages.programs import BY_NAME, UNNAMED

    return UNNAMED if name is None else BY_NAME.get(name)


def job_without_gpu(context: RuleContext) -> Events:
    """The events that show that a Slurm job requested no GPU and sees none; otherwise empty."""
    jobs = events(context, "slurm-job")
    # If Slurm itself reports a job without GPUs, a GPU that is listed in the text belongs to the
    # node and not to the job.
    for event in jobs:
        if "gave" in event.values:
            return (event,)
    if not jobs or gpus(context):
        return ()
    # In a job without a GPU, Slurm's plugin sets CUDA_VISIBLE_DEVICES to an empty string.
    is_emptied = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES") == ""
    requests = {event.values.get("gpus") for event in jobs}
    if requests - {None, "not shown" if is_emptied else None}:
        return ()
    messages = [
        event
        for event in events(context, "no-devices-found", "cuda-unavailable")
        # `cuda-unavailable` may have other reasons, so its message must say that there is no GPU.
        if event.kind == "no-devices-found"
        or "no cuda gpus are available" in (event.text or "").lower()
    ]
    return (jobs[0], *messages) if messages or is_emptied else ()
