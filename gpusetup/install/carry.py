"""Carries a plan out from the first fetch to the receipt; makes and takes away new environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusetup.install.layout import Layout
from gpusetup.install.plan import Plan
from gpusetup.install.prepare import Where, layout_of, with_rest
from gpusetup.install.run import (
    Job,
    Outcome,
    check_room,
    fetch_all,
    made_environment,
    switch,
    take_away,
)
from gpusetup.install.wheels import Wheel
from gpusetup.probe.system import System
from gpusetup.value import replace


def carry_out(
    job: Job, system: System, where: Where, plan: Plan, *, verify: bool
) -> tuple[Plan, Outcome]:
    """The plan as it was run in the end, and how it ended."""
    if where.venv is None:
        plan, wheels = _staged(job, where, plan)
        return plan, switch(job, plan, where.layout, wheels, verify=verify)
    # What can be fetched before the environment is made is fetched before.
    if plan.rest is not None:
        _fetched(job, plan.wheels)
    existed = Path(where.venv).is_dir()
    with made_environment(job, plan.steps[0], where.venv):
        layout = layout_of(system, where.python)
        plan, wheels = _staged(job, Where(layout=layout), plan)
        outcome = switch(job, plan, layout, wheels, verify=verify)
    if not outcome.kept:
        take_away(Path(where.venv), existed)
    return plan, outcome


def _staged(job: Job, where: Where, plan: Plan) -> tuple[Plan, tuple[Path, ...]]:
    """Every wheel in the wheelhouse; what the rest is, is asked once torch's wheel can tell."""
    if plan.rest is None:
        _fetched(job, plan.family)
        plan = with_rest(job, where, replace(plan, venv=None))
    wheels = _fetched(job, plan.wheels)
    _room(job, where.layout, wheels)
    return plan, wheels


def _fetched(job: Job, wheels: Sequence[Wheel]) -> tuple[Path, ...]:
    with job.fetching(wheels) as progress:
        return fetch_all(job, wheels, progress)


def _room(job: Job, layout: Layout, wheels: Sequence[Path]) -> None:
    check_room(job, layout, wheels)
