"""The child in which `gpusetup plan --code` traces the user's code: its start, and its answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpusetup.errors import Unsatisfiable
from gpusetup.model.codec import to_json, to_plain
from gpusetup.model.frozen import replace
from gpusetup.plan.code.answer import CodeAsked, best_batch
from gpusetup.plan.code.trace import CodeRequest, Trace, answer_of, as_traced, check, environment

SCRIPT = Path(__file__).resolve().parents[1] / "child_scripts" / "trace_code.py"
SECONDS = 120.0
"""How long a trace may take before the child is ended."""


def traced(asked: CodeAsked) -> tuple[Trace, int | None]:
    """The trace of the batch that the answer is about, and the largest batch of one GPU."""
    python = target()
    found = trace(asked.request, python=python)
    best = best_batch(found, asked)
    if not asked.solved or not best:
        return found, best
    same = next((one for one in found.traces if one.batch == best), None)
    if same is None:
        same = trace(replace(asked.request, batch=best, line=False), python=python).asked
    others = tuple(one for one in found.traces if one.batch != best)
    return replace(found, traces=(same, *others)), best


def target() -> str:
    """The interpreter that the code runs in: the contract's order."""
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    return choose_target(System()).python


def trace(
    request: CodeRequest, *, python: str | None = None, seconds: float = SECONDS, folder: str = "."
) -> Trace:
    """Trace the step in a child of `python` (None: our own interpreter), started in `folder`.

    Raises `UsageError` for a wrong question, `CodeFailed` where the code raises or asks for a GPU,
    `Unsatisfiable` where it does not end in time, `Blocked` where `python` has no torch.
    """
    from gpusetup.system.processes import run

    check(request)
    question = to_plain(as_traced(request)) | {"folder": str(Path(folder).resolve())}
    said = run(
        (python or sys.executable, str(SCRIPT)),
        timeout=seconds,
        environment=environment(os.environ),
        cwd=folder,
        stdin=to_json(question),
    )
    if said.problem:
        raise Unsatisfiable(
            f"`{request.code}` was ended: {said.problem}",
            hint="a trace computes nothing; look for a loop, a wait or a question in the code",
        )
    return answer_of(request, said.stdout, said.stderr, said.exit)
