"""Asks `resolve` for each companion on four machines, beside what uv answers with torch left free.

    python scripts/compare_companions.py --write companions.md
    python scripts/compare_companions.py --only vllm torchcodec --machine a100

Each cell is an answer or a reason. An answer that is older than uv's names the constraint that
holds it; one without is printed as a fault, and the exit code is 1. Your own index is asked.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpusetup.cli import main
from gpusetup.install.joint.ask import Answer, Asker, Question
from gpusetup.install.joint.places import users_places
from gpusetup.model.versions import parsed

LINUX = ("--os", "linux", "--machine", "x86_64", "--python", "3.12", "--glibc", "2.35")
MACHINES: Mapping[str, tuple[str, ...]] = {
    "rtx3050-windows": ("--from", "rtx3050-laptop"),
    "rtx5090": ("--gpu", "RTX 5090", "--driver", "580.95.05", *LINUX),
    "a100": ("--gpu", "A100 80GB", "--driver", "580.95.05", *LINUX),
    "cpu": ("--from", "no-gpu", *LINUX),
}
PLATFORMS = {"rtx3050-windows": "x86_64-pc-windows-msvc"}
COMPANIONS = (
    *("torchvision", "torchaudio", "torchcodec", "torchao", "xformers", "triton", "flash-attn"),
    *("flash-attn-4", "flashinfer-python", "sageattention", "bitsandbytes", "vllm", "sglang"),
    *("unsloth", "lmdeploy", "deepspeed", "transformer-engine", "torch-tensorrt"),
    *("torch-geometric", "causal-conv1d", "onnxruntime-gpu", "jax[cuda13]", "cupy-cuda13x"),
    *("numba-cuda", "triton-windows"),
)


class Cell(NamedTuple):
    """One companion on one machine."""

    machine: str
    package: str
    seconds: float
    version: str | None = None
    torch: str | None = None
    backend: str | None = None
    reason: str = ""
    """Why there is no answer; of an answer, what holds it back."""
    uv: str | None = None
    """What uv takes with torch free; None where it finds nothing either."""

    @property
    def is_older(self) -> bool:
        return bool(
            self.version and self.uv and parsed(_public(self.version)) < parsed(_public(self.uv))
        )

    @property
    def fault(self) -> str | None:
        """What must not be: no answer and no reason, or an older answer that nothing explains."""
        if self.version is None and not self.reason:
            return "no answer and no reason"
        if self.is_older and not self.reason:
            return f"older than uv's {self.uv}, and nothing is named that holds it"
        return None


def _public(version: str) -> str:
    return version.partition("+")[0]


def cells(machines: Sequence[str], packages: Sequence[str], asker: Asker) -> Iterator[Cell]:
    for machine in machines:
        for package in packages:
            yield cell(machine, package, asker)


def cell(machine: str, package: str, asker: Asker) -> Cell:
    began = time.monotonic()
    code, answer = asked(package, *MACHINES[machine])
    seconds = round(time.monotonic() - began, 1)
    if code or "packages" not in answer:
        return Cell(machine, package, seconds, reason=_why_not(answer))
    name = package.partition("[")[0]
    version = next(row["version"] for row in answer["packages"] if row["name"] == name)
    held = "; ".join(f"{row['package']} at {row['at']}: {row['by']}" for row in answer["held_back"])
    return Cell(
        machine=machine,
        package=package,
        seconds=seconds,
        version=version,
        torch=answer["torch"],
        backend=answer["backend"],
        reason=held,
        uv=free_version(asker, package, PLATFORMS.get(machine, "x86_64-manylinux_2_35")),
    )


def _why_not(answer: Mapping[str, Any]) -> str:
    rows = answer.get("held_back", ())
    said = "; ".join(f"only {row['package']} {row['at']}: {row['by']}" for row in rows)
    return str(answer.get("message") or said)


def asked(package: str, *machine: str) -> tuple[int, dict[str, Any]]:
    """`gpusetup resolve PACKAGE --json` in this process: its exit code and its document."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(["resolve", package, *machine, "--json"])
    found = json.loads(out.getvalue() or "{}")
    return code, found if isinstance(found, dict) else {}


def free_version(asker: Asker, package: str, platform: str) -> str | None:
    """What uv alone takes of a package beside any torch."""
    question = Question(wants=(package, "torch"), python="3.12", platform=platform)
    answer: Answer | None = asker.ask(question)
    return answer.version(package.partition("[")[0]) if answer else None


def table(found: Sequence[Cell]) -> str:
    """One row for each cell, and the count of each kind."""
    lines = ["| machine | companion | answer | s | held back by, or why not | uv, torch free |"]
    lines.append("| --- | --- | --- | ---: | --- | --- |")
    for one in found:
        answer = f"{one.version} on torch {one.torch} {one.backend}" if one.version else "-"
        reason = one.fault or one.reason.replace("|", "/").replace("\n", " ")
        row = (one.machine, one.package, answer, f"{one.seconds:g}", reason, one.uv or "-")
        lines.append(f"| {' | '.join(row)} |")
    answered = [one for one in found if one.version]
    older = [one for one in answered if one.is_older]
    faults = [one for one in found if one.fault]
    lines += [
        "",
        f"{len(found)} cells: {len(answered)} answers ({len(older)} older than uv's with torch "
        f"free), {len(found) - len(answered)} reasons, {len(faults)} faults",
    ]
    return "\n".join(lines) + "\n"


def run(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=COMPANIONS, metavar="PACKAGE")
    parser.add_argument("--machine", nargs="+", default=tuple(MACHINES), choices=MACHINES)
    parser.add_argument("--write", metavar="FILE")
    options = parser.parse_args(words)
    places = users_places(os.environ, Path.home())
    asker = Asker(places.uv, places.environment, places.cache, places.trusted)
    found = []
    for one in cells(options.machine, options.only, asker):
        found.append(one)
        answer = f"{one.version} {one.torch} {one.backend}, uv {one.uv}"
        head = f"{one.machine:16} {one.package:20} {one.seconds:6.1f} s"
        print(f"{head}  {answer}  {one.fault or one.reason}", flush=True)
    text = table(found)
    if options.write:
        Path(options.write).write_text(text, encoding="utf-8")
    print(text.splitlines()[-1])
    return 1 if any(one.fault for one in found) else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
