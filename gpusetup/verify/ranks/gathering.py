"""Collects the reports of all ranks on rank 0, as JSON lines over TCP between the parent processes.

The parents compute nothing and do not load torch, so a rank can report that its computing child
hangs, and rank 0 can name a rank that never answers. Rank 0 listens. The others tell it what they
are doing, send their results, wait for the verdict, and exit with it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from ..values import CRASHED, FAILED, Outcome, Report, ReportBlocked, Result
from .launch import Rank

CONNECT_SECONDS = 240.0
"""How long a rank looks for rank 0. On a cold network file system, even Python starts late."""
NEVER_HEARD_SECONDS = 240.0
"""How long rank 0 waits for a rank that it has never heard from."""
WELCOME_SECONDS = 5.0
"""How long we wait for a port to confirm that it is rank 0's."""
MOST_LETTERS = 1 << 26
"""The greatest length of a message; only another program would send a longer one."""
SILENCE_SECONDS = 330.0
"""How long rank 0 waits for a rank in a check: slightly longer than the longest may last."""
REPORT_SECONDS = 120.0
"""How long rank 0 waits for reports after its own: longer than a check among ranks."""
Message = Dict[str, Any]
NO_MESSAGE = (OSError, ValueError, TypeError, KeyError, AttributeError)
"""Errors of reading a line of another program, or from a closed connection."""


class RankNews:
    """What rank 0 knows about another rank."""

    host: Optional[str] = None
    doing: Optional[str] = None
    report: Optional[Message] = None
    link: Optional[socket.socket] = None
    gone = False


def send(link: Optional[socket.socket], message: Message) -> None:
    """Send a message if there is a connection; errors are ignored."""
    if link is not None:
        with contextlib.suppress(OSError):
            link.sendall(json.dumps(message).encode() + b"\n")


class Hub:
    """Rank 0's side of the connections to all other ranks."""

    def __init__(self, rank: Rank) -> None:
        self.ranks = {number: RankNews() for number in range(1, rank.world)}
        self.job = rank.job
        self.news = threading.Condition()
        self.server = listen(rank)
        threading.Thread(target=self._accept, daemon=True).start()

    def doing(self, name: str) -> None:
        """Does nothing, because rank 0's progress is in its report."""

    def _accept(self) -> None:
        """Accept connections until the server is closed, each handled on a new thread."""
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.server.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: socket.socket) -> None:
        """Receive a rank's messages until it disconnects; one from another job is closed."""
        rank: Optional[RankNews] = None
        with contextlib.suppress(*NO_MESSAGE), link.makefile("r", encoding="utf-8") as lines:
            for line in iter(lambda: lines.readline(MOST_LETTERS), ""):
                message = dict(json.loads(line))
                if rank is None:
                    claimed_rank = self.ranks[message["rank"]]
                    if message["job"] != self.job or claimed_rank.link is not None:
                        break
                    rank = claimed_rank
                    rank.link = link
                    send(link, {"job": self.job})
                self._keep(rank, message)
        if rank is None:
            link.close()
            return
        with self.news:
            rank.gone = True
            self.news.notify_all()

    def _keep(self, rank: RankNews, message: Message) -> None:
        """Store the contents of a message, and wake up the threads that wait for it."""
        with self.news:
            rank.host = message.get("host", rank.host)
            rank.doing = message.get("doing", rank.doing)
            rank.report = message.get("report", rank.report)
            self.news.notify_all()

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has reached this place, then let all continue. Returns a sentence
        for each rank that has not arrived."""
        # A rank may be in a long check, so wait that long.
        self._wait(lambda rank: rank.doing == place, SILENCE_SECONDS)
        ranks = sorted(self.ranks.items())
        late = [who(number, rank) for number, rank in ranks if rank.doing != place]
        for _, rank in ranks:
            send(rank.link, {"late": late})
        return late

    def others(self, report: Message) -> Dict[int, RankNews]:
        """What is known about the other ranks, once all have reported or gone silent."""
        self._wait(lambda rank: rank.report is not None, REPORT_SECONDS)
        return self.ranks

    def _wait(self, has_come: Callable[[RankNews], bool], seconds: float) -> None:
        """Block until `has_come` is true for every rank that is still connected, or until no
        message has come for so long."""
        end = time.monotonic() + NEVER_HEARD_SECONDS
        with self.news:
            while True:
                ranks = self.ranks.values()
                pending = [rank for rank in ranks if not has_come(rank) and not rank.gone]
                # Ranks that have sent nothing have another limit, because they may still be
                # starting.
                is_heard = any(rank.host for rank in pending)
                limit = seconds if is_heard else max(0.0, end - time.monotonic())
                if not pending or not self.news.wait(timeout=limit):
                    return

    def settle(self, code: int) -> int:
        """Send every rank the exit code of the run, close the connections, and return it."""
        # The thread that accepts would keep the port.
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for rank in self.ranks.values():
            send(rank.link, {"exit": code})
            if rank.link is not None:
                rank.link.close()
        return code


class Spoke:
    """A rank's connection to rank 0, the counterpart of Hub on every other rank."""

    def __init__(self, rank: Rank) -> None:
        """Connect to rank 0 as soon as it answers for this job. Raises ReportBlocked."""
        end = time.monotonic() + CONNECT_SECONDS
        reason = "no time"
        while time.monotonic() < end:
            with contextlib.ExitStack() as closing:
                try:
                    place = rank.address, rank.port + 1
                    self.link = closing.enter_context(
                        socket.create_connection(place, WELCOME_SECONDS)
                    )
                    self.answers = closing.enter_context(self.link.makefile("r", encoding="utf-8"))
                    self.say({"rank": rank.rank, "host": rank.host, "job": rank.job})
                    if json.loads(self.answers.readline(MOST_LETTERS) or "{}")["job"] == rank.job:
                        # After the welcome, a check may take longer than the timeout.
                        self.link.settimeout(None)
                        closing.pop_all()
                        return
                    reason = "another job answers there"
                except NO_MESSAGE as problem:
                    reason = getattr(problem, "strerror", None) or "another program answers there"
            time.sleep(0.2)
        raise ReportBlocked(
            f"rank {rank.rank} on {rank.host} cannot reach rank 0 at "
            f"{rank.address}:{rank.port + 1}: {reason}",
            "check that rank 0 runs and that the network allows this port",
        )

    def say(self, message: Message) -> None:
        """Send a message to rank 0. If it has gone, `settle` returns exit code 1."""
        send(self.link, message)

    def hear(self) -> Message:
        """The next message from rank 0; empty if rank 0 has gone."""
        with contextlib.suppress(OSError, ValueError):
            # An empty line means that the other side has closed the connection.
            return dict(json.loads(self.answers.readline() or "{}"))
        return {}

    def doing(self, name: str) -> None:
        """Tell rank 0 which check begins."""
        self.say({"doing": name})

    def come_to(self, place: str) -> List[str]:
        """Wait until every rank has reached this place. Returns a sentence for each rank that has
        not arrived."""
        self.doing(place)
        return list(self.hear().get("late", ["rank 0 has gone"]))

    def others(self, report: Message) -> Dict[int, RankNews]:
        """Send this rank's report to rank 0, which alone knows about the others."""
        self.say({"report": report})
        return {}

    def settle(self, code: int) -> int:
        """Wait for rank 0's exit code, which counts in place of `code`; 1 if it has gone."""
        exit_code = int(self.hear().get("exit", 1))
        self.answers.close()
        self.link.close()
        return exit_code


