"""The only way to start a child process: with an argument list, a time limit, and captured output.

A child runs in its own process group, so that its own children end with it. A child in an
uninterruptible driver call cannot be killed, so we do not wait for such a child.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from gpusetup.model.frozen import Frozen

Child = subprocess.Popen[bytes]
GIVE_UP_SECONDS = 1.0
"""How long we wait for a killed child to end."""
MAX_OUTPUT_BYTES = 64 << 20
"""The maximum size of a child's output. A child that prints more is killed."""
OWN_GROUP: dict[str, Any] = (
    {"start_new_session": True}
    if os.name == "posix"
    else {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
)
"""Options for a child that should not receive the Ctrl-C that a user types in our terminal."""
RUNNING: set[Child] = set()
"""The children that our threads are waiting for."""


class Output(Frozen):
    """A child's output and exit code; `exit` is None if it did not end in time, or not start."""

    argv: tuple[str, ...]
    exit: int | None
    stdout: str = ""
    stderr: str = ""
    problem: str | None = None
    """Why the child did not end normally: `not found`, `not permitted`, `no answer in 30 s`…; None
    if it did."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.exit == 0


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> Output:
    """Run a program to its end, or kill its whole group after `timeout` seconds.

    Never raises because of what the program does: if the program is missing or hangs, the `Output`
    has a `problem`. `environment` replaces the whole environment.
    """
    began = time.monotonic()
    words = tuple(argv)
    with _output_file() as out, _output_file() as err:
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if environment is None else dict(environment),
                **OWN_GROUP,
            )
        except FileNotFoundError:
            return Output(argv=words, exit=None, problem="not found")
        except OSError as problem:
            return Output(argv=words, exit=None, problem=problem.strerror or str(problem))
        RUNNING.add(child)
        try:
            pending_input = None if stdin is None else stdin.encode()
            why_killed = _wait(child, pending_input, timeout, (out, err))
        except BaseException:  # such as Ctrl-C, which the child does not get
            kill_group(child)
            raise
        finally:
            RUNNING.discard(child)
        out.seek(0)
        err.seek(0)
        texts = [file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace") for file in (out, err)]
    return Output(
        argv=words,
        exit=None if why_killed else child.returncode,
        stdout=texts[0],
        stderr=texts[1],
        problem=why_killed,
        seconds=time.monotonic() - began,
    )


POLL_SECONDS = 0.25
"""How often we check whether a child prints too much."""


def _output_file() -> IO[bytes]:
    """The file for a child's output. With a pipe, we would have to wait for the child's own
    children. The file is in memory if the system supports that, because a disk may be full."""
    with contextlib.suppress(AttributeError, OSError):
        return os.fdopen(os.memfd_create("output"), "w+b")  # type: ignore[attr-defined,unused-ignore]
    import tempfile  # slow to load, and seldom needed

    return tempfile.TemporaryFile()


def _wait(
    child: Child, pending_input: bytes | None, timeout: float, files: Sequence[IO[bytes]]
) -> str | None:
    """Wait for a child, and kill it if it does not end in time or prints too much. Returns the
    reason for killing it; None if it ended."""
    until = time.monotonic() + timeout
    while True:
        seconds_left = max(0.0, until - time.monotonic())
        try:
            child.communicate(pending_input, timeout=min(seconds_left, POLL_SECONDS))
            return None
        except subprocess.TimeoutExpired:
            # `communicate` keeps the input of the first call, so pass none to the later calls.
            pending_input = None
        sizes = [os.fstat(file.fileno()).st_size for file in files]
        floods = max(sizes) > MAX_OUTPUT_BYTES
        # After a wait for all the seconds that were left, the time is over.
        if floods or seconds_left <= POLL_SECONDS:
            kill_group(child)
            _give_up(child)
            if floods:
                return f"said more than {MAX_OUTPUT_BYTES >> 20} MiB"
            return no_answer_in(timeout)


def _give_up(child: Child) -> None:
    """Wait briefly for a killed child, and ignore it if it does not end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GIVE_UP_SECONDS)
    if child.returncode is None:
        # Set an exit code, because otherwise Python warns that the child is still running when the
        # object is garbage-collected.
        child.returncode = -signal.SIGTERM


def no_answer_in(seconds: float) -> str:
    """The description of a child that reached its time limit.

    >>> no_answer_in(29.97)
    'no answer in 30 s'
    """
    return f"no answer in {round(seconds, 1):g} s"


