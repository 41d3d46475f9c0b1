"""The plan of an installation by conda: the recipe's step, and what conda itself says it moves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from gpusetup.errors import Blocked
from gpusetup.install.answers import versions_after
from gpusetup.install.conda.history import builds, records
from gpusetup.install.decide import Task
from gpusetup.install.job import Job, Outcome
from gpusetup.install.proof import device_to_prove
from gpusetup.install.settings.environment import CONDA_PROGRAMS
from gpusetup.install.target.find import Target
from gpusetup.install.target.in_use import User, users_of
from gpusetup.installers import INSTALLERS
from gpusetup.installers.options import InstallerOptions, packages_step
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution
from gpusetup.system.processes import run

SOLVE_SECONDS = 600.0
"""conda's solver takes minutes on a slow disk with a fresh channel."""


class Move(Frozen):
    """One package: the version that is there, and the one to come; None where there is none."""

    name: str
    now: str | None = None
    then: str | None = None


def moves_of(steps: Iterable[Step], environment: Mapping[str, str]) -> tuple[Move, ...] | None:
    """What the steps would move in the environment; None where conda does not say."""
    found: dict[str, Move] = {}
    for step in steps:
        argv = (*step.argv, "--dry-run", "--json")
        output = run(argv, timeout=SOLVE_SECONDS, environment=environment)
        moves = planned_moves(output.stdout)
        if moves is None:
            return None
        found.update({move.name: move for move in moves})
    return tuple(found.values())


