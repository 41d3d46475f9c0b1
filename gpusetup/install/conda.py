"""Installs by conda, mamba or micromamba, where one of them has installed torch.

conda changes an environment in a transaction of its own, and each change is a revision in
`conda-meta/history`. To put the previous state back, or to undo, conda itself is told to go back to
one: mamba took `--revision` for years and did nothing (https://github.com/mamba-org/mamba/issues/803),
so what has come back is compared with what was there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gpusetup import __version__
from gpusetup.catalog.kernels import release
from gpusetup.errors import BadInput, Blocked, ToolFailed
from gpusetup.install.answers import versions_after
from gpusetup.install.complaints import conda_failed
from gpusetup.install.credentials import redacted, without_logins
from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.proof import device_to_prove, prove
from gpusetup.install.switching.files import read_json_object, refuse_newer, write_safely
from gpusetup.install.switching.journal import (
    CONDA_UNDO,
    RECEIPT,
    STORE,
    read_journal,
    read_state,
)
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import Receipt, now, shareable, write_receipt
from gpusetup.install.switching.transaction import forget_undo
from gpusetup.install.target.find import Target
from gpusetup.install.target.in_use import User, users_of
from gpusetup.installers import INSTALLERS
from gpusetup.installers.conda import conda_build
from gpusetup.installers.options import InstallerOptions, packages_step
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import own_line
from gpusetup.system.processes import run
from gpusetup.system.signals import interruptible

PROGRAMS = ("conda", "mamba", "micromamba")
SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""
CONDA_SECONDS = 3600.0
CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""
RECORD_BYTES = 64 << 20
"""More than that no record of a package has; it lists every file."""
SEEN = ("pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "cuda-version")
"""What is shown of a conda environment before and after."""


class CondaUndo(Frozen):
    """What brings an environment back to where it was before conda installed torch."""

    schema: Literal["gpusetup.conda-undo/1"] = "gpusetup.conda-undo/1"
    gpusetup: str = __version__
    revision: int
    """The one to go back to."""
    reached: int
    """The one that the installation ended in."""
    packages: Mapping[str, str]
    """Every package that was there, to compare with what has come back."""
    channels: tuple[str, ...] = ()
    """Where they came from."""


class CondaPlan(Frozen):
    """What conda will be told to do, where, and how it is proven."""

    target: str
    python: str
    task: Task
    steps: tuple[Step, ...]
    used_by: tuple[User, ...]
    """Programs that have torch of the target loaded."""
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def why(self) -> str | None:
        return self.task.why

    @property
    def backend(self) -> str:
        build = self.task.resolution.build
        return build.backend if build else "cpu"


# --- what is there --------------------------------------------------------------------------------


def conda_program(environ: Mapping[str, str]) -> str | None:
    """The conda, mamba or micromamba of this machine; an active one's own variable first."""
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        if (named := environ.get(variable)) and Path(named).is_file():
            return named
    found = (shutil.which(name, path=environ.get("PATH")) for name in PROGRAMS)
    return next(filter(None, found), None)


def _conda_itself(environ: Mapping[str, str]) -> str | None:
    """The program conda, not one that is like it."""
    named = environ.get("CONDA_EXE")
    if named and Path(named).is_file() and Path(named).stem == "conda":
        return named
    return shutil.which("conda", path=environ.get("PATH"))


def records(prefix: str) -> dict[str, dict[str, Any]]:
    """Every package that conda has put into an environment: name -> its record."""
    found = {}
    for path in sorted(Path(prefix, "conda-meta").glob("*.json")):
        record = read_json_object(path, RECORD_BYTES) or {}
        if isinstance(record.get("name"), str) and isinstance(record.get("version"), str):
            found[record["name"]] = record
    return found


def builds(prefix: str) -> dict[str, str]:
    """Name -> version and build of every package of conda's: `2.5.1 py3.11_cuda`."""
    return {
        name: f"{one['version']} {one.get('build', '')}".strip()
        for name, one in records(prefix).items()
    }


