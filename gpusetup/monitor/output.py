"""Passes on a command's output byte by byte while the monitor reads it too. Reads and writes
streams.

If our stream is a terminal, the command writes to a pseudo-terminal of the same size, so that
progress bars still work. Where there are no pseudo-terminals (Windows), the command writes to the
stream directly and the monitor reads nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from typing import NamedTuple

ReadAlong = Callable[[bytes], None]
STDOUT, STDERR = 1, 2
READ_BYTES = 65536
LAST_WORDS_SECONDS = 0.5
"""How long after the command's end its children may keep writing before we stop reading."""


class Channel(NamedTuple):
    """The file descriptors of one output stream: one that the command writes to, one that the
    monitor reads from, and our own stream, which gets the output."""

    write_end: int
    read_end: int
    target: int


class CommandOutput:
    """Passes a command's output on to our own streams, and reads it on the way.

    `stdout_to`: the stream that receives the command's stdout (stderr with `--json`).
    """

    def __init__(self, read_along: ReadAlong, stdout_to: int = STDOUT) -> None:
        self._read_along = read_along
        self._channels: list[Channel] = []
        self._threads: list[threading.Thread] = []
        self._command_ended = threading.Event()
        stdout = self._channel(stdout_to)
        # If both streams go to the same place, one channel keeps their output in order.
        is_one_place = is_same(stdout_to, STDERR)
        stderr = stdout if is_one_place else self._channel(STDERR)
        # Without a channel, the command writes to our stream directly.
        self.stdout = stdout.write_end if stdout else stdout_to
        self.stderr = stderr.write_end if stderr else STDERR

    def _channel(self, target: int) -> Channel | None:
        """A channel to one of our streams; None if there can be none."""
        try:
            os.fstat(target)  # raises an OSError if it was closed before we began
            is_terminal = os.isatty(target)
            # Windows has no pseudo-terminals.
            if is_terminal and os.name != "posix":
                return None
            read_end, write_end = pseudo_terminal(target) if is_terminal else os.pipe()
        except OSError:
            return None
        channel = Channel(write_end, read_end, target)
        self._channels.append(channel)
        return channel

    def begin(self) -> None:
        """Start passing on the output; call this once the command has started."""
        for channel in self._channels:
            # Our copy would keep the stream open after the command's end.
            os.close(channel.write_end)
            thread = threading.Thread(target=self._pass_on, args=(channel,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def give_up(self) -> None:
        """Close all channels, because the command could not be started."""
        for channel in self._channels:
            # No thread is reading yet.
            os.close(channel.write_end)
            os.close(channel.read_end)

    def end(self) -> None:
        """Pass on the remaining output after the command has ended."""
        self._command_ended.set()
        # Windows has no `select` for pipes, so a thread there may wait forever.
        patience = None if os.name == "posix" else LAST_WORDS_SECONDS
        for thread in self._threads:
            thread.join(patience)

    def _pass_on(self, channel: Channel) -> None:
        """Write the command's output to our stream until it ends, and let the monitor read it."""
        try:
            while data := self._next(channel.read_end):
                write_all(channel.target, data)
                # If the monitor cannot read it, the command must not be affected.
                with contextlib.suppress(Exception):
                    self._read_along(data)
        except OSError:
            pass  # our stream was closed; the command notices when it writes (SIGPIPE)
        finally:
            os.close(channel.read_end)

    def _next(self, descriptor: int) -> bytes:
        """The next bytes of the output. b"" at its end, or if the command has ended and its
        children keep the stream open without writing."""
        if os.name == "posix":
            while not select.select([descriptor], [], [], LAST_WORDS_SECONDS)[0]:
                if self._command_ended.is_set():
                    return b""
        try:
            return os.read(descriptor, READ_BYTES)
        except OSError:
            return b""  # on Linux: the last program on a pseudo-terminal has ended (EIO)


def is_same(first: int, second: int) -> bool:
    """Whether two file descriptors are the same terminal, file or pipe; if one cannot be examined
    (closed, or replaced by an object without a file), whether they are the same number."""
    try:
        return os.path.sameopenfile(first, second)
    except (OSError, ValueError):
        return first == second


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the bytes to a file descriptor, even if it takes them in parts."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            # Another program made our stream non-blocking.
            select.select([], [descriptor], [])


def pseudo_terminal(our_terminal: int) -> tuple[int, int]:
    """A new pseudo-terminal of the same size as ours: the end that we read from, and the end that
    the command writes to.

    It does not change the output, because our own terminal already does so (it adds a carriage
    return to each newline).
    """
    # Windows has none of these modules.
    import fcntl
    import pty
    import termios

    read_end, write_end = pty.openpty()
    attributes = termios.tcgetattr(write_end)
    output_flags = 1  # their position in the attributes
    attributes[output_flags] &= ~termios.OPOST
    termios.tcsetattr(write_end, termios.TCSANOW, attributes)
    with contextlib.suppress(OSError):
        # The size is four numbers of 16 bits.
        size = fcntl.ioctl(our_terminal, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(read_end, termios.TIOCSWINSZ, size)
    return read_end, write_end
