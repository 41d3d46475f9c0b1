"""Where a program runs: closed questions that the record of a cause asks."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    driver_answers,
    events,
    gpus,
    in_container,
    is_report,
    on,
)
from gpusetup.model.machine import Events

Question = Callable[[RuleContext], bool]


def no(question: Question) -> Question:
    """The contrary."""
    return lambda context: not question(context)


def of_system(family: str) -> Question:
    return lambda context: on(context, family)


def in_a(kind: str) -> Question:
    """In this kind of container: `docker`, `podman`, `kubernetes`, `singularity`, `lxc`."""
    return lambda context: context.snapshot.container.kind == kind


def in_wsl(context: RuleContext) -> bool:
    return bool(context.os.wsl)


def in_windows_itself(context: RuleContext) -> bool:
    """It has no modules of a kernel, no nodes, and no containers that are given them."""
    return on(context, "windows") and not in_container(context)


def gpu_is_listed(context: RuleContext) -> bool:
    """By the driver."""
    return bool(answering(context))


def in_a_hosted_notebook(context: RuleContext) -> bool:
    return bool(events(context, "hosted-notebook"))


def lists_none_in_wsl(context: RuleContext) -> bool:
    """A text from WSL in which no program lists a GPU, and torch may be any."""
    seen = answering(context) or events(context, "smi-sees-it", "gpu-computes")
    machine = context.snapshot
    return (
        in_wsl(context) and machine.torch.backend != "cpu" and not (seen or in_container(context))
    )


def torch_shows_no_cuda_on_windows(context: RuleContext) -> bool:
    """A driver that answers on Windows, where pip's own torch is the one without CUDA."""
    torch = context.torch
    shown = torch.cuda or "+" in (torch.version or "")
    return ON_WINDOWS(context) and not shown and driver_answers(context)


def in_a_container_without(context: RuleContext) -> bool:
    """Nothing shows that the container was given a GPU."""
    container = context.snapshot.container
    # apptainer gives a GPU by --nv alone; docker may by its default runtime.
    none = container.nvidia_requested is False and container.kind == "singularity"
    given = container.nvidia_requested or driver_answers(context)
    return in_container(context) and (none or not given)


def started_without_a_gpu(context: RuleContext) -> bool:
    """A start that is shown, and gives no GPU: apptainer gives one by `--nv` alone."""
    container = context.snapshot.container
    asked_for_none = container.nvidia_requested is False or container.kind == "singularity"
    return asked_for_none and in_a_container_without(context)


def said(kind: str, form: str) -> Question:
    """A message of this kind has one of these words in it."""
    return lambda context: any(
        re.search(form, (e.text or "").lower()) for e in events(context, kind)
    )


def by_conda(context: RuleContext) -> bool:
    """The environment is conda's."""
    return context.installer == "conda"


ON_LINUX, ON_WINDOWS, ON_MACOS = map(of_system, ("linux", "windows", "macos"))
IN_DOCKER, IN_PODMAN, IN_KUBERNETES = map(in_a, ("docker", "podman", "kubernetes"))
IN_A_CONTAINER, IN_A_TEXT = in_container, is_report


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that comes to the GPU without torch."""
    from gpusetup.messages.programs import BY_NAME

    program = BY_NAME.get(context.snapshot.failing.program or "")
    return program is not None and not program.on_torch


SAYS_NONE = "no cuda gpus are available"


def not_asked_for(context: RuleContext) -> Events:
    """What shows a Slurm job that asked for no GPU and sees none; else nothing."""
    job = events(context, "slurm-job")
    # Slurm's own word: a GPU that the text lists is then of the whole node.
    for event in job:
        if "gave" in event.values:
            return (event,)
    if not job or any(e.values.get("gpus") for e in job) or gpus(context):
        return ()
    blind = events(context, "no-devices-found", "cuda-unavailable")
    said = [e for e in blind if e.kind == "no-devices-found" or SAYS_NONE in (e.text or "").lower()]
    # Slurm's plugin empties it in a job without a GPU.
    emptied = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES") == ""
    return (*job[:1], *said) if said or emptied else ()