def seen(packages: Mapping[str, str]) -> dict[str, str]:
    return {name: packages[name] for name in SEEN if name in packages}


def revision(prefix: str) -> int | None:
    """The number of an environment's last revision, from 0; None where conda keeps no history."""
    try:
        text = Path(prefix, "conda-meta", "history").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    count = len(re.findall(r"(?m)^==>\s*.+?\s*<==", text))
    return count - 1 if count else None


def channels_of(prefix: str) -> tuple[str, ...]:
    """The channels that packages came from, without a token: `https://c/conda-forge`."""
    urls = (str(one["url"]) for one in records(prefix).values() if one.get("url"))
    folders = (re.sub(r"/t/[^/]+/", "/", url).rpartition("/")[0] for url in urls)
    return tuple(dict.fromkeys(folder.rpartition("/")[0] for folder in folders))


# --- the plan -------------------------------------------------------------------------------------


def plan_by_conda(task: Task, target: Target, program: str) -> CondaPlan:
    """The plan for an environment of conda's; Blocked if it may not be changed."""
    prefix, asked = target.layout.prefix, task.asked
    target.require_changeable(task.elsewhere)
    if asked.family:
        wanted = ("torch", *asked.family, *asked.packages)
        options = InstallerOptions(packages=wanted, conda_prefix=prefix)
        steps = INSTALLERS["conda"](task.resolution, options)
    else:
        steps = (
            packages_step("conda", InstallerOptions(packages=asked.packages, conda_prefix=prefix)),
        )
    return CondaPlan(
        target=prefix,
        python=target.layout.python,
        task=task,
        steps=tuple(replace(one, argv=(program, *one.argv[1:])) for one in steps),
        used_by=users_of(target.layout.libraries),
        before=seen(builds(prefix)),
        after=versions_after(task.resolution, asked),
    )


def conda_says(plan: CondaPlan) -> str:
    """What conda itself says that it would change."""
    said = []
    for step in plan.steps:
        output = run((*step.argv, "--dry-run"), timeout=SOLVE_SECONDS, environment=os.environ)
        said.append(output.stdout.strip() or output.stderr.strip())
    return without_logins("\n".join(said))


def require_cuda_seen(plan: CondaPlan, machine: Snapshot) -> None:
    """`Blocked` where conda's solver would refuse a CUDA build for want of `__cuda`."""
    wants = conda_build(plan.task.resolution).cuda
    there = os.environ.get("CONDA_OVERRIDE_CUDA", machine.driver.cuda)
    if wants is None or (there and release(there)[0] >= release(wants)[0]):
        return
    found = f"this driver supports CUDA {there}" if there else "no driver was found here"
    raise Blocked(
        f"conda refuses a CUDA {wants} build: it needs the virtual package __cuda, and {found}",
        hint=f"in an image build, set CONDA_OVERRIDE_CUDA={wants}; otherwise fix the driver first "
        "(`gpusetup doctor`), or `--backend cpu`",
    )


# --- changing and going back ----------------------------------------------------------------------


