"""Installs by conda, mamba or micromamba: the recipe's step, run in the environment it names.

conda changes an environment in a transaction of its own. To put the former state back, the exact
packages that were there are asked for again by their addresses.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install import INSTALLERS
from gpusetup.install.run import Job, Outcome, prove, run_step
from gpusetup.install.tools import CONDA_PROGRAMS, complaint
from gpusetup.install.wish import Wish
from gpusetup.model import Resolution, Snapshot, Step
from gpusetup.value import replace

SEEN = ("pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "cuda-version")
"""What is shown of a conda environment before and after."""


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


def records(prefix: str) -> dict[str, dict[str, str]]:
    """Every package that conda has put into an environment: name -> its record."""
    found = {}
    for path in sorted(Path(prefix, "conda-meta").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found[record["name"]] = record
    return found


def shown(of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Name -> version and build of what matters.

    >>> shown({"pytorch": {"version": "2.5.1", "build": "py3.11_cuda"}, "zlib": {"version": "1"}})
    {'pytorch': '2.5.1 py3.11_cuda'}
    """
    return {
        name: f"{of[name]['version']} {of[name].get('build', '')}".strip()
        for name in SEEN
        if name in of
    }


def explicit(of: Mapping[str, Mapping[str, str]]) -> str:
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


def carry_out_conda(
    job: Job, steps: tuple[Step, ...], python: str, prefix: str, device: str, *, verify: bool
) -> Outcome:
    """Run the steps, prove the result, ask for the former packages again where it fails."""
    former = records(prefix)
    for step in steps:
        job.say("Installing ...")
        said = run_step(job, step)
        if not said.ok:
            raise complaint("conda cannot install it", said)
    verdict = prove(job, python, device) if verify else None
    if verdict is None or verdict["verdict"] == "passed":
        return Outcome(kept=True, verdict=verdict)
    _put_back(job, steps[0].argv[0], prefix, explicit(former))
    return Outcome(kept=False, verdict=verdict)


def _put_back(job: Job, program: str, prefix: str, packages: str) -> None:
    job.say("Putting the former packages back ...")
    with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
        listed = Path(folder, "former.txt")
        listed.write_text(packages, encoding="utf-8")
        argv = (program, "install", "--yes", "--prefix", prefix, "--file", str(listed))
        said = run_step(job, Step(argv=argv, title="the former packages"))
    if not said.ok:
        problem = complaint("the former packages cannot be put back", said)
        raise type(problem)(problem.message, hint=f"`{' '.join(argv[:-2])}` with the log's list")
