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
from typing import Any, Dict, List

from ..values import CRASHED, FAILED, Outcome, Report, ReportBlocked, Result
from .launch import Rank

CONNECT_SECONDS = 240.0
"""How long a rank looks for rank 0. On a cold network file system, even Python starts late."""
WELCOME_SECONDS = 5.0
"""How long we wait for a port to confirm that it is rank 0's."""
MOST_LETTERS = 1 << 26
"""The greatest length of a message; only another program would send a longer one."""
SILENCE_SECONDS = 330.0
"""How long rank 0 waits without news of the others: slightly longer than the longest check."""
Message = Dict[str, Any]
REPORT = "report"
"""What a rank is `doing` when it sends its report."""
NO_MESSAGE = (OSError, ValueError, TypeError, KeyError)
"""Errors of reading a line of another program, or from a closed connection."""


def send(link: Any, message: Message) -> None:
    """Send a message if there is a connection; errors are ignored."""
    if link is not None:
        with contextlib.suppress(OSError):
            link.sendall(json.dumps(message).encode() + b"\n")


class Hub:
    """Rank 0's side of the connections to all other ranks."""

    def __init__(self, rank: Rank) -> None:
        """Listen on the port above that of torch's store, for this host only if all ranks are here.
        Raises ReportBlocked."""
        self.ranks: Dict[int, Message] = {number: {} for number in range(1, rank.world)}
        """What each rank has said: its `host`, the check that it is `doing`, its `report`; with its
        `link`, and whether it is `gone`. Empty for a rank that was never heard of."""
        self.job = rank.job
        self.news = threading.Condition()
        all_ranks_here = rank.address in ("localhost", "127.0.0.1")
        both_families = not all_ranks_here and socket.has_dualstack_ipv6()
        try:
            self.server = socket.create_server(
                # An empty name means all addresses of this host.
                ("127.0.0.1" if all_ranks_here else "", rank.port + 1),
                family=socket.AF_INET6 if both_families else socket.AF_INET,
                backlog=rank.world,
                dualstack_ipv6=both_families,
            )
        except OSError as problem:
            raise ReportBlocked(
                f"Port {rank.port + 1} cannot be listened on: {problem.strerror}",
                "another job may hold it: start the ranks with another --master-port",
            ) from problem
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        """Accept connections until the server is closed, each handled on a new thread."""
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.server.accept()
                threading.Thread(target=self._listen, args=(link,), daemon=True).start()

    def _listen(self, link: socket.socket) -> None:
        """Keep a rank's messages until it disconnects; a connection from another job is closed."""
        rank: Message = {}
        with contextlib.suppress(*NO_MESSAGE), link.makefile("r", encoding="utf-8") as lines:
            for line in iter(lambda: lines.readline(MOST_LETTERS), ""):
                message = dict(json.loads(line))
                # The first message says which rank this is.
                if not rank:
                    named_rank = self.ranks[message["rank"]]
                    # It belongs to another job, or another connection has spoken for this rank.
                    if message["job"] != self.job or named_rank:
                        break
                    rank = named_rank
                    message["link"] = link
                    send(link, {"job": self.job})
                with self.news:
                    rank.update(message)
                    self.news.notify_all()
        if not rank:
            link.close()
            return
        with self.news:
            rank["gone"] = True
            self.news.notify_all()

    def meet_at(self, place: str, stopped: str) -> str:
        """Wait until every rank has reached this place. Returns why the ranks cannot go on
        together, which is empty if they can: `stopped`, what another rank says, or who is late."""
        self._wait(place)
        late = [who(number, rank) for number, rank in self.ranks.items() if is_late(rank, place)]
        reasons = [stopped, *(rank.get("stopped", "") for rank in self.ranks.values())]
        reason = next(filter(None, reasons), "; ".join(late))
        for rank in self.ranks.values():
            send(rank.get("link"), {"stopped": reason})
        return reason

    def exchange_reports(self, report: Message) -> Dict[int, Message]:
        """What is known about the other ranks, once all have reported or gone silent. Rank 0 sends
        its own `report` to nobody; the argument is Spoke's."""
        self._wait(REPORT)
        return self.ranks

    def _wait(self, place: str) -> None:
        """Block until every rank that is still connected has reached this place, or until no
        message has come for SILENCE_SECONDS."""
        ranks = self.ranks.values()
        with self.news:
            while any("gone" not in rank and is_late(rank, place) for rank in ranks):
                if not self.news.wait(SILENCE_SECONDS):
                    return

    def finish(self, code: int) -> int:
        """Send every rank the exit code of the run, close the connections, and return it."""
        # The thread that accepts would keep the port.
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for rank in self.ranks.values():
            send(rank.get("link"), {"exit": code})
            if "link" in rank:
                rank["link"].close()
        return code