def execute_conda(job: Job, plan: CondaPlan, *, verify: bool) -> Outcome:
    """Run the steps under the environment's lock and prove the result; if that fails, bring the
    previous packages back, else note what `--undo` needs."""
    prefix, store = plan.target, Path(plan.target, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        _require_finished(store)
        there, began = builds(prefix), revision(prefix)
        channels = channels_of(prefix)
        for step in plan.steps:
            job.talk("Installing ...")
            _run(job, step, "conda cannot install it")
        device = device_to_prove(plan.backend, plan.task.gpus_here)
        verdict = prove(job, plan.python, device) if verify else None
        reached = revision(prefix) or 0
        undo = CondaUndo(revision=began or 0, reached=reached, packages=there, channels=channels)
        if verdict is not None and verdict["verdict"] != "passed":
            job.talk("Restoring the previous packages ...")
            if began is not None and _conda_itself(job.environ):
                _run(job, _step_back(store, undo), "cannot restore the previous packages")
            _require_back(prefix, there)
            return Outcome(kept=False, verdict=verdict)
        forget_undo(store)
        if job.keep and began is not None and reached != began:
            from gpusetup.model.codec import to_json

            write_safely(store / CONDA_UNDO, to_json(undo, indent=1))
        receipt = Receipt(
            installed_at=now(),
            python=redacted(plan.python),
            backend=plan.backend,
            installer="conda",
            before=plan.before,
            after=seen(builds(prefix)),
            steps=tuple(shareable(step) for step in job.done),
            verdict=None if verdict is None else {"verdict": verdict["verdict"]},
        )
        write_receipt(store / RECEIPT, receipt)
        return Outcome(kept=True, verdict=verdict, receipt=str(store / RECEIPT))


def _run(job: Job, step: Step, title: str) -> None:
    output = run_step(job, step, gently_seconds=CLEANING_SECONDS)
    if not output.ok:
        raise conda_failed(title, output)


def _require_finished(store: Path) -> None:
    if read_journal(store) is not None:
        raise Blocked(
            f"{store.parent} was changed by another program in the meantime",
            hint="nothing was changed; run this again",
        )


def _require_back(prefix: str, wanted: Mapping[str, str]) -> None:
    """`ToolFailed` names what is not as it was."""
    found = builds(prefix)
    pairs = ((n, found.get(n, "gone"), wanted.get(n, "gone")) for n in sorted({*wanted, *found}))
    other = [f"{name} is {there}, not {then}" for name, there, then in pairs if there != then]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise ToolFailed(
            f"{prefix} is not as it was: {'; '.join(other[:3])}{more}",
            hint=f"`conda list --prefix {prefix} --revisions` shows where it was, "
            "`conda install --revision` brings it back",
        )


def read_undo(store: Path) -> CondaUndo | None:
    """What an undo by conda would go back to; None where the last installation was not conda's."""
    from gpusetup.model.codec import from_json

    path = store / CONDA_UNDO
    raw = read_state(path)
    if raw is None:
        return None
    refuse_newer(raw, "gpusetup.conda-undo/1", what=str(path))
    try:
        return from_json(raw, CondaUndo, what=str(path))
    except RecursionError as problem:
        raise BadInput(f"{path} cannot be read: it is too deep") from problem


def _step_back(store: Path, undo: CondaUndo) -> Step:
    """The command that brings a revision back; conda looks for its packages in these channels."""
    named = (word for one in undo.channels for word in ("--channel", one))
    where = ("--prefix", str(store.parent), *named, "--revision", str(undo.revision))
    argv = (_conda_itself(os.environ) or "conda", "install", "--yes", *where)
    return Step(argv=argv, title=f"revision {undo.revision}", timeout_seconds=CONDA_SECONDS)


def undo_known(store: Path, undo: CondaUndo) -> Step:
    """The command of an undo. `Blocked` where others have changed the environment since, and where
    conda is not there to run it."""
    prefix, there = str(store.parent), revision(str(store.parent))
    words = ("conda", "install", "--prefix", prefix, "--revision", str(undo.revision))
    typed = f"`{own_line(*words)}`"
    if there != undo.reached:
        raise Blocked(
            f"{prefix} has been changed by conda since: it is at revision {there}, "
            f"gpusetup left it at {undo.reached}",
            hint=f"nothing was changed; {typed} goes back, and takes the later changes with it "
            "(`conda list --revisions` shows them)",
        )
    if _conda_itself(os.environ) is None:
        raise Blocked(
            "The program conda is not found, and mamba and micromamba do not bring revisions back "
            "reliably",
            hint=f"nothing was changed; where conda is at hand, {typed} undoes it",
        )
    return _step_back(store, undo)


def undo_by_conda(job: Job, store: Path, undo: CondaUndo) -> None:
    """Go back to the revision before the installation. The caller has shown the command."""
    with interruptible(), locked(store, job.talk):
        job.store = store
        _require_finished(store)
        _run(job, undo_known(store, undo), "conda cannot undo it")
        _require_back(str(store.parent), undo.packages)
        for name in (CONDA_UNDO, RECEIPT):
            (store / name).unlink(missing_ok=True)
