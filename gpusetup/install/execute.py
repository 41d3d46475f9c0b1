"""Carries a plan out; makes and takes away new environments."""

from __future__ import annotations

from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.job import Job, Outcome, make_environment
from gpusetup.install.plan import Plan
from gpusetup.install.switching.journal import STORE, Journal, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.switch import putting_back, switch
from gpusetup.install.switching.transaction import begin
from gpusetup.install.target.find import Target, layout_of
from gpusetup.install.target.layout import Layout, distributions
from gpusetup.model.frozen import replace
from gpusetup.system.signals import interruptible
from gpusetup.system.system import System


def execute(job: Job, system: System, target: Target, plan: Plan, *, verify: bool) -> Outcome:
    """Lock, fetch and unpack, replace, prove, keep or put back; how it ended."""
    with interruptible():
        if target.venv is not None:
            return _execute_in_new(job, system, target, target.venv, plan, verify=verify)
        seen = distributions(target.layout)
        store = Path(target.layout.prefix, STORE)
        with locked(store, job.talk):
            job.store = store
            _require_unchanged(target.layout, store, distributions(target.layout) == seen, plan)
            return switch(job, plan, target.layout, verify=verify)


def _require_unchanged(layout: Layout, store: Path, same: bool, plan: Plan) -> None:
    """Nobody has changed the environment while we planned and fetched."""
    found = {one.name: one.version for one in distributions(layout)}
    planned = all(found.get(name) == version for name, version in plan.before.items())
    if not (same and planned) or read_journal(store) is not None:
        raise Blocked(
            f"{layout.prefix} was changed by another program in the meantime",
            hint="nothing was changed; run this again",
        )


def _execute_in_new(
    job: Job, system: System, target: Target, venv: str, plan: Plan, *, verify: bool
) -> Outcome:
    """The same in an environment that is made for it, and taken away where it fails."""
    store, existed = Path(venv, STORE), Path(venv).is_dir()
    with locked(store, job.talk):
        job.store = store
        _require_unmade(venv)
        journal = Journal(phase="making", venv=True, existed=existed)
        begin(store, journal)
        with putting_back(job, store, journal):
            make_environment(job, plan.steps[0], venv)
            layout = replace(layout_of(system, target.python), prefix=venv)
        return switch(job, plan, layout, verify=verify, made=journal)


def _require_unmade(venv: str) -> None:
    """Nobody has made the environment while we planned, fetched and waited: what is made here is
    taken away where it fails."""
    if any(entry.name != STORE for entry in Path(venv).iterdir()):
        raise Blocked(
            f"{venv} was created by another program in the meantime",
            hint="nothing was changed; run this again",
        )