def planned_moves(text: str) -> tuple[Move, ...] | None:
    """conda's, mamba's and micromamba's plan: what is unlinked and what is linked.

    >>> text = '{"actions": {"UNLINK": [{"name": "a", "version": "1"}],'
    >>> planned_moves(text + ' "LINK": [{"name": "a", "version": "2"}]}}')
    (Move(name='a', now='1', then='2'),)
    >>> planned_moves("Killed") is None, planned_moves('{"success": true}')
    (True, ())
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or "error" in answer or answer.get("success") is False:
        return None
    leaving, coming = _versions(answer, "UNLINK"), _versions(answer, "LINK")
    names = dict.fromkeys((*leaving, *coming))
    moves = (Move(name=n, now=leaving.get(n), then=coming.get(n)) for n in names)
    return tuple(move for move in moves if move.now != move.then)


def _versions(answer: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Name -> version (and build, which tells a CUDA build from a CPU one) of one list."""
    actions = answer.get("actions")
    rows = actions.get(kind) if isinstance(actions, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            build = row.get("build_string") or row.get("build") or ""
            found[row["name"]] = f"{row.get('version')} {build}".strip()
    return found


# --- the recipe ----------------------------------------------------------------------------------


def conda_program(environ: Mapping[str, str]) -> str | None:
    """The conda, mamba or micromamba of this machine; an active one's own variable first."""
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        if (named := environ.get(variable)) and Path(named).is_file():
            return named
    found = (shutil.which(name, path=environ.get("PATH")) for name in CONDA_PROGRAMS)
    return next(filter(None, found), None)


def conda_prefix(snapshot: Snapshot) -> str:
    """The target's prefix; `Blocked` where the target is no conda environment."""
    python = snapshot.python
    if python.manager != "conda" or python.prefix is None:
        raise Blocked(
            f"{python.prefix} is no conda environment",
            hint="make and activate one (`conda create --name torch python=3.12`), "
            "or make one of your own: `gpusetup install --venv .venv`",
        )
    return python.prefix


def needs_cuda_to_be_seen(
    resolution: Resolution, snapshot: Snapshot, environ: Mapping[str, str]
) -> None:
    """`Blocked` where conda's solver would refuse a CUDA build for want of `__cuda`."""
    from gpusetup.catalog.kernels import release
    from gpusetup.installers.conda import conda_build

    wants = conda_build(resolution).cuda
    seen = environ.get("CONDA_OVERRIDE_CUDA", snapshot.driver.cuda)
    if wants is None or (seen and release(seen)[0] >= release(wants)[0]):
        return
    found = f"this driver serves CUDA {seen}" if seen else "no driver is seen here"
    raise Blocked(
        f"conda refuses a CUDA {wants} build: it needs the virtual package __cuda, and {found}",
        hint=f"in an image build, set CONDA_OVERRIDE_CUDA={wants}; else mend the driver first "
        "(`gpusetup doctor`), or `--backend cpu`",
    )


def conda_steps(
    resolution: Resolution, packages: tuple[str, ...], prefix: str, program: str | None
) -> tuple[Step, ...]:
    """The recipe's steps for an environment, by the program that is there."""
    wish = InstallerOptions(packages=packages, conda_prefix=prefix)
    steps = INSTALLERS["conda"](resolution, wish)
    return tuple(replace(s, argv=(program or s.argv[0], *s.argv[1:])) for s in steps)


SEEN = ("pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "cuda-version")
"""What is shown of a conda environment before and after."""


def torch_packages(of: Records) -> dict[str, str]:
    """Name -> version and build of what matters.

    >>> pytorch = {"version": "2.5.1", "build": "py3.11_cuda"}
    >>> torch_packages({"pytorch": pytorch, "zlib": {"version": "1"}})
    {'pytorch': '2.5.1 py3.11_cuda'}
    """
    return builds({name: of[name] for name in SEEN if name in of})


Records = Mapping[str, Mapping[str, Any]]


class CondaPlan(Frozen):
    """What conda will be told to do, where, and how it is proven."""

    prefix: str
    python: str
    program: str | None
    """conda, mamba or micromamba; None where none is found."""
    task: Task
    steps: tuple[Step, ...]
    used_by: tuple[User, ...]
    """Programs that have torch of the target loaded."""
    before: Mapping[str, str]

    @property
    def backend(self) -> str:
        build = self.task.resolution.build
        return build.backend if build else "cpu"

    @property
    def device(self) -> str:
        """What verify is told to prove."""
        return device_to_prove(self.backend, self.task.gpus_here)


def plan_by_conda(task: Task, target: Target, machine: Snapshot) -> CondaPlan:
    """The plan for an environment of conda's; Blocked where it may not be changed."""
    prefix, program = conda_prefix(machine), conda_program(os.environ)
    if not task.is_done:
        target.require_changeable(task.elsewhere)
    return CondaPlan(
        prefix=prefix,
        python=machine.python.executable or str(Path(prefix, "bin", "python")),
        program=program,
        task=task,
        steps=() if task.is_done else _steps(task, prefix, program),
        used_by=users_of(target.layout.libraries),
        before=torch_packages(records(prefix)),
    )


def _steps(task: Task, prefix: str, program: str | None) -> tuple[Step, ...]:
    """The recipe; where torch stays and no companion is wanted, the packages alone."""
    asked = task.asked
    if asked.family:
        family = ("torch", *(name for name in asked.family if name != "torch"))
        return conda_steps(task.resolution, (*family, *asked.packages), prefix, program)
    options = InstallerOptions(packages=asked.packages, conda_prefix=prefix)
    step = packages_step("conda", options)
    return (replace(step, argv=(program or "conda", *step.argv[1:])),)


def moves(plan: CondaPlan) -> tuple[Move, ...] | None:
    """What conda would change, by its own plan; () where there is no conda to ask."""
    return moves_of(plan.steps, os.environ) if plan.program else ()


def require_runnable(plan: CondaPlan, machine: Snapshot) -> None:
    """`Blocked` where no conda is there, and where its solver would refuse the build."""
    if plan.program is None:
        raise Blocked(
            "Neither conda nor mamba nor micromamba is found on PATH",
            hint="activate it, or `gpusetup install --venv .venv`; `--dry-run` shows the recipe",
        )
    needs_cuda_to_be_seen(plan.task.resolution, machine, os.environ)


def conda_answer(
    job: Job, plan: CondaPlan, state: Literal["planned", "unchanged"]
) -> InstallAnswer:
    """The plan as a document."""
    task = plan.task
    unchanged = state == "unchanged"
    return InstallAnswer(
        state=state,
        target=plan.prefix,
        before=plan.before,
        after=plan.before if unchanged else versions_after(task.resolution, task.asked),
        steps=tuple(DoneStep(argv=step.argv) for step in plan.steps),
        log=str(job.log.path),
        why=task.why if unchanged else None,
        newest=task.newest if unchanged else None,
    )


def executed_answer(job: Job, plan: CondaPlan, outcome: Outcome) -> InstallAnswer:
    """What conda did, and how it ended."""
    return InstallAnswer(
        state="installed" if outcome.kept else "restored",
        target=plan.prefix,
        before=plan.before,
        after=torch_packages(records(plan.prefix)),
        steps=tuple(job.done),
        verdict=outcome.verdict,
        receipt=outcome.receipt,
        log=str(job.log.path),
    )
