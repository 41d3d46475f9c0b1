"""Installs by conda, mamba or micromamba: the recipe's step, run in the environment it names.

conda changes an environment in a transaction of its own, and keeps its revisions: to put the former
state back, or to undo, conda is told to go back to one (`conda_history.py`).
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked, ToolFailed
from gpusetup.install import INSTALLERS
from gpusetup.install.conda_history import (
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
from gpusetup.install.lock import locked
from gpusetup.install.log import shared
from gpusetup.install.receipt import Receipt, shareable, write_receipt
from gpusetup.install.receipt import now as when
from gpusetup.install.run import Job, Outcome, prove, run_step, stoppable
from gpusetup.install.tools import CONDA_PROGRAMS, complaint
from gpusetup.install.transaction import CONDA_UNDO, RECEIPT, STORE, forget_undo, read_journal
from gpusetup.install.wish import Wish
from gpusetup.model import Resolution, Snapshot, Step
from gpusetup.value import Value, replace

CLEANING_SECONDS = 30.0
"""How long conda may take to roll back after a Ctrl-C."""
Records = Mapping[str, Mapping[str, Any]]

SEEN = ("pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "cuda-version")
"""What is shown of a conda environment before and after."""


class Target(Value):
    """What is changed, and how it is proven."""

    prefix: str
    python: str
    backend: str
    device: str


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
            "or use `--installer uv`",
        )
    return python.prefix


def needs_cuda_to_be_seen(
    resolution: Resolution, snapshot: Snapshot, environ: Mapping[str, str]
) -> None:
    """`Blocked` where conda's solver would refuse a CUDA build for want of `__cuda`."""
    from gpusetup.install.conda import conda_build
    from gpusetup.kernels import release

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
    wish = Wish(packages=packages, conda_prefix=prefix)
    steps = INSTALLERS["conda"](resolution, wish)
    return tuple(replace(s, argv=(program or s.argv[0], *s.argv[1:])) for s in steps)


def shown(of: Records) -> dict[str, str]:
    """Name -> version and build of what matters.

    >>> shown({"pytorch": {"version": "2.5.1", "build": "py3.11_cuda"}, "zlib": {"version": "1"}})
    {'pytorch': '2.5.1 py3.11_cuda'}
    """
    return builds({name: of[name] for name in SEEN if name in of})


def explicit(of: Records) -> str:
    """A file that names exactly these packages by their addresses.

    >>> print(explicit({"a": {"url": "https://c/a-1-0.conda", "md5": "ab"}}), end="")
    @EXPLICIT
    https://c/a-1-0.conda#ab
    """
    lines = [
        f"{record['url']}#{record['md5']}" if record.get("md5") else record["url"]
        for record in of.values()
        if record.get("url")
    ]
    return "\n".join(["@EXPLICIT", *lines]) + "\n"


def carry_out_conda(job: Job, steps: tuple[Step, ...], target: Target, *, verify: bool) -> Outcome:
    """Run the steps under the environment's lock and prove the result; where that fails, bring the
    former packages back, else note what `--undo` needs."""
    store = Path(target.prefix, STORE)
    with stoppable(), locked(store, job.say):
        job.store = store
        require_finished(store)
        former, began = records(target.prefix), revision(target.prefix)
        for step in steps:
            job.say("Installing ...")
            said = run_step(job, step, gently_seconds=CLEANING_SECONDS)
            if not said.ok:
                raise complaint("conda cannot install it", said)
        verdict = prove(job, target.python, target.device) if verify else None
        if verdict is None or verdict["verdict"] == "passed":
            receipt = _noted(job, store, target, former, began, verdict)
            return Outcome(kept=True, verdict=verdict, receipt=str(receipt))
        _put_back(job, steps[0].argv[0], target.prefix, former, began)
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
    target: Target,
    former: Records,
    began: int | None,
    verdict: Mapping[str, Any] | None,
) -> Path:
    """The receipt, and what an undo needs in place of what an earlier installation kept."""
    now = records(target.prefix)
    forget_undo(store)
    reached = revision(target.prefix)
    if job.keep and began is not None and reached not in (None, began):
        undo = CondaUndo(
            revision=began,
            reached=reached or 0,
            before=shown(former),
            after=shown(now),
            packages=builds(former),
            channels=channels_of(former),
        )
        write_undo(store, undo)
    receipt = Receipt(
        installed_at=when(),
        python=shared(target.python),
        backend=target.backend,
        installer="conda",
        before=shown(former),
        after=shown(now),
        steps=tuple(shareable(step) for step in job.done),
        verdict=None if verdict is None else {"verdict": verdict["verdict"]},
    )
    write_receipt(store / RECEIPT, receipt)
    return store / RECEIPT


def _put_back(job: Job, program: str, prefix: str, former: Records, began: int | None) -> None:
    """The former packages: by conda's own revision, else by their addresses, which leaves what is
    new. Then what is there is compared with what was."""
    job.say("Putting the former packages back ...")
    conda = conda_itself(job.environ)
    if builds(records(prefix)) == builds(former):
        return
    if conda and began is not None:
        bring_back(job, revision_step(conda, prefix, began, channels_of(former)), former)
        return
    with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
        listed = Path(folder, "former.txt")
        listed.write_text(explicit(former), encoding="utf-8")
        argv = (program, "install", "--yes", "--prefix", prefix, "--file", str(listed))
        bring_back(job, Step(argv=argv, title="the former packages"), former)


def bring_back(job: Job, step: Step, former: Records) -> None:
    """Run what brings packages back, and see that they are: `ToolFailed` names what is not."""
    prefix = step.argv[step.argv.index("--prefix") + 1]
    said = run_step(job, step, gently_seconds=CLEANING_SECONDS)
    if not said.ok:
        problem = complaint("the former packages cannot be put back", said)
        raise type(problem)(problem.message, hint=f"`{shlex.join(step.argv)}` once that is mended")
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
    with stoppable(), locked(store, job.say):
        job.store = store
        require_finished(store)
        step = undo_known(store, undo, conda_itself(job.environ))
        said = run_step(job, step, gently_seconds=CLEANING_SECONDS)
        if not said.ok:
            raise complaint("conda cannot undo it", said)
        require_back(str(store.parent), undo.packages)
        for name in (CONDA_UNDO, RECEIPT):
            (store / name).unlink(missing_ok=True)
