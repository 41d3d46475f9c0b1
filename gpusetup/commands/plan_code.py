"""`gpusetup plan --code`: traces one training step of the user's code in a child process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.codec import to_json, to_plain
from gpusetup.plan import code, code_trace
from gpusetup.plan.code import CodeQuestion
from gpusetup.plan.code_trace import TraceRequest
from gpusetup.plan.place import Place
from gpusetup.probe.target import choose_target
from gpusetup.render.console import Console
from gpusetup.render.plan import plan_text
from gpusetup.system.processes import run
from gpusetup.system.system import System

if TYPE_CHECKING:
    from gpusetup.commands.plan import PlanQuestion

FIRST_BATCH = 8
"""The first batch size that is traced if `--max-batch` is not given."""
SCRIPT = Path(__file__).resolve().parents[1] / "child_scripts" / "trace_code.py"
SECONDS = 120.0
"""The seconds after which the child process of a trace is stopped."""


def run_code(options: PlanQuestion, out: Console, hardware: Place) -> Reply:
    """Trace the code and plan its memory. If the code fails, `-v` shows its whole traceback."""
    question = question_of(options, hardware)
    out.talk(f"tracing one step of {options.code}...")
    try:
        traced = trace(question.request, python=target())
    except code_trace.CodeFailed as problem:
        out.debug(problem.trace)
        raise
    answer = code.code_plan(traced, question, code.largest_batch(traced, question))
    return reply(answer, plan_text, yes=answer.fits)


def question_of(options: PlanQuestion, hardware: Place) -> CodeQuestion:
    """The checked question for `--code`. Raises UsageError if options contradict each other."""
    finds_batch = options.max_batch
    batch = options.batch
    if (batch is None) != finds_batch:
        raise UsageError(
            "With `--code`, give either `--batch` or `--max-batch`",
            hint="for example `--batch 32`; `--max-batch` finds the largest batch that fits",
        )
    # `--gpu "8x H100"` names several GPUs too.
    if options.gpus not in (None, 1):
        raise UsageError(
            f"`--code` plans the step of one GPU; {options.gpus} are named",
            hint="name one GPU, and give its share of the batch",
        )
    request = TraceRequest(
        code=options.code or "",
        batch=FIRST_BATCH if batch is None else batch,
        amp=None if options.amp == "none" else options.amp,
        checkpointing=options.checkpointing not in (None, "none"),
        optimizer=options.optimizer or "adamw",
    )
    return CodeQuestion(request=request, hardware=hardware, finds_batch=finds_batch)


def target() -> str:
    """The path of the Python interpreter that runs the user's code."""
    return choose_target(System()).python


def trace(
    request: TraceRequest, *, python: str | None = None, seconds: float = SECONDS, folder: str = "."
) -> code_trace.Trace:
    """The trace of one training step. It runs in a child process of `python` (None: our own
    interpreter) that starts in `folder`.

    Raises `UsageError` for an invalid question, `CodeFailed` if the code raises an error or needs a
    GPU, `Unsatisfiable` if it does not end in time, and `Blocked` if `python` has no torch.
    """
    code_trace.check_request(request)
    question = to_plain(request) | {"folder": str(Path(folder).resolve())}
    output = run(
        (python or sys.executable, str(SCRIPT)),
        timeout=seconds,
        environment={**os.environ, **code_trace.OVERRIDES},
        cwd=folder,
        stdin=to_json(question),
    )
    if output.problem:
        raise Unsatisfiable(
            f"`{request.code}` was ended: {output.problem}",
            hint="tracing takes seconds: look for a loop, a wait or a prompt in your code",
        )
    return code_trace.read_trace(request, output.stdout, output.stderr, output.exit)
