"""Runs the monitor once: takes samples from a source and from a command's processes."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import Sample
from gpusetup.monitor.epochs import EpochReader
from gpusetup.monitor.host import HostSampler, ProcessTree, or_none
from gpusetup.monitor.output import STDOUT, CommandOutput
from gpusetup.monitor.sources import SampleSource, SourceEnded
from gpusetup.system.processes import foreground

Say = Callable[[str], None]
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""A shell's exit codes for a command that does not exist, or that cannot be executed."""
POLL_SECONDS = 0.05
"""How often we check whether the command has ended."""


def signals_named(*names: str) -> tuple[signal.Signals, ...]:
    """The signals with these names that this system has; Windows lacks most of them."""
    available = signal.Signals.__members__
    return tuple(available[name] for name in names if name in available)


SENT_BY_TERMINAL = signals_named("SIGINT", "SIGQUIT", "SIGHUP")
"""Signals that a terminal sends both to the monitor and to the command."""
FORWARDED = (*SENT_BY_TERMINAL, *signals_named("SIGTERM", "SIGUSR1", "SIGUSR2"))


class NotStarted(GpuSetupError):
    """The command cannot be started; the exit code is a shell's: 127 if not found, else 126."""

    def __init__(self, name: str, problem: OSError) -> None:
        is_missing = isinstance(problem, FileNotFoundError | NotADirectoryError)
        # Use the words with which a shell reports this.
        reason = "command not found" if is_missing else problem.strerror or str(problem)
        super().__init__(f"{name}: {reason}")
        self.exit_code = NOT_FOUND if is_missing else NOT_RUNNABLE


class Command:
    """Runs the user's command in our terminal, and passes on signals that only the monitor
    receives.

    Its output is passed on immediately, and searched for epochs. `stdout_to`: the stream that its
    stdout goes to.
    """

    def __init__(self, argv: Sequence[str], *, stdout_to: int = STDOUT) -> None:
        self.epochs = EpochReader()
        """How long the command's epochs take, according to its output."""
        # The end of the output, in which a traceback's last line is.
        self._tail = b""
        self._began = time.monotonic()
        self._output = CommandOutput(self._read_along, stdout_to)
        try:
            self._child = foreground(argv, stdout=self._output.stdout, stderr=self._output.stderr)
        except OSError as problem:
            self._output.give_up()
            raise NotStarted(argv[0], problem) from problem
        self._old_handlers = {number: signal.signal(number, self._forward) for number in FORWARDED}
        self._output.begin()
        # None if the command has already ended.
        self.tree = or_none(ProcessTree, self._child.pid)

    def _read_along(self, data: bytes) -> None:
        # The time of an epoch is when its number was printed.
        self.epochs.feed(data, time.monotonic() - self._began)
        self._tail = (self._tail + data)[-TAIL_BYTES:]

    def error(self) -> str | None:
        """The last line of the command's output that names a Python exception, without control
        characters; None if there is none."""
        for line in reversed(self._tail.decode("utf-8", "replace").splitlines()):
            match = ERROR_LINE.match(CONTROL.sub("", line[:LONGEST_LINE]).strip())
            if match:
                return match[1][:LONGEST_ERROR]
        return None

    def _forward(self, number: int, frame: object) -> None:
        """Handle a signal: send it to the command, unless the terminal already did."""
        if not (number in SENT_BY_TERMINAL and _has_terminal()):
            self._child.send_signal(number)

    @property
    def ended(self) -> bool:
        """Whether the command itself has ended; its child processes may still run."""
        return self._child.poll() is not None

    def exit_code(self) -> int:
        """Wait for the command's end; its exit code, or 128 + n after signal n, as in a shell."""
        code = self._child.wait()
        self._output.end()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        # Python reports a signal as a negative exit code.
        return 128 - code if code < 0 else code


TAIL_BYTES = 16384
"""How much of the end of the output is searched for an error. It comes at the end, perhaps followed
by a launcher's own report."""
LONGEST_LINE = 2000
"""Characters of a line that are searched; a line of a traceback is shorter."""
LONGEST_ERROR = 200
"""Characters; torch's messages about memory are longer, but begin with what happened."""
ERROR_LINE = re.compile(
    r"^(?:\[?rank\d+\]?: ?)?((?:\w+\.){0,8}\w{0,60}(?:Error|Exception|Interrupt)\b(?:: .*)?)$"
)
"""The last line of a Python traceback: `torch.OutOfMemoryError: CUDA out of memory. …`, perhaps
after torchrun's `[rank0]: `."""
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _has_terminal() -> bool:
    """Whether we run in the foreground of a terminal, so that the terminal also sends its signals
    to the command. A Windows console always does."""
    if os.name == "nt":
        return True
    # Any of our streams may be a pipe or a file.
    for stream in (0, 1, 2):
        try:
            return os.tcgetpgrp(stream) == os.getpgrp()
        except OSError:
            continue
    return False


def watch(
    source: SampleSource,
    say: Say,
    tree: ProcessTree | None = None,
    command: Command | None = None,
    *,
    seconds: float,
    patience: float,
) -> Iterator[Sample]:
    """Yields samples until the time is over, or until the source or the watched processes end.

    `tree`: processes to watch too; `command`: the command that they are part of, if we started it.
    `seconds`: how long to watch at most; 0 is without end. `patience`: by how many seconds a sample
    may be late.
    """
    host = HostSampler()
    for sample in samples_in_time(source, say, command, seconds, patience):
        on_gpu = frozenset(process.pid for gpu in sample.gpus for process in gpu.processes or ())
        tree_sample = tree.sample(on_gpu) if tree else None
        # If we started the command, `samples_in_time` notices its end. Other processes have no
        # sample at first, or may be out of sight, so check whether they still exist.
        if command is None and tree is not None and tree_sample is None and tree.has_ended():
            return
        yield replace(sample, tree=tree_sample, host=host.sample())


def samples_in_time(
    source: SampleSource, say: Say, command: Command | None, seconds: float, patience: float
) -> Iterator[Sample]:
    """Yields a source's samples until the time is over, the source or the command ends, or a sample
    is too late. The parameters are those of `watch`."""
    last_sample_at = time.monotonic()
    ends_at = last_sample_at + seconds if seconds else math.inf
    # Notice a command's end soon, instead of waiting for the next sample.
    longest_wait = patience if command is None else POLL_SECONDS
    while command is None or not command.ended:
        remaining = ends_at - time.monotonic()
        if remaining <= 0:
            return
        try:
            sample = source.next(min(remaining, longest_wait))
        except TimeoutError:
            if time.monotonic() - last_sample_at >= patience:
                say(f"no sample in {patience:g} s: the driver no longer responds")
                return
            continue
        except SourceEnded as end:
            say(str(end))
            return
        last_sample_at = time.monotonic()
        yield sample
