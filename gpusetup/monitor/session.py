"""One run of the monitor: samples from a source, with a command's processes beside them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import Sample
from gpusetup.monitor.nvml import PATIENCE_SECONDS, Nvml, SourceEnded
from gpusetup.system.processes import foreground

if TYPE_CHECKING:
    from gpusetup.monitor.host import ProcessTree

Say = Callable[[str], None]
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a shell for a command that is not there, or that may not run."""
POLL_SECONDS = 0.05
"""How often it is asked whether the command has ended."""
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
SENT_BY_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
"""Those that a terminal sends to the command too."""


class NotStarted(GpuSetupError):
    """The command cannot be started; the exit code is a shell's."""

    def __init__(self, name: str, problem: OSError) -> None:
        missing = isinstance(problem, FileNotFoundError | NotADirectoryError)
        reason = "command not found" if missing else problem.strerror or str(problem)
        super().__init__(f"{name}: {reason}")
        self.exit_code = NOT_FOUND if missing else NOT_RUNNABLE


class Command:
    """Somebody's command with our terminal; signals that only we get are passed on."""

    def __init__(self, argv: Sequence[str], *, stdout: int | None = None) -> None:
        try:
            self._child = foreground(argv, stdout=stdout)
        except OSError as problem:
            raise NotStarted(argv[0], problem) from problem
        self._old = {number: signal.signal(number, self._forward) for number in _numbers(FORWARDED)}
        self.tree: ProcessTree | None = None

    def watch_tree(self) -> None:
        """Sample its processes from now on; one that has ended already has none."""
        from gpusetup.monitor.host import ProcessTree, or_none

        self.tree = or_none(ProcessTree, self._child.pid)

    def _forward(self, number: int, frame: object) -> None:
        if number in _numbers(SENT_BY_TERMINAL) and _has_terminal():
            return
        self._child.send_signal(number)

    @property
    def ended(self) -> bool:
        return self._child.poll() is not None

    def exit_code(self) -> int:
        """Wait for its end; 128 + n where a signal n ended it, as a shell has it."""
        code = self._child.wait()
        for number, handler in self._old.items():
            signal.signal(number, handler)
        return 128 - code if code < 0 else code


def _numbers(names: Sequence[str]) -> tuple[signal.Signals, ...]:
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def _has_terminal() -> bool:
    """Whether we are in a terminal's foreground, which then tells the command by itself, as
    Windows' console always does."""
    if os.name == "nt":
        return True
    for stream in (0, 1, 2):
        try:
            return os.tcgetpgrp(stream) == os.getpgrp()
        except (OSError, AttributeError):
            continue
    return False


def watch(
    source: Nvml,
    say: Say,
    *,
    seconds: float = 0.0,
    patience: float = PATIENCE_SECONDS,
    tree: ProcessTree | None = None,
    command: Command | None = None,
) -> Iterator[Sample]:
    """Samples until the time is over, the source ends, or Ctrl-C; one may be so late.

    `tree`: processes that are watched too; when they, or the command, are gone the watching ends.
    """
    from gpusetup.monitor.host import Host

    if command is not None:
        command.watch_tree()
        tree = command.tree
    host, began = Host(), time.monotonic()
    last_sample_at = began
    while not (command and command.ended):
        now = time.monotonic()
        left = began + seconds - now if seconds else patience
        if left <= 0:
            return
        try:
            sample = source.next(min(left, POLL_SECONDS if command else patience))
            last_sample_at = time.monotonic()
        except TimeoutError:
            if time.monotonic() - last_sample_at >= patience:
                say(f"no sample in {patience:g} s: the driver does not answer any more")
                return
            continue
        except SourceEnded as end:
            say(str(end))
            return
        pids = frozenset(p.pid for gpu in sample.gpus for p in gpu.processes or ())
        tree_sample = tree.sample(pids) if tree else None
        if tree is not None and tree_sample is None and command is None and tree.has_ended():
            return
        yield replace(sample, tree=tree_sample, host=host.sample())
