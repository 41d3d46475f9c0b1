"""Tests an environment by running `verify` with its own interpreter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.accelerators.makers import AMD, INTEL, maker_of
from gpusetup.install.job import InstallJob
from gpusetup.install.switching.lock import launched
from gpusetup.system.processes import Output, run

VERIFY = Path(__file__).resolve().parent.parent / "verify"


VERIFY_SECONDS = 900.0

DEVICE_OF_MAKER = {AMD.id: "auto", INTEL.id: "xpu"}
"""Maps a maker other than NVIDIA to verify's device for the maker's GPUs. torch's ROCm builds call
AMD's GPUs `cuda`, so verify finds them with `auto`."""


def prove(job: InstallJob, python: str, device: str, torch: str | None = None) -> dict[str, Any]:
    """The document that verify prints for an environment.

    `torch` is the version that verify must find, because the user's path may contain another one.
    """
    job.talk("Verifying ...")
    expected = ("--expect", f"torch=={torch}") if torch else ()
    argv = (python, str(VERIFY), "--json", "--device", device, *expected)
    return parse_verdict(run(launched(argv, job.store), timeout=VERIFY_SECONDS))


def parse_verdict(output: Output) -> dict[str, Any]:
    """The document in verify's output. If there is none, a document for a failed test that says how
    verify ended."""
    try:
        answer = json.loads(output.stdout)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("verdict") in ("passed", "failed"):
        return answer
    how = output.problem or f"ended with {output.exit} and no answer"
    detail = output.stderr.strip().rpartition("\n")[2]
    check = {
        "name": "verify",
        "device": "",
        "status": "crashed",
        "detail": f"{how} {detail}".strip(),
    }
    return {"schema": "gpusetup.verify/1", "verdict": "failed", "checks": [check]}


def torch_stays(verdict: Mapping[str, Any] | None) -> bool:
    """Whether the new torch stays: no test was requested, verify passed, or what failed was not
    seen again in a new process. That is a matter of the card (memory, heat), not of the build.

    >>> torch_stays({"verdict": "failed", "problem": "not repeatable"})
    True
    >>> torch_stays({"verdict": "failed", "problem": "wrong results"}), torch_stays(None)
    (False, True)
    """
    if verdict is None or verdict["verdict"] == "passed":
        return True
    return verdict.get("problem") == "not repeatable"


def device_to_prove(backend: str, gpus: int | None) -> str:
    """The value of verify's `--device` for testing a build. `gpus` is the number of GPUs for this
    build in the machine; None if unknown.

    Without a GPU, for example while an image is built, a CUDA build is tested without computing.
    AMD's and Intel's builds then compute on the CPU.

    >>> device_to_prove("cu124", 1), device_to_prove("cu124", 0), device_to_prove("cpu", 1)
    ('auto', 'none', 'cpu')
    >>> device_to_prove("rocm7.2", 1), device_to_prove("xpu", 2), device_to_prove("xpu", 0)
    ('auto', 'xpu', 'cpu')
    """
    device = DEVICE_OF_MAKER.get(maker_of(backend) or "")
    if device is not None:
        return device if gpus else "cpu"
    if not re.fullmatch(r"cu\d+", backend):
        return "cpu"
    return "none" if gpus == 0 else "auto"
