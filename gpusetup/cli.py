"""The command line: finds the command, runs it, and turns errors into a line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from gpusetup.commands.parser import command, read_words
from gpusetup.errors import INTERRUPTED, Blocked, GpuSetupError, own_fault
from gpusetup.render.console import Console, print_in_any_encoding
from gpusetup.render.screen import set_program
from gpusetup.system.signals import endings_as_interrupt
from gpusetup.verify import streams

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""The error numbers of a disk that accepts no more data."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, as the reference page contract.md defines it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    streams.open_closed_streams()
    print_in_any_encoding()
    # Only a person in a shell is told what to type there.
    if arguments is None:
        set_program(words)
    color = "--no-color" not in words and not os.environ.get("NO_COLOR")
    out = Console(json="--json" in words, color=color)
    try:
        return _ended(words, out)
    except BrokenPipeError:
        # The program that reads our output closed the pipe. Send the rest to the null device,
        # because Python would otherwise report the failed flush when it exits.
        streams.discard(sys.stdout)
        return 0
    except streams.Unwritten as problem:
        # stdout takes no more, so the error is a line on stderr instead of a document.
        out.json = False
        return out.fail(Blocked(str(problem), hint=streams.ELSEWHERE))


def _ended(words: list[str], out: Console) -> int:
    """Run a command and report the error that ended it, unless stdout can no longer be written."""
    try:
        # A user without HOME and an entry in the password file gets `/`, as Docker sets it.
        if os.path.expanduser("~").startswith("~"):  # noqa: PTH111  # Path's import takes 3 ms
            os.environ["HOME"] = os.sep
        with endings_as_interrupt():
            return _run(words, out)
    except KeyboardInterrupt:
        out.talk("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, streams.Unwritten):
        raise
    except GpuSetupError as problem:
        return out.fail(problem)
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in NO_ROOM:
            where = problem.filename or "a temporary file"
            hint = "make room there, or name another place (TMPDIR for temporary files)"
            return out.fail(Blocked(f"Cannot write {where}: {problem.strerror}", hint=hint))
        return out.fail(own_fault(problem, "run it again with `-v` and report what it prints"))


def _run(words: list[str], out: Console) -> int:
    """Run the command that the words name and print its reply, or the help if they name none."""
    parser, options = read_words(words)
    if options.command is None:
        out.text(parser.format_help())
        return 0
    out.json, out.output, out.verbose = options.json, options.output, options.verbose
    module = command(options.command)
    question = module.Question.typed(options)
    reply = module.run(question, out)
    if reply.document is not None:
        out.answer(reply.document, reply.screen)
    elif reply.screen:
        out.text(reply.screen)
    return int(reply.exit_code)
