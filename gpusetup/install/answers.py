"""The documents that `gpusetup install --json` prints, made of what the phases have found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome
from gpusetup.install.packages import RequestedPackages, torch_family
from gpusetup.install.plan import Plan
from gpusetup.install.target.find import Target
from gpusetup.install.target.layout import distributions
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.resolution import Resolution
from gpusetup.probe.unfinished import unfinished

State = Literal["installed", "restored", "planned"]


def plan_answer(job: Job, plan: Plan, task: Task, outcome: Outcome | None = None) -> InstallAnswer:
    """A plan that is shown, or that was executed with this outcome."""
    state: State = "planned" if outcome is None else "installed" if outcome.kept else "restored"
    said = unfinished(task.machine) if outcome is None else ()
    planned = tuple(DoneStep(argv=step.argv) for step in plan.steps)
    return InstallAnswer(
        state=state,
        target=plan.target,
        before=plan.before,
        after=plan.before if state == "restored" else plan.after,
        steps=planned if outcome is None else tuple(job.done),
        verdict=outcome.verdict if outcome else None,
        receipt=outcome.receipt if outcome else None,
        why=" ".join(filter(None, (*said, task.why))) or None,
        newest=task.newest,
    )


def unchanged_answer(
    job: Job, target: Target, task: Task, verdict: Mapping[str, Any] | None
) -> InstallAnswer:
    """The target is right already."""
    family = torch_family(distributions(target.layout))
    return InstallAnswer(
        state="unchanged",
        target=target.layout.prefix,
        before=family,
        after=family,
        steps=(),
        verdict=verdict,
        why=task.why,
        newest=task.newest,
    )


def versions_after(resolution: Resolution, asked: RequestedPackages) -> dict[str, str]:
    """The torch family as a resolution would install it, by the catalog."""
    build = resolution.build
    label = f"+{build.backend}" if build and build.labelled else ""
    family = build.family(asked.family) if build else {}
    return {name: f"{version}{label}" for name, version in family.items()}
