"""Installs by conda, mamba or micromamba, where one of them has installed torch.

conda changes an environment in a transaction of its own, and each change is a revision in
`conda-meta/history`. To put the previous state back, it is told to go back to one: mamba took
`--revision` for years and did nothing (https://github.com/mamba-org/mamba/issues/803), so what has
come back is compared with what was there. `--undo` names the command and runs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked, ToolFailed
from gpusetup.install.answers import versions_after
from gpusetup.install.complaints import conda_failed
from gpusetup.install.credentials import redacted, without_logins
from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome, run_step
from gpusetup.install.proof import device_to_prove, prove
from gpusetup.install.switching.change import drop_leftovers
from gpusetup.install.switching.files import read_json_object
from gpusetup.install.switching.journal import RECEIPT, STORE, UNDO, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import (
    Receipt,
    now,
    read_receipt,
    shareable,
    write_receipt,
)
from gpusetup.install.target.find import Target
from gpusetup.install.target.in_use import User, users_of
from gpusetup.installers import INSTALLERS
from gpusetup.installers.options import InstallerOptions, packages_step
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, replace
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
        if verdict is not None and verdict["verdict"] != "passed":
            job.talk("Restoring the previous packages ...")
            if began is not None:
                step = _step_back(plan, channels, began)
                _run(job, step, "cannot restore the previous packages")
            _require_back(prefix, there)
            return Outcome(kept=False, verdict=verdict)
        (store / UNDO).unlink(missing_ok=True)
        drop_leftovers(store)
        receipt = Receipt(
            installed_at=now(),
            python=redacted(plan.python),
            backend=plan.backend,
            installer="conda",
            before=plan.before,
            after=seen(builds(prefix)),
            steps=tuple(shareable(step) for step in job.done),
            revision=began,
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


def _step_back(plan: CondaPlan, channels: tuple[str, ...], revision: int) -> Step:
    """The command that brings a revision back; conda looks for its packages in these channels."""
    named = (word for one in channels for word in ("--channel", one))
    where = ("--prefix", plan.target, *named, "--revision", str(revision))
    argv = (plan.steps[0].argv[0], "install", "--yes", *where)
    return Step(argv=argv, title=f"revision {revision}", timeout_seconds=CONDA_SECONDS)


def refuse_undo(store: Path) -> None:
    """`Blocked` with conda's own command where the last installation was conda's."""
    receipt = read_receipt(store / RECEIPT)
    if receipt is None or receipt.revision is None:
        return
    words = ("conda", "install", "--prefix", str(store.parent), "--revision", str(receipt.revision))
    raise Blocked(
        f"conda has installed torch into {store.parent}, and conda itself takes it back",
        hint=f"nothing was changed; `{own_line(*words)}` restores what was there, and removes what "
        "conda has installed since (`conda list --revisions` shows it)",
    )
