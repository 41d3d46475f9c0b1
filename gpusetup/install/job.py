"""The plan of an installation, what its phases share, and how a phase runs a command or a test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpusetup.accelerators.makers import AMD, INTEL, maker_of
from gpusetup.install.switching.lock import launched
from gpusetup.model.documents import DoneStep
from gpusetup.model.frozen import Frozen, Record, replace
from gpusetup.model.steps import Step
from gpusetup.system.processes import Output, run
from gpusetup.uv.program import Settings
from gpusetup.uv.question import Wheel

VERIFY = Path(__file__).resolve().parent.parent / "verify"
VERIFY_SECONDS = 900.0
"""The time limit for all of verify's checks, which may load torch from a slow network disk."""
DEVICE_OF_MAKER = {AMD.id: "auto", INTEL.id: "xpu"}
"""Maps a maker other than NVIDIA to verify's device for the maker's GPUs. torch's ROCm builds call
AMD's GPUs `cuda`, so verify finds them with `auto`."""


class Plan(Frozen):
    """Everything that an installation will do."""

    target: str
    torch_index: str
    """The URL of the index of torch and its companions. It may contain a login."""
    wheels: tuple[Wheel, ...] = ()
    hosts: tuple[str, ...] = ()
    """The hosts that uv asks for pages and files."""
    steps: tuple[Step, ...] = ()
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    """The packages that change, with their versions before and after."""
    notes: tuple[str, ...] = ()
    device: str = "auto"
    """The device that verify must test."""


class InstallJob(Record):
    """The values that the phases of one installation share."""

    talk: Callable[[str], None]
    settings: Settings = Settings()
    """The user's settings for uv, which are read when the plan is made."""
    store: Path | None = None
    """The target's store; None until its lock is held."""
    done: list[DoneStep] = []


def run_step(job: InstallJob, step: Step, environment: Mapping[str, str]) -> Output:
    """Run a command with only these variables and the step's own ones, and record it. While it
    runs, it holds the lock of the target's store, if there is one."""
    output = run(
        launched(step.argv, job.store),
        timeout=step.timeout_seconds,
        environment={**environment, **step.environment},
    )
    job.done.append(DoneStep(argv=step.argv, seconds=round(output.seconds, 3), exit=output.exit))
    # Messages and the record name the command itself, not the launcher that wraps it.
    return replace(output, argv=step.argv)


def run_verify(
    job: InstallJob, python: str, device: str, torch: str | None = None
) -> dict[str, Any]:
    """The document that verify prints for an environment, when run with its own interpreter. If it
    prints none, a document for a failed test that says how verify ended.

    `torch` is the version that verify must find, because the user's path may contain another one.
    """
    job.talk("Verifying ...")
    expected = ("--expect", f"torch=={torch}") if torch else ()
    argv = (python, str(VERIFY), "--json", "--device", device, *expected)
    output = run(launched(argv, job.store), timeout=VERIFY_SECONDS)
    try:
        answer = json.loads(output.stdout)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("verdict") in ("passed", "failed"):
        return answer
    ending = output.problem or f"ended with {output.exit} and no answer"
    # Python prints the error in the last line of a traceback.
    last_line = output.stderr.strip().rpartition("\n")[2]
    detail = f"{ending} {last_line}".strip()
    check = {"name": "verify", "device": "", "status": "crashed", "detail": detail}
    return {"schema": "gpusetup.verify/1", "verdict": "failed", "checks": [check]}


def keeps_new_torch(verdict: Mapping[str, Any] | None) -> bool:
    """Whether the new torch stays: no test was requested, verify passed, or what failed was not
    seen again in a new process. That is a matter of the card (memory, heat), not of the build.

    >>> keeps_new_torch({"verdict": "failed", "problem": "not repeatable"})
    True
    >>> keeps_new_torch({"verdict": "failed", "problem": "wrong results"}), keeps_new_torch(None)
    (False, True)
    """
    if verdict is None or verdict["verdict"] == "passed":
        return True
    return verdict.get("problem") == "not repeatable"


def device_to_verify(backend: str, gpus: int | None) -> str:
    """The value of verify's `--device` for testing a build. `gpus` is the number of GPUs for this
    build in the machine; None if unknown.

    Without a GPU, for example while an image is built, a CUDA build is tested without computing.
    AMD's and Intel's builds then compute on the CPU.

    >>> device_to_verify("cu124", 1), device_to_verify("cu124", 0), device_to_verify("cpu", 1)
    ('auto', 'none', 'cpu')
    >>> device_to_verify("rocm7.2", 1), device_to_verify("xpu", 2), device_to_verify("xpu", 0)
    ('auto', 'xpu', 'cpu')
    """
    maker = maker_of(backend)
    if maker in DEVICE_OF_MAKER:
        return "cpu" if gpus == 0 else DEVICE_OF_MAKER[maker]
    # A CPU build, or a torch of unknown backend.
    if not re.fullmatch(r"cu\d+", backend):
        return "cpu"
    return "none" if gpus == 0 else "auto"
