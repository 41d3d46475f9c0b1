"""Keys as they are pressed, without Enter: POSIX terminals and the Windows console."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

ESCAPE = "\x1b"


class Keyboard:
    """Tells each key to `heard` from a thread that sleeps until one is pressed."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._old: Any = None
        self._wake: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Where stdin is no terminal there are no keys."""
        if not sys.stdin or not sys.stdin.isatty():
            return
        listen = self._listen_windows if os.name == "nt" else self._listen
        if os.name != "nt":
            self._raw()
            self._wake = os.pipe()
        self._thread = threading.Thread(target=listen, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The terminal is as it was."""
        self._stopped.set()
        if self._wake is not None:
            os.write(self._wake[1], b"x")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1)
        if self._old is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._old)
        for file in self._wake or ():
            os.close(file)
        self._wake = None

    def _raw(self) -> None:
        """Single keys, without echo; Ctrl-C stays a signal."""
        import termios
        import tty

        with suppress(termios.error):
            self._old = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin.fileno())

    def _listen(self) -> None:
        import select

        assert self._wake is not None
        keys, wake = sys.stdin.fileno(), self._wake[0]
        while not self._stopped.is_set():
            ready, _, _ = select.select([keys, wake], [], [])
            if wake in ready:
                return
            said = os.read(keys, 64)
            if not said:
                return
            for key in keys_of(said.decode("utf-8", "replace")):
                self._heard(key)

    def _listen_windows(self) -> None:
        msvcrt: Any = __import__("msvcrt")
        while not self._stopped.wait(0.05):
            while msvcrt.kbhit():
                self._heard(msvcrt.getwch())


def keys_of(said: str) -> list[str]:
    """Single keys; of arrows and the like, which are several letters after an escape, none.

    >>> keys_of("sp"), keys_of("\\x1b"), keys_of("\\x1b[A")
    (['s', 'p'], ['\\x1b'], [])
    """
    if said.startswith(ESCAPE) and len(said) > 1:
        return []
    return list(said)
