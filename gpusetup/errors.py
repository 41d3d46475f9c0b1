"""What stops a job, each with its exit code.

Findings describe a machine; these end a command. `message` says what is, `hint` what to do.
"""

from __future__ import annotations


class GpuSetupError(Exception):
    """The root of everything that ends a command on purpose."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """With the way out, so that a traceback of Python shows it too."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class Unsatisfiable(GpuSetupError):
    """The answer is no: nothing fits, or a check failed."""

    exit_code = 1


class UsageError(GpuSetupError):
    """The question was wrong: an unknown name, a malformed or contradictory value."""

    exit_code = 2


class BadInput(UsageError):
    """A file that was named cannot be read as what it should be."""


class Blocked(GpuSetupError):
    """The way is blocked: network, disk, permissions, no target, a lock held."""

    exit_code = 3


class Unreached(Blocked):
    """An index, or the way to it, gave no usable answer."""


class ToolFailed(GpuSetupError):
    """A program we ran (uv, pip, conda) failed."""

    exit_code = 4


def own_fault(problem: Exception, hint: str | None = None) -> GpuSetupError:
    """A fault of our own, as what ends a command (exit 5)."""
    return GpuSetupError(f"gpusetup itself failed: {type(problem).__name__}: {problem}", hint)


CLASSES = {kind.exit_code: kind for kind in (Unsatisfiable, UsageError, Blocked, ToolFailed)}
"""Exit code -> what raises it."""
