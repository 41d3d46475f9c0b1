"""A rank's side of a sweep: its worker (`child_scripts/exchange.py`), and requests from the leader.

The worker exchanges; it may hang in a driver. This process only hands lines on, so that it can say
that the worker died, and end.
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
"""What a library printed may wait in a buffer: it would come after the worker's last words."""
LIBRARY_NOISE = re.compile(
    r"\s|$|(?:\[rank\d+\]: ?)?(?:\[[WI]\d*[] ]|[WI]\d{4} )|(?:.*\W)?(?i:\w*warn(?:ing)?)\b"
)
"""A library's warning, or a line of its source: not why a worker died."""
Message = dict[str, Any]


class Follower:
    """The worker of one rank, whose messages (and how it ended) are passed on to the leader."""

    def __init__(self, worker: Sequence[str], tell: Callable[[Message], None]) -> None:
        self.tell = tell
        environment = {**os.environ, **UNBUFFERED}
        self.lines = StreamingChild(worker, environment=environment)
        # It must not keep this process alive.
        thread = threading.Thread(target=self._listen, daemon=True)
        thread.start()

    def _listen(self) -> None:
        """Pass on the worker's messages and, at the end, how it ended."""
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
                # An error is kept when noise follows it.
                if last_is_noise or not is_noise:
                    last = line
        except EOFError as end:
            words = last[:LONGEST_WORDS]
            problem = f"{end}: {words}".rstrip(": ")
            self.tell({"said": "died", "problem": problem})

    def ask(self, question: Message) -> None:
        """Pass a request of the leader to the worker."""
        line = json.dumps(question)
        # Its answer comes to `tell`.
        self.lines.tell(line)

    def end(self) -> None:
        self.lines.end()


def message_in(line: str) -> Message:
    """A worker's message; None for lines that a library printed.

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
    """Do what the leader requests until it sends the end, which is returned; empty if the leader is
    gone."""
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
"""Letters of a worker's last words."""
