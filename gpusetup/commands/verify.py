"""`gpusetup verify`: runs the package `gpusetup.verify` with the Python of the environment to test.

Its output and its exit code are passed through, so that the result is about the target's torch and
not gpusetup's own.
"""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpusetup.verify
from gpusetup.commands.common import PYTHON
from gpusetup.commands.question import CommandQuestion, option, options, switch
from gpusetup.commands.reply import Reply
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.render.console import Console
from gpusetup.verify.options import EXAMPLES, SUMMARY, add_options

if TYPE_CHECKING:
    from gpusetup.model.documents import VerifyAnswer

__all__ = ["EXAMPLES", "SUMMARY", "Question", "ask_from_python", "run"]

_PARSER = ArgumentParser(add_help=False)
add_options(_PARSER)
_ACTIONS: dict[str, Any] = {action.option_strings[0]: action for action in _PARSER._actions}
"""The options of `python -m gpusetup.verify` by flag, read from its parser."""


def _as_in_child(flag: str) -> Any:
    """An option that is defined as in verify's own parser."""
    action = _ACTIONS[flag]
    help_text = action.help
    if action.nargs == 0:  # `--strict`
        return switch(help_text, flag)
    if action.nargs == "+":  # `--only memory sdpa`
        return options(help_text, flag, action="extend", nargs="+", metavar=action.metavar)
    return option(
        help_text,
        flag,
        default=action.default,
        metavar=action.metavar,
        choices=action.choices,
        parse=action.type or str,
    )


class Question(CommandQuestion):
    python: str | None = PYTHON
    level: str = _as_in_child("--level")
    seconds: float | None = _as_in_child("--seconds")
    seed: int | None = _as_in_child("--seed")
    only: tuple[str, ...] = _as_in_child("--only")
    skip: tuple[str, ...] = _as_in_child("--skip")
    timeout: float | None = _as_in_child("--timeout")
    device: str = _as_in_child("--device")
    expect: tuple[str, ...] = _as_in_child("--expect")
    strict: bool = _as_in_child("--strict")
    junit: str | None = _as_in_child("--junit")


FOLDER = str(Path(gpusetup.verify.__file__).parent)
"""The folder of verify, which any Python can run."""


def run(question: Question, out: Console) -> Reply:
    """Run verify in a child process, which writes the answer itself, and reply with its exit code.
    A signal that asks gpusetup to end is passed on, so that verify reports what it knows."""
    from gpusetup.system.processes import foreground
    from gpusetup.system.signals import ENDING_SIGNALS, handle_signals

    python = _target(question, out)
    words = question.words(without=("python",))
    if out.json:
        words.append("--json")
    if out.verbose:
        words.append("--verbose")
    if out.output is not None:
        words.append(f"--output={out.output}")
    try:
        child = foreground((python, FOLDER, *words))
    except OSError as problem:
        raise Blocked(f"Cannot start {python}: {problem.strerror}") from problem
    # After a signal the child still writes its report, so wait for it.
    with handle_signals(
        lambda number, _: child.send_signal(number), signal.SIGINT, *ENDING_SIGNALS
    ):
        code = child.wait()
    # If a signal ended the child, the code is negative here, but 128 plus the signal in a shell.
    return Reply(exit_code=code if code >= 0 else 128 - code)


def ask_from_python(question: Question, out: Console) -> VerifyAnswer:
    """Run verify for the Python API, and return the document that the child process prints. Raises
    the error in the child's error document, or ToolFailed if the child printed no document."""
    from gpusetup.errors import CLASSES, BadInput, GpuSetupError, ToolFailed
    from gpusetup.model.codec import from_json
    from gpusetup.model.documents import ErrorAnswer, VerifyAnswer
    from gpusetup.system.processes import how_it_ended
    from gpusetup.system.processes import run as start

    python = _target(question, out)
    argv = (python, FOLDER, *question.words(without=("python",)), "--json")
    output = start(argv, timeout=float("inf"))
    if output.exit is None:
        raise Blocked(f"Cannot start {python}: {output.problem}")
    try:
        if output.exit in (0, Unsatisfiable.exit_code):
            return from_json(output.stdout, VerifyAnswer, what="the answer of verify")
        problem = from_json(output.stdout, ErrorAnswer, what="the answer of verify")
    except BadInput:
        last_line = output.stderr.strip().rpartition("\n")[2]
        ending = how_it_ended(output.exit)
        raise ToolFailed(f"verify gave no result: {ending}", hint=last_line or None) from None
    raise CLASSES.get(problem.exit, GpuSetupError)(problem.message, problem.hint)


def _target(question: Question, out: Console) -> str:
    """The path of the Python whose torch is tested."""
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System

    target = choose_target(System(), question.python)
    out.talk(f"target: {target.python} ({target.record.chosen_by})")
    return target.python
