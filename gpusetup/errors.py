"""The errors that end a command, each with its exit code.

A finding describes a machine, while an error ends a command. `message` says what is wrong, and
`hint` says what to do.
"""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells report it: 128 and the number of SIGINT, 2."""


class GpuSetupError(Exception):
    """The base class of errors that end a command on purpose; raised itself, it means our bug."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message with the hint, so that a Python traceback shows both."""
        if not self.hint:
            return self.message
        return f"{self.message}\nhint: {self.hint}"


class Unsatisfiable(GpuSetupError):
    """A negative result: no build fits, or a check failed."""

    exit_code = 1


class UsageError(GpuSetupError):
    """The user made a mistake in the command, such as an unknown name or a malformed or
    contradictory value."""

    exit_code = 2


class BadInput(UsageError):
    """A file that the user named does not have the expected format."""


class Blocked(GpuSetupError):
    """Something outside gpusetup stops the command, such as missing permissions, a full disk, a
    missing environment or a lock."""

    exit_code = 3


class Unreached(Blocked):
    """A package index, or the network to it, gave no usable response."""


class ToolFailed(GpuSetupError):
    """A program that gpusetup ran (uv, pip, conda) failed."""

    exit_code = 4


def own_fault(problem: Exception, hint: str | None = None) -> GpuSetupError:
    """The error for a bug in gpusetup (exit code 5)."""
    kind = type(problem).__name__
    return GpuSetupError(f"gpusetup itself failed: {kind}: {problem}", hint)


CLASSES = {kind.exit_code: kind for kind in (Unsatisfiable, UsageError, Blocked, ToolFailed)}
"""Maps each exit code to its error class."""
