"""Yes-or-no questions about where a program runs, for the records of causes."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    in_container,
    listed_gpus,
    on,
)
from gpusetup.model.machine import Event, Events

Question = Callable[[RuleContext], bool]


def no(question: Question) -> Question:
    """Returns a function that negates this question."""

    def is_false(context: RuleContext) -> bool:
        return not question(context)

    return is_false


def of_system(family: str) -> Question:
    """Returns a function that checks whether the program runs on this operating system: `linux`,
    `windows` or `macos`."""

    def is_on_system(context: RuleContext) -> bool:
        return on(context, family)

    return is_on_system


def in_container_kind(kind: str) -> Question:
    """Returns a function that checks whether the program runs in this kind of container: `docker`,
    `podman`, `kubernetes`, `singularity` or `lxc`."""

    def is_in_kind(context: RuleContext) -> bool:
        return context.snapshot.container.kind == kind

    return is_in_kind


def in_wsl(context: RuleContext) -> bool:
    """Whether the program runs in the Windows Subsystem for Linux."""
    return bool(context.os.wsl)


def on_windows_without_container(context: RuleContext) -> bool:
    """Whether the program runs on Windows itself, and not in a Linux container with its kernel
    modules and device nodes."""
    return on(context, "windows") and not in_container(context)


def gpu_is_listed(context: RuleContext) -> bool:
    """Whether a driver lists a GPU."""
    return bool(listed_gpus(context))


def in_an_image_build(context: RuleContext) -> bool:
    """Whether the failure happened in a step of an image build, which never has a GPU."""
    return bool(events(context, "image-build"))


ON_LINUX, ON_WINDOWS, ON_MACOS = map(of_system, ("linux", "windows", "macos"))
IN_DOCKER, IN_PODMAN, IN_KUBERNETES = map(in_container_kind, ("docker", "podman", "kubernetes"))
IN_A_CONTAINER = in_container


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that uses the GPU without torch."""
    # Import it here, because the table of programs is long and rarely needed.
    from gpusetup.messages.programs import BY_NAME

    name = context.snapshot.failing.program
    if name is None:
        return bool(_exceptions_of_others(context))
    program = BY_NAME.get(name)
    return program is not None and not program.on_torch


TORCHS_EXCEPTIONS = ("error", "OutOfMemoryError", "AcceleratorError", "DistBackendError")
"""torch's own exception classes; `error` stands for a message without a class."""


def _exceptions_of_others(context: RuleContext) -> Events:
    """The failure events whose exception class is neither Python's nor torch's, such as CuPy's
    `CUDADriverError`."""
    foreign_failures = []
    for event in events(context, "program-failed"):
        exception = event.values.get("exception", "error")
        bare_name = exception.rpartition(".")[2]
        is_of_python = hasattr(builtins, bare_name)
        if not is_of_python and bare_name not in TORCHS_EXCEPTIONS:
            foreign_failures.append(event)
    return tuple(foreign_failures)


NO_GPU_MESSAGE = "no cuda gpus are available"


def job_without_gpu(context: RuleContext) -> Events:
    """The events that show that a Slurm job requested no GPU and sees none; otherwise empty."""
    job_events = events(context, "slurm-job")
    # If Slurm itself reports a job without GPUs, a GPU that is listed in the text belongs to the
    # node and not to the job.
    for event in job_events:
        if "gave" in event.values:
            return (event,)
    if not job_events or gpus(context):
        return ()

    # In a job without a GPU, Slurm's plugin sets CUDA_VISIBLE_DEVICES to an empty string.
    is_emptied = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES") == ""
    requests = {event.values.get("gpus") for event in job_events}
    requests.discard(None)
    if is_emptied:
        requests.discard("not shown")
    if requests:
        return ()
    messages = _messages_of_no_gpu(context)
    if not messages and not is_emptied:
        return ()
    return (job_events[0], *messages)


def _messages_of_no_gpu(context: RuleContext) -> list[Event]:
    """The messages of programs that found no GPU at all."""
    messages = []
    for event in events(context, "no-devices-found", "cuda-unavailable"):
        # `cuda-unavailable` may have other reasons, so its message must say that there is no GPU.
        finds_none = event.kind == "no-devices-found"
        if finds_none or NO_GPU_MESSAGE in (event.text or "").lower():
            messages.append(event)
    return messages
