"""A rank's side of a sweep: its worker (`child_scripts/exchange.py`), and the leader's questions.

The worker computes and exchanges; it may hang in a driver. This process only hands lines on, so
that it can say so, start another worker, and end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpusetup.system.processes import Lines
from gpusetup.verify.ranks.gathering import Spoke

SCRIPT = Path(__file__).resolve().parents[2] / "child_scripts" / "exchange.py"
POLL_SECONDS = 3600.0
MOST_STARTS = 3
"""Workers that a rank may have; when the last one ends, the rank stays silent."""
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""What a library printed may wait in a buffer: it would come after the worker's last words."""
ASIDE = re.compile(
    r"\s|$|(?:\[rank\d+\]: ?)?(?:\[[WI]\d*[] ]|[WI]\d{4} )|(?:.*\W)?(?i:\w*warn(?:ing)?)\b"
)
"""A library's warning, or a line of its source: not why a worker died."""
Message = dict[str, Any]
Tell = Callable[[Message], None]


class Follower:
    """The worker of one rank, started again if it dies; what it says is told, with what only this
    process knows."""

    def __init__(self, worker: Sequence[str], home: Message, tell: Tell) -> None:
        self.worker, self.home, self.tell = tuple(worker), home, tell
        self.lines: Lines | None = None
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        try:
            lines = self.lines = Lines(self.worker, environment={**os.environ, **UNBUFFERED})
        except OSError as problem:
            self.tell({"said": "broken", "problem": f"{self.worker[0]}: {problem.strerror}"})
            return
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()

    def _listen(self, lines: Lines) -> None:
        last = ""
        while self.lines is lines:
            try:
                line = lines.next(POLL_SECONDS)
            except TimeoutError:
                continue
            except EOFError as end:
                if self.lines is lines:
                    self.lines = None
                    self.tell({"said": "died", "problem": f"{end}: {last[:300]}".rstrip(": ")})
                    if self.starts < MOST_STARTS:
                        self._start()
                return
            message = parsed(line)
            if message:
                self.tell({**message, **self.home} if message["said"] == "joined" else message)
            elif ASIDE.match(last) or not ASIDE.match(line):
                last = line

    def ask(self, question: Message) -> None:
        if self.lines is not None:
            self.lines.tell(json.dumps(question))

    def end(self) -> None:
        lines, self.lines, self.starts = self.lines, None, MOST_STARTS
        if lines is not None:
            lines.end()


def parsed(line: str) -> Message:
    """A worker's message; what a library printed is none.

    >>> parsed('{"said": "here", "round": 1}'), parsed("[W] a warning"), parsed('{"said": 3}')
    ({'said': 'here', 'round': 1}, {}, {})
    """
    with contextlib.suppress(ValueError):
        message = json.loads(line) if line.startswith("{") else None
        if isinstance(message, dict) and isinstance(message.get("said"), str):
            return message
    return {}


def take_part(spoke: Spoke, worker: Sequence[str], home: Message) -> Message:
    """Do what the leader asks until it says the end, which is returned; empty if it is gone."""
    keep_alive(spoke.link)
    follower = Follower(worker, home, lambda message: spoke.say({"told": message}))
    try:
        while message := spoke.hear():
            if "exit" in message:
                return message
            if "ask" in message:
                follower.ask(message["ask"])
        return {}
    finally:
        follower.end()
        spoke.told.close()
        spoke.link.close()


def keep_alive(link: socket.socket) -> None:
    """Let the system notice within a minute that the other host has gone; without that, hours."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
