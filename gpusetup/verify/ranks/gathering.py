"""How the ranks' reports come together at rank 0: JSON lines over TCP, between the parents.

The parents compute nothing and load no torch, so a rank whose computing child hangs can still
say so, and one that never answers is named. Rank 0 listens; the others say what they are doing,
send their results, and wait for the verdict, with which all of them exit.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..values import Blocked
from .launch import Rank

CONNECT_SECONDS = 30.0
"""How long a rank looks for rank 0: the ranks of a job start within seconds of each other."""
NEVER_HEARD_SECONDS = 30.0
"""How long rank 0 waits for a rank of which it has heard nothing at all."""
SILENCE_SECONDS = 330.0
"""How long it waits for one that is in a check: a little longer than the longest may last."""
REPORT_SECONDS = 30.0
"""How long it waits for the last reports, after its own, while nobody says anything."""


class Heard:
    """What rank 0 knows of one other rank."""

    def __init__(self) -> None:
        self.host: Optional[str] = None
        self.doing: Optional[str] = None
        self.report: Optional[Dict[str, Any]] = None
        self.link: Optional[socket.socket] = None
        self.gone = False


class Hub:
    """Rank 0's side."""

    def __init__(self, rank: Rank) -> None:
        self.heard = {other: Heard() for other in range(1, rank.world)}
        self.job = rank.job
        self.news = threading.Condition()
        try:
            self.server = socket.create_server(("", rank.port + 1), backlog=rank.world)
        except OSError as problem:
            raise Blocked(
                f"Port {rank.port + 1} cannot be listened on: {problem.strerror}",
                "another job may hold it: start the ranks with another --master-port",
            ) from problem
        threading.Thread(target=self._accept, daemon=True).start()

    def doing(self, name: str) -> None:
        """Rank 0's own work is in its own report."""

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.server.accept()
            except OSError:  # closed: the report is out
                return
            threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: socket.socket) -> None:
        known: Optional[Heard] = None
        with contextlib.suppress(OSError, ValueError), link.makefile("r", encoding="utf-8") as said:
            for line in said:
                message = json.loads(line)
                known = known or self._met(message, link)
                if known is None:
                    break
                self._hear(known, message)
        with self.news:
            if known is not None:
                known.gone = True
            self.news.notify_all()

    def _met(self, message: Dict[str, Any], link: socket.socket) -> Optional[Heard]:
        """The rank that says hello; a stranger (another job on this port) is not listened to."""
        if message.get("job") != self.job:
            link.close()
            return None
        known = self.heard.get(message.get("rank", 0))
        if known is not None:
            known.link = link
        return known

    def _hear(self, known: Heard, message: Dict[str, Any]) -> None:
        with self.news:
            known.host = message.get("host", known.host)
            known.doing = message.get("doing", known.doing)
            known.report = message.get("report", known.report)
            self.news.notify_all()

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has come there; then all go on. Who has not, in a sentence."""
        self._wait(lambda known: known.doing == place, SILENCE_SECONDS)
        late = [text for text, known in self._told() if known.doing != place]
        self._tell({"late": late})
        return late

    def others(self, report: Dict[str, Any]) -> Dict[int, Heard]:
        """What is known of the other ranks, once all have reported or fallen silent."""
        del report  # rank 0's own is at hand
        self._wait(lambda known: known.report is not None, REPORT_SECONDS)
        return self.heard

    def _wait(self, there: Callable[[Heard], bool], seconds: float) -> None:
        """Until it holds of every rank that still speaks; the time starts anew with each word."""
        began = time.monotonic()
        with self.news:
            while True:
                waited = [h for h in self.heard.values() if not (there(h) or h.gone)]
                limit = (
                    seconds
                    if any(h.host for h in waited)
                    else NEVER_HEARD_SECONDS - (time.monotonic() - began)
                )
                if not waited or not self.news.wait(timeout=max(0.0, limit)):
                    return

    def _told(self) -> Iterator[Tuple[str, Heard]]:
        for number, known in sorted(self.heard.items()):
            yield who(number, known), known

    def _tell(self, message: Dict[str, Any]) -> None:
        for known in self.heard.values():
            if known.link is not None:
                with contextlib.suppress(OSError):
                    known.link.sendall((json.dumps(message) + "\n").encode())

    def settle(self, code: int) -> int:
        """Tell every rank the exit code of the whole."""
        self._tell({"exit": code})
        self.server.close()
        for known in self.heard.values():
            if known.link is not None:
                known.link.close()
        return code


class Spoke:
    """The side of every other rank."""

    def __init__(self, rank: Rank) -> None:
        self.link = _connected(rank)
        self.told = self.link.makefile("r", encoding="utf-8")
        self.say({"rank": rank.rank, "host": rank.host, "job": rank.job})

    def say(self, message: Dict[str, Any]) -> None:
        # Where rank 0 has gone, there is nobody left to tell; the exit code still says it.
        with contextlib.suppress(OSError):
            self.link.sendall((json.dumps(message) + "\n").encode())

    def hear(self) -> Dict[str, Any]:
        """The next word of rank 0; nothing where it has gone."""
        with contextlib.suppress(OSError, ValueError):
            line = self.told.readline()
            return dict(json.loads(line)) if line else {}
        return {}

    def doing(self, name: str) -> None:
        self.say({"doing": name})

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has come there; who has not, in a sentence."""
        self.doing(place)
        return list(self.hear().get("late", ["rank 0 has gone"]))

    def others(self, report: Dict[str, Any]) -> Dict[int, Heard]:
        self.say({"report": report})
        return {}

    def settle(self, code: int) -> int:
        """Rank 0's exit code, which is everybody's; 1 where rank 0 went without a word."""
        del code
        said = int(self.hear().get("exit", 1))
        self.told.close()
        self.link.close()
        return said


def _connected(rank: Rank) -> socket.socket:
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((rank.address, rank.port + 1), timeout=None)
        except OSError as problem:
            if time.monotonic() > until:
                raise Blocked(
                    f"rank {rank.rank} on {rank.host} cannot reach rank 0 at "
                    f"{rank.address}:{rank.port + 1}: {problem.strerror or problem}",
                    "is rank 0 running, and does the network let that port through?",
                ) from problem
            time.sleep(0.2)


def who(number: int, known: Heard) -> str:
    """A rank, where it is, and in which check it was last.

    >>> who(3, Heard())
    'rank 3 was never heard of'
    """
    where = f" on {known.host}" if known.host else ""
    last = f"was last heard of in {known.doing}" if known.doing else "was never heard of"
    return f"rank {number}{where} {last}"
