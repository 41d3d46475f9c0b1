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
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..values import CRASHED, FAILED, Blocked, Outcome, Report, Result
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
REPORT_SECONDS = 120.0
"""How long it waits for the last reports, after its own, while nobody says anything: longer than a
check among ranks may take."""
Message = Dict[str, Any]
NO_MESSAGE = (OSError, ValueError, TypeError, KeyError, AttributeError)
"""What comes of a line that is none of ours, or of a link that ends."""


class Heard:
    """What rank 0 knows of one other rank."""

    host: Optional[str] = None
    doing: Optional[str] = None
    report: Optional[Message] = None
    link: Optional[socket.socket] = None
    gone = False


def send(link: Optional[socket.socket], message: Message) -> None:
    """Say it, where somebody is left to hear it."""
    with contextlib.suppress(OSError):
        if link is not None:
            link.sendall((json.dumps(message) + "\n").encode())


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
        with contextlib.suppress(OSError):  # closed: the report is out
            while True:
                link, _ = self.server.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: socket.socket) -> None:
        """Hear a rank until it goes; a stranger (another job on this port) is sent away."""
        known = None
        with contextlib.suppress(*NO_MESSAGE), link.makefile("r", encoding="utf-8") as said:
            for line in iter(lambda: said.readline(MOST_LETTERS), ""):
                message = dict(json.loads(line))
                if known is None:
                    first = self.heard[message["rank"]]
                    if message["job"] != self.job or first.link is not None:
                        break
                    known, first.link = first, link
                    send(link, {"job": self.job})
                self._hear(known, message)
        if known is None:
            link.close()
            return
        with self.news:
            known.gone = True
            self.news.notify_all()

    def _hear(self, known: Heard, message: Message) -> None:
        with self.news:
            for name in ("host", "doing", "report"):
                setattr(known, name, message.get(name, getattr(known, name)))
            self.news.notify_all()

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has come there; then all go on. Who has not, in a sentence."""
        self._wait(lambda known: known.doing == place, SILENCE_SECONDS)
        every = sorted(self.heard.items())
        late = [who(number, known) for number, known in every if known.doing != place]
        self._tell({"late": late})
        return late

    def others(self, report: Message) -> Dict[int, Heard]:
        """What is known of the other ranks, once all have reported or fallen silent."""
        del report  # rank 0's own is at hand
        self._wait(lambda known: known.report is not None, REPORT_SECONDS)
        return self.heard

    def _wait(self, there: Callable[[Heard], bool], seconds: float) -> None:
        """Block until `there` is true for every rank that is still connected.

        Each message restarts the timeout.
        """
        end = time.monotonic() + NEVER_HEARD_SECONDS
        with self.news:
            while True:
                waited = [h for h in self.heard.values() if not (there(h) or h.gone)]
                never = end - time.monotonic()
                limit = seconds if any(h.host for h in waited) else max(0.0, never)
                if not waited or not self.news.wait(timeout=limit):
                    return

    def _tell(self, message: Message) -> None:
        for known in self.heard.values():
            send(known.link, message)

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

    def say(self, message: Message) -> None:
        send(self.link, message)  # where rank 0 has gone, the exit code still says it

    def hear(self) -> Message:
        """The next word of rank 0; nothing where it has gone."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(self.told.readline() or "{}"))
        return {}

    def doing(self, name: str) -> None:
        self.say({"doing": name})

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has come there; who has not, in a sentence."""
        self.doing(place)
        return list(self.hear().get("late", ["rank 0 has gone"]))

    def others(self, report: Message) -> Dict[int, Heard]:
        self.say({"report": report})
        return {}

    def settle(self, code: int) -> int:
        """Rank 0's exit code, which is everybody's; 1 where rank 0 went without a word."""
        del code
        said = int(self.hear().get("exit", 1))
        self.told.close()
        self.link.close()
        return said


def places(port: int) -> range:
    """The ports where rank 0 may listen, in their order.

    >>> list(places(29500))[:2], list(places(65530))[:2]
    ([29501, 29502], [65514, 65515])
    """
    first = port + 1 if port + PLACES < 1 << 16 else port - PLACES
    return range(first, first + PLACES)


def _listening(rank: Rank) -> socket.socket:
    """A server on the first port that is free; where all ranks are here, for this host alone."""
    said: Optional[str] = "none is left"
    here = rank.address in ("localhost", "127.0.0.1")
    both = not here and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    for port in places(rank.port):
        try:
            return socket.create_server(
                ("127.0.0.1" if here else "", port),
                family=family,
                backlog=rank.world,
                dualstack_ipv6=both,
            )
        except OSError as problem:
            said = problem.strerror
    raise Blocked(
        f"No port from {rank.port + 1} on can be listened on: {said}",
        "other jobs may hold them: start the ranks with another --master-port",
    )


def _connected(rank: Rank) -> Tuple[socket.socket, Any]:
    """The link to rank 0 and what it says: at that of the ports which answers as this job's."""
    until, said = time.monotonic() + CONNECT_SECONDS, "no time"
    while time.monotonic() < until:
        for port in places(rank.port):
            with contextlib.ExitStack() as closing:
                try:
                    link = socket.create_connection((rank.address, port), WELCOME_SECONDS)
                    told = link.makefile("r", encoding="utf-8")
                    closing.callback(link.close)
                    closing.callback(told.close)
                    send(link, {"rank": rank.rank, "host": rank.host, "job": rank.job})
                    if json.loads(told.readline(MOST_LETTERS) or "{}")["job"] == rank.job:
                        link.settimeout(None)
                        closing.pop_all()
                        return link, told
                except NO_MESSAGE as problem:
                    said = getattr(problem, "strerror", None) or "another program answers there"
        time.sleep(0.2)
    raise Blocked(
        f"rank {rank.rank} on {rank.host} cannot reach rank 0 at "
        f"{rank.address}:{rank.port + 1}: {said}",
        "check that rank 0 runs and that the network allows this port",
    )


def who(number: int, known: Heard) -> str:
    """A rank, where it is, and in which check it was last.

    >>> who(3, Heard())
    'rank 3 was never heard of'
    """
    where = f" on {known.host}" if known.host else ""
    last = f"was last heard of in {known.doing}" if known.doing else "was never heard of"
    return f"rank {number}{where} {last}"


def as_message(report: Report) -> Dict[str, Any]:
    """A rank's report for rank 0."""
    rows = [(*each[:2], each.outcome._asdict(), *each[3:]) for each in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, Heard], rank: Rank) -> Report:
    """Rank 0's report with what the others found: their devices, and what went wrong there.

    What all ranks found together stands once; a rank without a report is a crash of its own.
    """
    devices: List[Dict[str, Any]] = []
    results: List[Result] = []
    for number in range(rank.world):
        said = others[number].report if number else as_message(report)
        if said is None:
            told = Outcome(CRASHED, who(number, others[number]), hint="look at its own output")
            results.append(Result("rank", f"rank {number}", told))
            continue
        rows = said["facts"]["devices"]
        devices += [{**row, "device": f"rank {number} {row['device']}"} for row in rows]
        for name, device, found, *rest in said["results"]:
            shared, outcome = device == f"{rank.world} ranks", Outcome(**found)
            if not shared or outcome.status in (FAILED, CRASHED) or not number:
                place = device if shared and not number else f"rank {number} {device}"
                results.append(Result(name, place, outcome, *rest))
    return report._replace(facts={**report.facts, "devices": devices}, results=tuple(results))
