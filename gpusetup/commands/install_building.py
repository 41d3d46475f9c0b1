"""`gpusetup install PACKAGE --build-from-source`: shown and asked before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.commands.install_asking import is_refused
from gpusetup.install.building.build import Build, build_all, build_text, plan_builds, with_wheels
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.render.console import Console
from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.install.decide import Task
    from gpusetup.install.job import Job
    from gpusetup.install.packages import RequestedPackages
    from gpusetup.install.request import InstallRequest
    from gpusetup.install.target.find import Target


def built(
    request: InstallRequest,
    out: Console,
    job: Job,
    target: Target,
    task: Task,
    asked: RequestedPackages,
) -> Task | int:
    """The task with the wheels that were built; the exit code where it ends before that."""
    builds = plan_builds(job, target, task, asked.packages)
    if not builds:
        return task
    text = plain(build_text(builds))
    if request.dry_run:
        out.answer(_planned(target, builds), text)
        return 0
    out.talk(text)
    if is_refused(request, out, "built"):
        return 1
    return with_wheels(task, build_all(job, target, builds))


def _planned(target: Target, builds: tuple[Build, ...]) -> InstallAnswer:
    """What would be built; the rest of the plan is known when the wheels are there."""
    return InstallAnswer(
        state="planned",
        target=target.layout.prefix,
        before={},
        after={one.source.name: one.source.version for one in builds},
        steps=tuple(DoneStep(argv=one.argv) for one in builds),
        why="; ".join(f"{one.source.name}: {one.cost}" for one in builds),
    )
