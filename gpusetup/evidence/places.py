"""Where a program runs: closed questions that the record of a cause asks."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.evidence.context import RuleContext, in_container, is_report, on

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
    return bool(context.snapshot.os.wsl)


def by_conda(context: RuleContext) -> bool:
    """The environment is conda's."""
    return context.installer == "conda"


ON_LINUX, ON_WINDOWS, ON_MACOS = map(of_system, ("linux", "windows", "macos"))
IN_DOCKER, IN_PODMAN, IN_KUBERNETES = map(in_a, ("docker", "podman", "kubernetes"))
IN_A_CONTAINER, IN_A_TEXT = in_container, is_report