ACCESS_VIOLATION = 0xC0000005
"""The exit code on Windows of a program that accessed invalid memory."""


def how_it_ended(code: int) -> str:
    """An exit code in words.

    >>> how_it_ended(3), how_it_ended(-11), how_it_ended(0xC0000005)
    ('exit 3', 'crashed with SIGSEGV', 'crashed with an access violation')
    """
    if code == ACCESS_VIOLATION:
        return "crashed with an access violation"
    if code >= 0:
        return f"exit {code}"
    # On POSIX, a negative code is a signal's number.
    number = -code
    names = {known.value: known.name for known in signal.Signals}
    return f"crashed with {names.get(number, f'signal {number}')}"


def kill_group(child: Child) -> None:
    """Kill a child and the children that it started; on Windows, only the child."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def interrupt(child: Child) -> None:
    """Send Ctrl-C to a child that was started with `OWN_GROUP`; on Windows, send Ctrl-Break.

    If there is no console, Ctrl-Break cannot be sent (`os.kill` raises SystemError), so the child
    is killed.
    """
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGINT)
            return
        try:
            # `getattr`, because other systems lack this signal and types are checked there.
            child.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        except (OSError, SystemError):
            child.kill()


class StreamingChild:
    """A child whose lines are read while it runs.

    The lines of its standard error are mixed with the others, or written to the file `errors`.
    Raises OSError if it cannot start.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | None = None,
    ) -> None:
        self._child = subprocess.Popen(
            tuple(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors is None else errors,
            env=None if environment is None else dict(environment),
            **OWN_GROUP,
        )
        RUNNING.add(self._child)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        """Put each line into the queue, and None at the end; runs in another thread."""
        assert self._child.stdout is not None
        for raw_line in self._child.stdout:
            line = raw_line.decode("utf-8", "replace")
            self._lines.put(line.rstrip("\r\n"))
        self._lines.put(None)

    def next(self, timeout: float) -> str:
        """The next line. Raises TimeoutError if none came in time, EOFError after the last one."""
        try:
            line = self._lines.get(timeout=max(0.0, timeout))
        except queue.Empty:
            raise TimeoutError(no_answer_in(timeout)) from None
        if line is None:
            # Put the end back, so that the next call raises EOFError too.
            self._lines.put(None)
            raise EOFError(self.how_it_ended())
        return line

    def tell(self, line: str) -> None:
        """Write a line to the child's input; a child that has ended does not get it."""
        stdin = self._child.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.write(line.encode() + b"\n")
            stdin.flush()

    def how_it_ended(self) -> str:
        """How the child ended, in words, for an error message."""
        code = self.exit()
        return "closed its output" if code is None else how_it_ended(code)

    def exit(self) -> int | None:
        """The child's exit code; None if it has closed its output but is still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(GIVE_UP_SECONDS)
        return None

    def end(self) -> None:
        """Kill the child; if that fails, do not wait for it."""
        if self._child.poll() is None:
            kill_group(self._child)
        _give_up(self._child)
        RUNNING.discard(self._child)
        self._listener.join(GIVE_UP_SECONDS)
        pipes = [self._child.stdin]
        # Closing a pipe that a thread is reading would block.
        if not self._listener.is_alive():
            pipes.append(self._child.stdout)
        for pipe in pipes:
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def foreground(
    argv: Sequence[str], *, stdout: int | None = None, stderr: int | None = None
) -> Child:
    """Start the user's command in our terminal and process group; the caller waits for it.

    Only this kind of child can ask questions on the terminal, so we must not draw on it meanwhile.
    `stdout` and `stderr` are file descriptors; None means ours. Raises OSError if it cannot start.
    """
    return subprocess.Popen(tuple(argv), stdout=stdout, stderr=stderr)


def start_background(argv: Sequence[str]) -> Child:
    """Start a child that runs in parallel; the caller reads its output. Raises OSError.

    It runs in a new session, so that a Ctrl-C in our terminal does not reach it.
    """
    return subprocess.Popen(
        tuple(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **OWN_GROUP,
    )


@atexit.register
def end_children() -> None:
    """Kill all running children when gpusetup ends, such as after Ctrl-C while threads wait."""
    for child in tuple(RUNNING):
        kill_group(child)
