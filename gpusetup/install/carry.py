"""Carries a plan out from the first fetch to the receipt; makes and takes away new environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.layout import Layout, distributions
from gpusetup.install.lock import locked
from gpusetup.install.plan import Plan
from gpusetup.install.prepare import Where, layout_of, with_rest
from gpusetup.install.room import check_room
from gpusetup.install.run import (
    Job,
    Outcome,
    fetch_all,
    make_environment,
    stoppable,
)
from gpusetup.install.switch import putting_back, switch
from gpusetup.install.transaction import STORE, Journal, begin, read_journal
from gpusetup.install.wheels import Wheel
from gpusetup.probe.system import System
from gpusetup.value import replace


def carry_out(
    job: Job, system: System, where: Where, plan: Plan, *, verify: bool
) -> tuple[Plan, Outcome]:
    """The plan as it was run in the end, and how it ended."""
    with stoppable():
        if where.venv is not None:
            return _made(job, system, where, where.venv, plan, verify=verify)
        plan, wheels = _staged(job, where, plan)
        seen = distributions(where.layout)
        store = Path(where.layout.prefix, STORE)
        with locked(store, job.say):
            job.store = store
            _as_it_was(where.layout, store, distributions(where.layout) == seen, plan)
            return plan, switch(job, plan, where.layout, wheels, verify=verify)


def _as_it_was(layout: Layout, store: Path, same: bool, plan: Plan) -> None:
    """Nobody has changed the environment while we planned and fetched."""
    found = {one.name: one.version for one in distributions(layout)}
    planned = all(found.get(name) == version for name, version in plan.before.items())
    if not (same and planned) or read_journal(store) is not None:
        raise Blocked(
            f"{layout.prefix} was changed by something else in the meantime",
            hint="nothing was changed; run this again",
        )


def _made(
    job: Job, system: System, where: Where, venv: str, plan: Plan, *, verify: bool
) -> tuple[Plan, Outcome]:
    """The same in an environment that is made for it, and taken away where it fails."""
    if plan.rest is not None:  # what can be fetched before it is made is fetched before
        fetched(job, plan.wheels)
    store, existed = Path(venv, STORE), Path(venv).is_dir()
    with locked(store, job.say):
        job.store = store
        _still_to_make(venv)
        journal = Journal(phase="making", venv=True, existed=existed)
        begin(store, journal)
        with putting_back(job, store, journal):
            make_environment(job, plan.steps[0], venv)
            layout = replace(layout_of(system, where.python), prefix=venv)
            plan, wheels = _staged(job, Where(layout=layout), plan)
        return plan, switch(job, plan, layout, wheels, verify=verify, made=journal)


def _still_to_make(venv: str) -> None:
    """Nobody has made the environment while we planned, fetched and waited: what is made here is
    taken away where it fails."""
    if any(entry.name != STORE for entry in Path(venv).iterdir()):
        raise Blocked(
            f"{venv} was made by something else in the meantime",
            hint="nothing was changed; run this again",
        )


def _staged(job: Job, where: Where, plan: Plan) -> tuple[Plan, tuple[Path, ...]]:
    """Every wheel in the wheelhouse; what the rest is, is asked once torch's wheel can tell."""
    if plan.rest is None:
        fetched(job, plan.family)
        plan = with_rest(job, where, replace(plan, venv=None))
        job.agree(plan)
    wheels = fetched(job, plan.wheels)
    check_room(where.layout, wheels, plan.before)
    return plan, wheels


def fetched(job: Job, wheels: Sequence[Wheel]) -> tuple[Path, ...]:
    with job.fetching(wheels) as progress:
        return fetch_all(job, wheels, progress)
