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

CONNECT_SECONDS = 240.0
"""How long a rank looks for rank 0: on a cold network file system Python itself starts late."""
NEVER_HEARD_SECONDS = 240.0
"""How long rank 0 waits for a rank of which it has heard nothing at all."""
WELCOME_SECONDS = 5.0
"""How long a port may take to say that it is rank 0's."""
PLACES = 16
"""Ports above the one of torch's store, of which rank 0 takes the first that is free."""
MOST_LETTERS = 1 << 26
"""Of one message; more is none of ours."""
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
        self.server = _listening(rank)
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
            for message in _messages(said):
                known = known or self._met(message, link)
                if known is None:
                    break
                self._hear(known, message)
        if known is None:
            link.close()
            return
        with self.news:
            known.gone = True
            self.news.notify_all()

    def _met(self, message: Dict[str, Any], link: socket.socket) -> Optional[Heard]:
        """The rank that says hello; a stranger (another job on this port) is not listened to."""
        if message.get("job") != self.job:
            link.close()
            return None
        known = self.heard.get(message.get("rank", 0))
        if known is not None and known.link is None:
            known.link = link
            link.sendall((json.dumps({"job": self.job}) + "\n").encode())
            return known
        link.close()
        return None

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
        self.link, self.told = _connected(rank)

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


def places(port: int) -> List[int]:
    """The ports where rank 0 may listen, in their order.

    >>> places(29500)[:2], places(65530)[:2], places(65530)[-1]
    ([29501, 29502], [65531, 65532], 65519)
    """
    above = list(range(port + 1, min(port + PLACES, 65535) + 1))
    return above + [port - 1 - each for each in range(PLACES - len(above))]


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _listening(rank: Rank) -> socket.socket:
    """A server on the first port that is free; where all ranks are here, for this host alone."""
    problem: Optional[OSError] = None
    for port in places(rank.port):
        try:
            if rank.address in LOOPBACK[:2]:
                return socket.create_server(("127.0.0.1", port), backlog=rank.world)
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            return socket.create_server(
                ("", port), family=family, backlog=rank.world, dualstack_ipv6=both
            )
        except OSError as found:
            problem = found
    said = problem.strerror if problem else "none is left"
    raise Blocked(
        f"No port from {rank.port + 1} on can be listened on: {said}",
        "other jobs may hold them: start the ranks with another --master-port",
    ) from problem


def _messages(said: Any) -> Iterator[Dict[str, Any]]:
    """The messages of a stream, until one is none of ours."""
    for line in iter(lambda: said.readline(MOST_LETTERS), ""):
        message = json.loads(line)
        if not isinstance(message, dict):
            return
        yield message


def _connected(rank: Rank) -> Tuple[socket.socket, Any]:
    """The link to rank 0 and what it says: at that of the ports which answers as this job's."""
    until = time.monotonic() + CONNECT_SECONDS
    problem: Optional[Exception] = None
    while time.monotonic() < until:
        for port in places(rank.port):
            try:
                return _greeted(rank, port)
            except (OSError, ValueError) as found:
                problem = found
        time.sleep(0.2)
    raise Blocked(
        f"rank {rank.rank} on {rank.host} cannot reach rank 0 at "
        f"{rank.address}:{rank.port + 1}: {getattr(problem, 'strerror', None) or problem}",
        "is rank 0 running, and does the network let that port through?",
    ) from problem


def _greeted(rank: Rank, port: int) -> Tuple[socket.socket, Any]:
    """Say who this is, and hear whether it is this job's rank 0 that listens."""
    link = socket.create_connection((rank.address, port), timeout=WELCOME_SECONDS)
    told = link.makefile("r", encoding="utf-8")
    try:
        hello = {"rank": rank.rank, "host": rank.host, "job": rank.job}
        link.sendall((json.dumps(hello) + "\n").encode())
        answer = json.loads(told.readline(MOST_LETTERS) or "{}")
        if not isinstance(answer, dict) or answer.get("job") != rank.job:
            raise ValueError(f"port {port} is another program's")
    except (OSError, ValueError):
        told.close()
        link.close()
        raise
    link.settimeout(None)
    return link, told


def who(number: int, known: Heard) -> str:
    """A rank, where it is, and in which check it was last.

    >>> who(3, Heard())
    'rank 3 was never heard of'
    """
    where = f" on {known.host}" if known.host else ""
    last = f"was last heard of in {known.doing}" if known.doing else "was never heard of"
    return f"rank {number}{where} {last}"
