"""A rank's side of a sweep: runs the rank's worker (`child_scripts/exchange.py`), and passes the
leader's requests to it.

The worker exchanges the data, and may hang in a driver. This process only passes messages on, so
that it can still report that the worker died, and exit.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpusetup.system.processes import StreamingChild
from gpusetup.verify.ranks.gathering import Spoke

SCRIPT = Path(__file__).resolve().parents[2] / "child_scripts" / "exchange.py"
ENDLESS_SECONDS = 1e7
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Without this, a library's output may wait in a buffer and appear after the worker's last message.
"""
LIBRARY_NOISE = re.compile(
    r"\s|$|(?:\[rank\d+\]: ?)?(?:\[[WI]\d*[] ]|[WI]\d{4} )|(?:.*\W)?(?i:\w*warn(?:ing)?)\b"
)
"""Matches a library's warning or a line of its source code, which does not explain why a worker
died."""
Message = dict[str, Any]


class Follower:
    """The worker process of one rank. Its messages, and how it ended, are passed to `tell`."""

    def __init__(self, worker: Sequence[str], tell: Callable[[Message], None]) -> None:
        self.tell = tell
        environment = {**os.environ, **UNBUFFERED}
        self.lines = StreamingChild(worker, environment=environment)
        # Use a daemon thread, because it does not keep this process alive.
        thread = threading.Thread(target=self._listen, daemon=True)
        thread.start()

    def _listen(self) -> None:
        """Pass on the worker's messages until it ends, then report how it ended."""
        last = ""
        try:
            while True:
                line = self.lines.next(ENDLESS_SECONDS)
                message = message_in(line)
                if message:
                    self.tell(message)
                    continue
                is_noise = LIBRARY_NOISE.match(line) is not None
                last_is_noise = LIBRARY_NOISE.match(last) is not None
                # Keep an earlier error message even if warnings follow it.
                if last_is_noise or not is_noise:
                    last = line
        except EOFError as end:
            words = last[:LONGEST_WORDS]
            problem = f"{end}: {words}".rstrip(": ")
            self.tell({"said": "died", "problem": problem})

    def ask(self, question: Message) -> None:
        """Pass the leader's request to the worker; the response arrives through `tell`."""
        line = json.dumps(question)
        # There is nothing to return, because the response will be passed to `tell`.
        self.lines.tell(line)

    def end(self) -> None:
        self.lines.end()


def message_in(line: str) -> Message:
    """The message in a line of a worker's output; {} if the line is not a message, such as a
    library's warning.

    >>> lines = ('{"said": "here", "round": 1}', "[W] a warning", '{"said": 3}')
    >>> [*map(message_in, lines)]
    [{'said': 'here', 'round': 1}, {}, {}]
    """
    if not line.startswith("{"):
        return {}
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    is_message = isinstance(message, dict) and isinstance(message.get("said"), str)
    return message if is_message else {}


def take_part(spoke: Spoke, worker: Sequence[str]) -> Message:
    """Carry out the leader's requests until it ends the sweep. Returns the leader's last message,
    which is empty if the connection was lost."""
    follower = Follower(worker, lambda message: spoke.say({"told": message}))
    try:
        while (message := spoke.hear()) and "exit" not in message:
            if "ask" in message:
                follower.ask(message["ask"])
        return message
    finally:
        follower.end()
        spoke.answers.close()
        spoke.link.close()


LONGEST_WORDS = 300
"""How many characters of a worker's last message are kept."""
