"""Calls a command from Python: checks its options and returns its document."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpusetup.commands.parser import command
from gpusetup.errors import GpuSetupError, own_fault
from gpusetup.render.console import Console, shareable

Notify = Callable[[str], object]


class Listener(Console):
    """A console that passes the messages of a command to a callback, and writes nothing to stdout
    or stderr."""

    def __init__(self, notify: Notify) -> None:
        # Do not call the base class's `__init__`, because it would change the streams of the
        # calling program.
        self.json = True
        self.color = False
        self.verbose = False
        self.output = None
        self._notify = notify

    def tell(self, text: str) -> None:
        self._notify(text)

    talk = tell


def answered(name: str, values: Mapping[str, object], notify: Notify | None = None) -> object:
    """Returns the document that a command prints for these option values.

    Raises the GpuSetupError that the command line would print, with passwords from the options
    removed from its text. For a bug in gpusetup, the error has exit code 5. Raises TypeError for a
    value of a type that its option does not accept.
    """
    module = command(name)
    listener = Listener(notify or (lambda _: None))
    try:
        question = module.QUESTION.from_python(name, values)
        ask = getattr(module, "ask_from_python", module.run)
        return _document_of(ask, question, listener)
    except GpuSetupError as problem:
        problem.message, problem.hint = shareable(problem)
        problem.args = (problem.message,)
        raise


def _document_of(ask: Callable[..., object], question: object, listener: Listener) -> object:
    """The reply's document. An unexpected exception becomes the error for a bug in gpusetup."""
    try:
        reply = ask(question, listener)
    except GpuSetupError:
        raise
    except Exception as problem:
        raise own_fault(problem, "please report it with the traceback") from problem
    return getattr(reply, "document", reply)
