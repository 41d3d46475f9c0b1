"""Changes the environment: unpacks beside it, moves aside, renames into place, proves, keeps.

Until the first rename nothing of the environment is touched; whatever fails afterwards puts the
previous state back.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpusetup.install.complaints import not_installed
from gpusetup.install.fetching.lock import lock_text
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.plan import Plan
from gpusetup.install.proof import prove
from gpusetup.install.settings.environment import FETCHING, asking_environment
from gpusetup.install.switching.durable import sync_folders, sync_tree
from gpusetup.install.switching.files import remove
from gpusetup.install.switching.journal import (
    NEXT_RECEIPT,
    RECEIPT,
    STAGING,
    STORE,
    Journal,
)
from gpusetup.install.switching.receipt import Receipt, now, receipt_wheel, shareable, write_receipt
from gpusetup.install.switching.staged import Differs, compared
from gpusetup.install.switching.transaction import (
    begin,
    enter,
    keep,
    linked,
    move_aside,
    prepared,
    put_back,
    undo_known,
)
from gpusetup.install.target.layout import Layout
from gpusetup.model.documents import DoneStep
from gpusetup.model.finding import Step
from gpusetup.model.frozen import replace
from gpusetup.system.refused import blocked_by_files, refused
from gpusetup.system.signals import uninterrupted


def new_journal(**more: Any) -> Journal:
    return Journal(phase="staging", former=f"former-{secrets.token_hex(4)}", **more)


def switch(
    job: Job, plan: Plan, layout: Layout, *, verify: bool, made: Journal | None = None
) -> Outcome:
    """Install a plan, prove it, keep it or bring the previous state back.

    `made` is the journal of an environment that was made for this. The caller holds the lock.
    """
    journal = new_journal(keep=job.keep)
    if made is not None:
        journal = replace(journal, venv=True, existed=made.existed)
    store = Path(layout.prefix, STORE)
    begin(store, journal)
    journal = _changed(job, layout, journal, lambda: _unpacked(job, plan, layout), plan.after)
    verdict = None
    with putting_back(job, store, journal):
        if verify:
            verdict = prove(job, layout.python, plan.device, plan.after.get("torch"))
    if verdict is not None and verdict.get("verdict") != "passed":
        restore(job, store, journal)
        return Outcome(kept=False, verdict=verdict)
    with putting_back(job, store, journal):
        write_receipt(store / NEXT_RECEIPT, _receipt(job, plan, journal, verdict))
    _keep(store, journal)
    return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def undo(job: Job, layout: Layout) -> None:
    """The packages that the last installation replaced come back, by a change like any other; what
    came since stays. The caller holds the lock."""
    store = Path(layout.prefix, STORE)
    known = undo_known(store, layout)
    journal = new_journal(keep=False, undoes=True, before=known.after)
    begin(store, journal)
    journal = _changed(
        job,
        layout,
        journal,
        lambda: linked(store, known),
        known.before,
    )
    _keep(store, journal)


def _changed(
    job: Job,
    layout: Layout,
    journal: Journal,
    bring: Callable[[], dict[str, str]],
    after: Mapping[str, str],
) -> Journal:
    """What leaves is aside and what comes in its place; both on the disk."""
    store = Path(layout.prefix, STORE)
    with putting_back(job, store, journal):
        remove(store / STAGING)
        (store / STAGING).mkdir()
        targets = bring()
        sync_tree(store / STAGING)
        job.log.line("switch begins")
        journal = prepared(journal, layout, targets.values(), after)
        journal = enter(store, journal, "moving")
    with putting_back(job, store, journal):
        job.talk("Installing ...")
        move_aside(store, journal)
        journal = enter(store, journal, "installing")
        place(targets, layout.prefix)
        journal = enter(store, journal, "verifying")
        job.log.line("switch ends")
    return journal


def place(targets: Mapping[str, str], prefix: str) -> None:
    """Rename what was unpacked to where it goes; on the disk before this returns."""
    changed: set[str] = set()
    for source, target in targets.items():
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        while folder not in changed and len(folder) >= len(prefix):
            changed.add(folder)
            folder = os.path.dirname(folder)
        os.rename(source, target)
    sync_folders(changed)


# --- fetching and unpacking -----------------------------------------------------------------------


def switch_step(program: str, python: str, prefix: str, *, hashed: bool) -> Step:
    """The command that fetches and unpacks the wheels: each by its address and its hash, into a
    folder of the environment `prefix` from which they are renamed to their places once they are
    compared. `hashed`: the index names a hash of every one."""
    stage = os.path.join(prefix, STORE, STAGING)
    root, lock = os.path.join(stage, "root"), os.path.join(stage, "pylock.toml")
    options: tuple[str, ...] = ("--quiet", "--no-deps", "--no-build")
    options += ("--preview-features", "pylock", *(("--require-hashes",) if hashed else ()))
    where = ("--python", python, "--prefix", root, "-r", lock)
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.path.join(stage, "tmp"))
    return Step(
        argv=(program, "pip", "install", *options, *where),
        title="download the wheels and unpack them next to the environment",
        environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        timeout_seconds=6 * 3600.0,
    )


def venv_step(program: str, folder: str, base: str) -> Step:
    """The command that makes an environment; the store with the journal is in it already."""
    options = ("--quiet", "--no-project", "--allow-existing", "--python", base)
    argv = (program, "venv", *options, folder)
    return Step(argv=argv, title="make the environment", timeout_seconds=120.0)


def _unpacked(job: Job, plan: Plan, layout: Layout) -> dict[str, str]:
    """Everything that comes, unpacked beside the environment and compared with its lists; once more
    from the index where our cache is have changed."""
    try:
        return _unpack(job, plan, layout)
    except Differs as problem:
        job.log.line(f"{problem.message}; once more, from the index")
        environment = asking_environment(job.environ, Path.home())
        names = tuple(wheel.name for wheel in plan.wheels)
        run_step(job, Step(argv=(job.uv, "cache", "clean", *names), title=""), environment)
        return _unpack(job, plan, layout)


def _unpack(job: Job, plan: Plan, layout: Layout) -> dict[str, str]:
    folder = Path(layout.prefix, STORE, STAGING)
    remove(folder)
    (folder / "tmp").mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "pylock.toml").write_text(lock_text(plan.wheels), encoding="utf-8")
    environment = {**asking_environment(job.environ, Path.home(), layout.prefix), **FETCHING}
    if plan.index_url.startswith("http"):  # so that uv knows its login
        indexes = filter(None, (plan.index_url, environment.get("UV_INDEX")))
        environment["UV_INDEX"] = " ".join(indexes)
    with job.show_progress(plan.wheels, Path(environment["UV_CACHE_DIR"])):
        output = run_step(job, plan.steps[-1], environment)
    if not output.ok:
        raise not_installed("cannot download and unpack the wheels", output)
    return compared(folder / "root", plan.wheels, layout)


# --- the ends -------------------------------------------------------------------------------------


def _keep(store: Path, journal: Journal) -> None:
    hint = "fix that, then `gpusetup install` finishes it"
    with uninterrupted(), blocked_by_files("The new state is in place, but not kept", hint):
        keep(store, journal)


@contextmanager
def putting_back(job: Job, store: Path, journal: Journal) -> Iterator[None]:
    """Where the block fails, the previous state comes back, and the hint says so."""
    try:
        yield
    except OSError as problem:
        restore(job, store, journal)
        hint = "nothing was changed" if journal.phase == "staging" else PUT_BACK
        raise refused(problem, "", hint) from problem
    except BaseException:
        restore(job, store, journal)
        raise


PUT_BACK = "the previous state was restored"


def restore(job: Job, store: Path, journal: Journal) -> None:
    """Put the previous state back; a Ctrl-C waits until it is done."""
    if journal.venv or journal.phase != "staging":
        job.talk("Restoring the previous state ...")
    job.log.line("put back")
    hint = "fix that, then run `gpusetup install` again; nothing is lost until then"
    with uninterrupted(), blocked_by_files("Cannot restore the previous state", hint):
        put_back(store, journal)


def _receipt(job: Job, plan: Plan, journal: Journal, verdict: Mapping[str, Any] | None) -> Receipt:
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
