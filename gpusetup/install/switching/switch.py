"""Changes the environment: unpacks beside it, moves aside, renames into place, proves, keeps.

Until the first rename nothing of the environment is touched; whatever fails afterwards puts the
former state back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.install.complaints import not_installed
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.plan import Plan
from gpusetup.install.proof import prove
from gpusetup.install.settings.environment import FETCHING, asking_environment
from gpusetup.install.switching.durable import sync_tree
from gpusetup.install.switching.kept import listed
from gpusetup.install.switching.receipt import Receipt, now, receipt_wheel, shareable, write_receipt
from gpusetup.install.switching.stage import (
    place,
    prepare_stage,
    require_installed,
    unpacked,
)
from gpusetup.install.switching.staged import Differs, Staged
from gpusetup.install.switching.state_files import first_outside
from gpusetup.install.switching.transaction import (
    NEXT_RECEIPT,
    RECEIPT,
    STORE,
    Journal,
    begin,
    continued,
    enter,
    first_journal,
    keep,
    move_aside,
    prepare,
    put_back,
)
from gpusetup.install.target.layout import Layout
from gpusetup.model.documents import DoneStep
from gpusetup.model.finding import Step
from gpusetup.system.refused import blocked_by_files, refused
from gpusetup.system.signals import uninterrupted


def switch(
    job: Job, plan: Plan, layout: Layout, *, verify: bool, made: Journal | None = None
) -> Outcome:
    """Change the environment, prove it, keep it or bring the former state back.

    `made` is the journal of an environment that was made for this. The caller holds the lock.
    """
    store = Path(layout.prefix, STORE)
    journal = first_journal(layout, keep=job.keep, made=made)
    begin(store, journal)
    with putting_back(job, store, journal):
        staged = _staged(job, plan, layout, store)
        job.log.line("switch begins")
        coming = staged.targets.values()
        ready = continued(journal, prepare(layout, plan.after, coming, plan.after))
        refuse_outside(layout, ready)
        journal = enter(store, listed(store, ready), "moving")
    with putting_back(job, store, journal):
        journal = _renamed(job, layout, journal, staged)
        job.log.line("switch ends")
        verdict = (
            prove(job, layout.python, plan.device, plan.after.get("torch")) if verify else None
        )
    if verdict is not None and verdict.get("verdict") != "passed":
        restore(job, store, journal)
        return Outcome(kept=False, verdict=verdict)
    with putting_back(job, store, journal):
        receipt = _receipt(job, plan, journal, verdict)
        write_receipt(store / NEXT_RECEIPT, receipt)
    _kept(store, journal)
    return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def _staged(job: Job, plan: Plan, layout: Layout, store: Path) -> Staged:
    """Everything that comes, unpacked beside the environment, compared, and on the disk."""
    folder = prepare_stage(store, plan.wheels)
    _unpack(job, plan, layout)
    try:
        staged = unpacked(folder, plan.wheels, layout)
    except Differs as problem:  # the cache is not what it was
        job.log.line(f"{problem.message}; once more, from the index")
        environment = asking_environment(job.environ, Path.home())
        names = tuple(wheel.name for wheel in plan.wheels)
        run_step(job, Step(argv=(job.uv, "cache", "clean", *names), title=""), environment)
        folder = prepare_stage(store, plan.wheels)
        _unpack(job, plan, layout)
        staged = unpacked(folder, plan.wheels, layout)
    sync_tree(folder)
    return staged


def refuse_outside(layout: Layout, journal: Journal) -> None:
    """`Blocked` where something would be moved or made that does not lie in the environment."""
    paths = (*journal.made, *(move.path for move in journal.moves))
    out = first_outside(layout.prefix, os.path.join(layout.prefix, STORE), paths)
    if out is not None:
        raise Blocked(
            f"{out} does not lie in {layout.prefix}: a symbolic link leads out of it",
            hint="nothing was changed; use another environment: `--venv DIR`",
        )


def _renamed(job: Job, layout: Layout, journal: Journal, staged: Staged) -> Journal:
    """What leaves is aside and what comes in its place; both on the disk."""
    store = Path(layout.prefix, STORE)
    job.talk("Installing ...")
    move_aside(store, journal)
    journal = enter(store, journal, "installing")
    place(staged.targets, layout.prefix)
    require_installed(staged.records)
    return enter(store, journal, "verifying")


def _kept(store: Path, journal: Journal) -> None:
    hint = "mend that, then `gpusetup install --recover` ends the installation"
    with uninterrupted(), blocked_by_files("The new state is there, but not kept", hint):
        keep(store, journal)


def _unpack(job: Job, plan: Plan, layout: Layout) -> None:
    environment = {**asking_environment(job.environ, Path.home(), layout.prefix), **FETCHING}
    if plan.index_url.startswith("http"):  # so that uv knows its login
        indexes = filter(None, (plan.index_url, environment.get("UV_INDEX")))
        environment["UV_INDEX"] = " ".join(indexes)
    with job.show_progress(plan.wheels, Path(environment["UV_CACHE_DIR"])):
        output = run_step(job, plan.steps[-1], environment)
    if not output.ok:
        raise not_installed("the wheels cannot be fetched and unpacked", output)


@contextmanager
def putting_back(job: Job, store: Path, journal: Journal) -> Iterator[None]:
    """Where the block fails, the former state comes back, and the hint says so."""
    try:
        yield
    except OSError as problem:
        restore(job, store, journal)
        hint = "nothing was changed" if journal.phase == "staging" else PUT_BACK
        raise refused(problem, "", hint) from problem
    except BaseException:
        restore(job, store, journal)
        raise


PUT_BACK = "the former state was put back"


def restore(job: Job, store: Path, journal: Journal) -> None:
    """Put the former state back; a Ctrl-C waits until it is done."""
    if journal.venv or journal.phase != "staging":
        job.talk("Putting the former state back ...")
    job.log.line("put back")
    hint = "mend that, then `gpusetup install --recover`; nothing is lost until then"
    with uninterrupted(), blocked_by_files("The former state could not be put back", hint):
        put_back(store, journal)


def _receipt(
    job: Job,
    plan: Plan,
    journal: Journal,
    verdict: Mapping[str, Any] | None,
) -> Receipt:
    return Receipt(
        installed_at=now(),
        python=shareable(DoneStep(argv=(plan.python,))).argv[0],
        backend=plan.choice.backend,
        installer="uv",
        before=journal.before,
        after=plan.after,
        wheels=tuple(map(receipt_wheel, plan.wheels)),
        steps=tuple(shareable(step) for step in job.done),
        verdict=None if verdict is None else {"verdict": verdict["verdict"]},
    )