class Spoke:
    """A rank's connection to rank 0, the counterpart of Hub on every other rank."""

    def __init__(self, rank: Rank) -> None:
        """Connect to rank 0 as soon as it answers for this job. Raises ReportBlocked."""
        end = time.monotonic() + CONNECT_SECONDS
        place = rank.address, rank.port + 1
        while True:
            try:
                self.link = socket.create_connection(place, WELCOME_SECONDS)
                self.answers = self.link.makefile("r", encoding="utf-8")
                send(self.link, {"rank": rank.rank, "host": rank.host, "job": rank.job})
                if self.receive().get("job") == rank.job:
                    # After the welcome, a check may take longer than the timeout.
                    self.link.settimeout(None)
                    return
                self.answers.close()
                self.link.close()
                reason = "another program or job answers there"
            except OSError as problem:
                reason = problem.strerror or str(problem)
            if time.monotonic() >= end:
                raise ReportBlocked(
                    f"rank {rank.rank} on {rank.host} cannot reach rank 0 at "
                    f"{rank.address}:{rank.port + 1}: {reason}",
                    "check that rank 0 runs and that the network allows this port",
                )
            time.sleep(0.2)

    def receive(self) -> Message:
        """The next message from rank 0; empty if rank 0 has gone."""
        with contextlib.suppress(*NO_MESSAGE):
            # An empty line means that the other side has closed the connection.
            return dict(json.loads(self.answers.readline(MOST_LETTERS) or "{}"))
        return {}

    def meet_at(self, place: str, stopped: str) -> str:
        """Wait until every rank has reached this place. Returns why they cannot go on together, as
        Hub's method does."""
        send(self.link, {"doing": place, "stopped": stopped})
        return str(self.receive().get("stopped", "rank 0 has gone"))

    def exchange_reports(self, report: Message) -> Dict[int, Message]:
        """Send this rank's report to rank 0, which alone knows about the others."""
        send(self.link, {"doing": REPORT, "report": report})
        return {}

    def exit_code(self) -> int:
        """Wait for the exit code of rank 0, which judges the whole run; 1 if it has gone."""
        exit_code = int(self.receive().get("exit", 1))
        self.answers.close()
        self.link.close()
        return exit_code


def is_late(rank: Message, place: str) -> bool:
    """Whether a rank has not reached this place, nor the end of its run."""
    return rank.get("doing") not in (place, REPORT)


def who(number: int, rank: Message) -> str:
    """A description of a rank: its number, its host, and the check that it last reported."""
    name = f"rank {number} on {rank['host']}" if "host" in rank else f"rank {number}"
    if "doing" not in rank:
        return f"{name} was never heard of"
    return f"{name} was last heard of in {rank['doing']}"


def as_message(report: Report) -> Message:
    """A rank's report as a message for rank 0."""
    # JSON has no named tuples.
    rows = [{**each._asdict(), "outcome": each.outcome._asdict()} for each in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, Message], rank: Rank) -> Report:
    """Rank 0's report with the other ranks' devices and problems added. What all ranks found
    together appears once; a rank without a report appears as a crash."""
    devices: List[Message] = []
    results: List[Result] = []
    for number in range(rank.world):
        message = others[number].get("report") if number else as_message(report)
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
            # Called `rank 1 of 4 ranks` or `rank 1 cuda:0`.
            if not is_of_all_ranks or number:
                of = " of" if is_of_all_ranks else ""
                result = result._replace(device=f"rank {number}{of} {result.device}")
            results.append(result)
    facts = {**report.facts, "devices": devices}
    return report._replace(facts=facts, results=tuple(results))