def listen(rank: Rank) -> socket.socket:
    """A server on the port above that of torch's store, for this host only if all ranks are here.
    Raises ReportBlocked."""
    all_ranks_here = rank.address in ("localhost", "127.0.0.1")
    # An empty name means all addresses of this host.
    interface = "127.0.0.1" if all_ranks_here else ""
    both_families = not all_ranks_here and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            (interface, rank.port + 1),
            family=socket.AF_INET6 if both_families else socket.AF_INET,
            backlog=rank.world,
            dualstack_ipv6=both_families,
        )
    except OSError as problem:
        raise ReportBlocked(
            f"Port {rank.port + 1} cannot be listened on: {problem.strerror}",
            "another job may hold it: start the ranks with another --master-port",
        ) from problem


def who(number: int, rank: RankNews) -> str:
    """A description of a rank: its number, its host, and the check that it last reported."""
    # The first message of a rank contains its host name.
    name = f"rank {number} on {rank.host}" if rank.host else f"rank {number}"
    return f"{name} was {f'last heard of in {rank.doing}' if rank.doing else 'never heard of'}"


def as_message(report: Report) -> Message:
    """A rank's report as a message for rank 0."""
    # JSON has no named tuples.
    rows = [{**each._asdict(), "outcome": each.outcome._asdict()} for each in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, RankNews], rank: Rank) -> Report:
    """Rank 0's report with the other ranks' devices and problems added. What all ranks found
    together appears once; a rank without a report appears as a crash."""
    devices: List[Dict[str, Any]] = []
    results: List[Result] = []
    for number in range(rank.world):
        message = others[number].report if number else as_message(report)
        if message is None:
            crash = Outcome(CRASHED, who(number, others[number]), hint="look at its own output")
            results.append(Result("rank", f"rank {number}", crash))
            continue
        for row in message["facts"]["devices"]:
            devices.append({**row, "device": f"rank {number} {row['device']}"})
        for row in message["results"]:
            result = Result(**{**row, "outcome": Outcome(**row["outcome"])})
            is_of_all_ranks = result.device == f"{rank.world} ranks"
            # Rank 0 shows what all ranks found; of another rank it shows only what went wrong.
            if is_of_all_ranks and number and result.outcome.status not in (FAILED, CRASHED):
                continue
            if not is_of_all_ranks or number:
                result = result._replace(device=f"rank {number} {result.device}")
            results.append(result)
    facts = {**report.facts, "devices": devices}
    return report._replace(facts=facts, results=tuple(results))
