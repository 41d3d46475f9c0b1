"""Where a program runs: closed questions that the record of a cause asks."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    events,
    gpus,
    in_container,
    listed_gpus,
    on,
)
from gpusetup.model.machine import Events

Question = Callable[[RuleContext], bool]


def no(question: Question) -> Question:
    """The opposite of a question."""
    return lambda context: not question(context)


def of_system(family: str) -> Question:
    return lambda context: on(context, family)


def in_container_kind(kind: str) -> Question:
    """In this kind of container: `docker`, `podman`, `kubernetes`, `singularity`, `lxc`."""
    return lambda context: context.snapshot.container.kind == kind


def in_wsl(context: RuleContext) -> bool:
    return bool(context.os.wsl)


def on_windows_without_container(context: RuleContext) -> bool:
    """There are no kernel modules and no device nodes, and no container that is given them."""
    return on(context, "windows") and not in_container(context)


def gpu_is_listed(context: RuleContext) -> bool:
    """A driver lists a GPU."""
    return bool(listed_gpus(context))


def in_an_image_build(context: RuleContext) -> bool:
    """A step of an image's build failed: whatever the host has, there is no GPU in it."""
    return bool(events(context, "image-build"))


def in_a_hosted_notebook(context: RuleContext) -> bool:
    return bool(events(context, "hosted-notebook"))


def wsl_lists_no_gpu(context: RuleContext) -> bool:
    """A text from WSL in which no program lists a GPU, and torch may be any."""
    seen = listed_gpus(context) or events(context, "smi-sees-it", "gpu-computes")
    machine = context.snapshot
    return (
        in_wsl(context) and machine.torch.backend != "cpu" and not (seen or in_container(context))
    )


def windows_shows_no_torch(context: RuleContext) -> bool:
    """A driver that answers on Windows, where pip's own torch has no CUDA."""
    torch = context.torch
    shown = torch.cuda or "+" in (torch.version or "")
    return ON_WINDOWS(context) and not shown and driver_answers(context)


def in_a_container_without_gpu(context: RuleContext) -> bool:
    """In a container, and nothing shows that it was given a GPU."""
    container = context.snapshot.container
    # apptainer gives a GPU by --nv alone; docker may by its default runtime.
    none = container.nvidia_requested is False and container.kind == "singularity"
    given = container.nvidia_requested or driver_answers(context)
    return in_container(context) and (none or not given)


def started_without_a_gpu(context: RuleContext) -> bool:
    """A start that is shown, and gives no GPU: apptainer gives one by `--nv` alone."""
    container = context.snapshot.container
    asked_for_none = container.nvidia_requested is False or container.kind == "singularity"
    return asked_for_none and in_a_container_without_gpu(context)


def message_matches(kind: str, form: str) -> Question:
    """A message of this kind has one of these words in it."""
    return lambda context: any(
        re.search(form, (e.text or "").lower()) for e in events(context, kind)
    )


ON_LINUX, ON_WINDOWS, ON_MACOS = map(of_system, ("linux", "windows", "macos"))
IN_DOCKER, IN_PODMAN, IN_KUBERNETES = map(in_container_kind, ("docker", "podman", "kubernetes"))
IN_A_CONTAINER = in_container


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that comes to the GPU without torch."""
    from gpusetup.messages.programs import BY_NAME

    program = BY_NAME.get(context.snapshot.failing.program or "")
    return program is not None and not program.on_torch


NO_GPU_MESSAGE = "no cuda gpus are available"


def job_without_gpu(context: RuleContext) -> Events:
    """What shows a Slurm job that asked for no GPU and sees none; else nothing."""
    job = events(context, "slurm-job")
    # Slurm's own word: a GPU that the text lists is then of the whole node.
    for event in job:
        if "gave" in event.values:
            return (event,)
    # Slurm's plugin empties it in a job without a GPU.
    emptied = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES") == ""
    requests = {event.values.get("gpus") for event in job} - {
        None,
        "not shown" if emptied else None,
    }
    if not job or requests or gpus(context):
        return ()
    blind = events(context, "no-devices-found", "cuda-unavailable")
    messages = [
        e for e in blind if e.kind == "no-devices-found" or NO_GPU_MESSAGE in (e.text or "").lower()
    ]
    return (*job[:1], *messages) if messages or emptied else ()
