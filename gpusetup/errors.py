"""The errors that end a command, each with its exit code.

A finding describes a machine; an error ends a command. `message` says what is wrong, `hint` what to
do.
"""

from __future__ import annotations


class GpuSetupError(Exception):
    """The base of every error that ends a command on purpose; by itself a fault of our own."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """The message with the hint, so that a traceback of Python shows both."""
        if not self.hint:
            return self.message
        return f"{self.message}\nhint: {self.hint}"


class Unsatisfiable(GpuSetupError):
    """The answer is no: nothing fits, or a check failed."""

    exit_code = 1


class UsageError(GpuSetupError):
    """The question was wrong: an unknown name, a malformed or contradictory value."""

    exit_code = 2


class BadInput(UsageError):
    """A file that was named cannot be read as what it should be."""


class Blocked(GpuSetupError):
    """Something outside prevents it: the network, a disk, permissions, no target, a lock."""

    exit_code = 3


class Unreached(Blocked):
    """A package index, or the network to it, gave no usable answer."""


class ToolFailed(GpuSetupError):
    """A program we ran (uv, pip, conda) failed."""

    exit_code = 4


def own_fault(problem: Exception, hint: str | None = None) -> GpuSetupError:
    """The error for a fault of our own (exit 5)."""
    kind = type(problem).__name__
    return GpuSetupError(f"gpusetup itself failed: {kind}: {problem}", hint)


CLASSES = {kind.exit_code: kind for kind in (Unsatisfiable, UsageError, Blocked, ToolFailed)}
"""Exit code -> the error that has it."""
