"""Changes the environment: unpacks beside it, moves aside, renames into place, proves, keeps.

Until the first rename nothing of the environment is touched; whatever fails afterwards puts the
former state back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.install.complaints import complaint
from gpusetup.install.fetching.wheel_cache import drop_unused
from gpusetup.install.job import Job, Outcome, run_step, torch_of
from gpusetup.install.plan import Plan
from gpusetup.install.proof import prove
from gpusetup.install.switching.durable import sync_folders, sync_tree
from gpusetup.install.switching.kept import listed
from gpusetup.install.switching.receipt import Receipt, now, receipt_wheel, shareable, write_receipt
from gpusetup.install.switching.stage import (
    digest,
    place,
    prepare_stage,
    require_installed,
    unpacked,
    with_edited,
)
from gpusetup.install.switching.staged import Staged
from gpusetup.install.switching.state_files import first_outside
from gpusetup.install.switching.steps import switch_steps
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
from gpusetup.install.target.layout import Layout, distributions
from gpusetup.install.target.owned import pth_without
from gpusetup.model.documents import DoneStep
from gpusetup.system.refused import blocked_by_files, refused
from gpusetup.system.signals import uninterrupted


def switch(
    job: Job,
    plan: Plan,
    layout: Layout,
    wheels: Sequence[Path],
    *,
    verify: bool,
    made: Journal | None = None,
) -> Outcome:
    """Change the environment, prove it, keep it or bring the former state back.

    `made` is the journal of an environment that was made for this. The caller holds the lock.
    """
    store = Path(layout.prefix, STORE)
    journal = first_journal(layout, keep=job.keep, made=made)
    begin(store, journal)
    with putting_back(job, store, journal):
        staged = _staged(job, plan, layout, wheels, store)
        job.log.line("switch begins")
        coming = staged.targets.values()
        ready = continued(journal, prepare(layout, plan.after, coming, plan.after))
        refuse_outside(layout, ready)
        journal = enter(store, listed(store, ready), "moving")
    with putting_back(job, store, journal):
        journal = _renamed(job, store, journal, staged)
        job.log.line("switch ends")
        verdict = prove(job, layout.python, plan.device, torch_of(plan)) if verify else None
    if verdict is not None and verdict.get("verdict") != "passed":
        restore(job, store, journal)
        return Outcome(kept=False, verdict=verdict)
    with putting_back(job, store, journal):
        digests = [digest(*pair) for pair in zip(plan.wheels, wheels, strict=True)]
        receipt = _receipt(job, plan, journal, verdict, digests)
        write_receipt(store / NEXT_RECEIPT, receipt)
    _kept(store, journal)
    if job.owns_cache:
        for name in drop_unused(job.cache, time.time()):
            job.log.line(f"dropped from the cache: {name}")
    return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def _staged(job: Job, plan: Plan, layout: Layout, wheels: Sequence[Path], store: Path) -> Staged:
    """Everything that comes, unpacked beside the environment, compared, and on the disk."""
    folder = prepare_stage(store, plan.wheels, wheels)
    _unpack(job, layout)
    with ThreadPoolExecutor(1) as pool:  # the disk writes while we compute digests
        synced = pool.submit(sync_tree, folder)
        staged = unpacked(folder, wheels, layout)
        synced.result()
    leaving = (one for one in distributions(layout) if one.name in plan.after)
    staged = with_edited(staged, pth_without(leaving), folder)
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


def _renamed(job: Job, store: Path, journal: Journal, staged: Staged) -> Journal:
    """What leaves is aside and what comes in its place; both on the disk."""
    job.talk("Installing ...")
    move_aside(store, journal)
    journal = enter(store, journal, "installing")
    tops = (*journal.made, *(move.path for move in journal.moves))
    sync_folders(place(staged.targets, tops))
    require_installed(staged.records)
    return enter(store, journal, "verifying")


def _kept(store: Path, journal: Journal) -> None:
    hint = "mend that, then `gpusetup install --recover` ends the installation"
    with uninterrupted(), blocked_by_files("The new state is there, but not kept", hint):
        keep(store, journal)


def _unpack(job: Job, layout: Layout) -> None:
    for step in switch_steps(layout, job.uv, layout.prefix):
        job.talk("Unpacking ...")
        output = run_step(job, step)
        if not output.ok:
            raise complaint("the wheels cannot be unpacked", output)


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
    digests: Sequence[str],
) -> Receipt:
    return Receipt(
        installed_at=now(),
        python=shareable(DoneStep(argv=(plan.python,))).argv[0],
        backend=plan.choice.backend,
        installer="uv",
        before=journal.before,
        after=plan.after,
        wheels=tuple(map(receipt_wheel, plan.wheels, digests)),
        steps=tuple(shareable(step) for step in job.done),
        verdict=None if verdict is None else {"verdict": verdict["verdict"]},
    )
