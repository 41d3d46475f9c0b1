"""Installs by conda, mamba or micromamba: the recipe's step, run in the environment it names.

conda changes an environment in a transaction of its own, and keeps its revisions: to put the former
state back, or to undo, conda is told to go back to one (`conda_history.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked, ToolFailed
from gpusetup.install.complaints import conda_failed
from gpusetup.install.conda.history import (
    CondaUndo,
    builds,
    channels_of,
    conda_itself,
    differences,
    records,
    revision,
    revision_step,
    undo_known,
    write_undo,
)
from gpusetup.install.conda.plan import CondaPlan, Records, torch_packages
from gpusetup.install.credentials import redacted
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.proof import prove
from gpusetup.install.switching.journal import CONDA_UNDO, RECEIPT, STORE, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import Receipt, shareable, write_receipt
from gpusetup.install.switching.receipt import now as when
from gpusetup.install.switching.transaction import forget_undo
from gpusetup.model.finding import Step
from gpusetup.model.shell import own_line
from gpusetup.system.signals import interruptible

CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""


def execute_conda(job: Job, plan: CondaPlan, *, verify: bool) -> Outcome:
    """Run the steps under the environment's lock and prove the result; where that fails, bring the
    former packages back, else note what `--undo` needs."""
    store = Path(plan.prefix, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        require_finished(store)
        former, began = records(plan.prefix), revision(plan.prefix)
        for step in plan.steps:
            job.talk("Installing ...")
            output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
            if not output.ok:
                raise conda_failed("conda cannot install it", output)
        verdict = prove(job, plan.python, plan.device) if verify else None
        if verdict is None or verdict["verdict"] == "passed":
            receipt = _noted(job, store, plan, former, began, verdict)
            return Outcome(kept=True, verdict=verdict, receipt=str(receipt))
        _put_back(job, plan.prefix, former, began)
        return Outcome(kept=False, verdict=verdict)


def require_finished(store: Path) -> None:
    if read_journal(store) is not None:
        raise Blocked(
            f"{store.parent} was changed by something else in the meantime",
            hint="nothing was changed; run this again",
        )


def _noted(
    job: Job,
    store: Path,
    plan: CondaPlan,
    former: Records,
    began: int | None,
    verdict: Mapping[str, Any] | None,
) -> Path:
    """The receipt, and what an undo needs in place of what an earlier installation kept."""
    now = records(plan.prefix)
    forget_undo(store)
    reached = revision(plan.prefix)
    if job.keep and began is not None and reached not in (None, began):
        undo = CondaUndo(
            revision=began,
            reached=reached or 0,
            before=torch_packages(former),
            after=torch_packages(now),
            packages=builds(former),
            channels=channels_of(former),
        )
        write_undo(store, undo)
    receipt = Receipt(
        installed_at=when(),
        python=redacted(plan.python),
        backend=plan.backend,
        installer="conda",
        before=torch_packages(former),
        after=torch_packages(now),
        steps=tuple(shareable(step) for step in job.done),
        verdict=None if verdict is None else {"verdict": verdict["verdict"]},
    )
    write_receipt(store / RECEIPT, receipt)
    return store / RECEIPT


def _put_back(job: Job, prefix: str, former: Records, began: int | None) -> None:
    """The previous packages, by conda's own revision; then what is there is compared with what
    was. Without conda itself, what is not as it was is named."""
    job.talk("Putting the previous packages back ...")
    conda = conda_itself(job.environ)
    if conda and began is not None and builds(records(prefix)) != builds(former):
        bring_back(job, revision_step(conda, prefix, began, channels_of(former)), former)
    require_back(prefix, builds(former))


def bring_back(job: Job, step: Step, former: Records) -> None:
    """Run what brings packages back, and see that they are: `ToolFailed` names what is not."""
    prefix = step.argv[step.argv.index("--prefix") + 1]
    output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
    if not output.ok:
        problem = conda_failed("the former packages cannot be put back", output)
        raise type(problem)(problem.message, hint=f"`{own_line(*step.argv)}` once that is mended")
    require_back(prefix, builds(former))


def require_back(prefix: str, wanted: Mapping[str, str]) -> None:
    other = differences(wanted, builds(records(prefix)))
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise ToolFailed(
            f"{prefix} is not as it was: {'; '.join(other[:3])}{more}",
            hint=f"`conda list --prefix {prefix} --revisions` shows where it was, "
            "`conda install --revision` brings it back",
        )


def undo_by_conda(job: Job, store: Path, undo: CondaUndo) -> None:
    """Go back to the revision before the installation. The caller has shown the command."""
    with interruptible(), locked(store, job.talk):
        job.store = store
        require_finished(store)
        step = undo_known(store, undo, conda_itself(job.environ))
        output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
        if not output.ok:
            raise conda_failed("conda cannot undo it", output)
        require_back(str(store.parent), undo.packages)
        for name in (CONDA_UNDO, RECEIPT):
            (store / name).unlink(missing_ok=True)
