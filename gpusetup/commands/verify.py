"""`gpusetup verify`: runs the folder `verify/` by path with the target's interpreter.

What it prints and its exit code are passed through, so that the proof is about the target's torch
and not about ours.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.render.console import Console
from gpusetup.verify.options import EXAMPLES, SUMMARY, add_options, checked
from gpusetup.verify.values import WrongQuestion

if TYPE_CHECKING:
    from gpusetup.model.documents import VerifyAnswer
    from gpusetup.system.processes import Output

__all__ = ["EXAMPLES", "SUMMARY", "caught", "configure", "run"]


def configure(parser: ArgumentParser) -> None:
    add_shared(parser, "--python")
    add_options(parser)


def run(options: Namespace, out: Console) -> int:
    from gpusetup.verify.child import start_by_path

    python = _target(options, out)
    if not out.color:
        os.environ["NO_COLOR"] = "1"
    try:
        more = ["--json"] * out.json + ["--verbose"] * out.verbose
        more += [] if options.output is None else [f"--output={options.output}"]
        return start_by_path(python, [*passed_on(options), *more])
    except OSError as problem:
        raise Blocked(f"Cannot start {python}: {problem.strerror}") from problem


def caught(options: Namespace, out: Console) -> None:
    """The same from Python: the child's document is read, and is the answer.

    Raises what the child's error document says, and ToolFailed where it gave none.
    """
    from pathlib import Path

    import gpusetup.verify
    from gpusetup.system.processes import run as start
    from gpusetup.verify.child import GENTLY_SECONDS

    python = _target(options, out)
    argv = (python, str(Path(gpusetup.verify.__file__).parent), *passed_on(options), "--json")
    said = start(argv, timeout=float("inf"), gently_seconds=GENTLY_SECONDS)
    if said.exit is None:
        raise Blocked(f"Cannot start {python}: {said.problem}")
    out.answer(document_of(said))


def document_of(said: Output) -> VerifyAnswer:
    from gpusetup.errors import CLASSES, BadInput, GpuSetupError, ToolFailed
    from gpusetup.model.codec import from_json
    from gpusetup.model.documents import ErrorAnswer, VerifyAnswer
    from gpusetup.system.processes import how_it_ended

    try:
        if said.exit in (0, Unsatisfiable.exit_code):
            return from_json(said.stdout, VerifyAnswer, what="the answer of verify")
        problem = from_json(said.stdout, ErrorAnswer, what="the answer of verify")
    except BadInput:
        last = said.stderr.strip().rpartition("\n")[2]
        ended = how_it_ended(said.exit or 0)
        raise ToolFailed(f"verify gave no answer: {ended}", hint=last or None) from None
    raise CLASSES.get(problem.exit, GpuSetupError)(problem.message, problem.hint)


def _target(options: Namespace, out: Console) -> str:
    """The interpreter whose torch is proven. Raises UsageError for options that contradict."""
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    try:
        checked(options)
    except WrongQuestion as wrong:
        raise UsageError(wrong.message, wrong.hint) from wrong
    target = choose_target(System(), options.python)
    out.talk(f"target: {target.python} ({target.chosen_by})")
    return target.python


def passed_on(options: Namespace) -> list[str]:
    """The words that the folder's own program takes: all but those that are ours."""
    ours = ArgumentParser(add_help=False, allow_abbrev=False)
    add_shared(ours, "--python")
    ours.add_argument("--output")
    ours.add_argument("--json", action="store_true")
    return ours.parse_known_args(options.typed)[1]
