"""Rank 0's side of a sweep: asks each round of the ranks, waits no longer than its limit.

The ranks' own processes talk with this one over TCP (`verify/ranks/gathering.py`); their workers
meet in groups by the store of a group's first rank. No round waits for a rank that does not
answer: it is left out of those that follow.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.sweep.decide import next_round
from gpusetup.fleet.sweep.follow import Follower, Message, parsed
from gpusetup.fleet.sweep.values import Exchanged, Result, Round, Unit
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Lines
from gpusetup.verify.ranks.gathering import Heard, Hub
from gpusetup.verify.ranks.launch import Rank

SLACK_SECONDS = 2.0
"""Beside a round's limit, for answers that are on their way."""
BEAT_SECONDS = 5.0
"""How often the leader says that it is there."""
GLANCE_SECONDS = 0.2
RENEWALS = 2
"""Workers that a rank may lose; one that loses more is left out."""
QUARTER = 4
ANSWERS = ("computed", "exchanged", "failed", "died")


class Sizes(Frozen):
    """How much is exchanged, how often, and how long that may take."""

    bytes: int
    repeats: int
    limit: float
    """Seconds of one round."""
    meet: float
    """Seconds until all ranks have come with a torch that computes."""


class Gathering(Hub):
    """The other ranks; what they say stands in one queue."""

    def __init__(self, rank: Rank, inbox: queue.SimpleQueue[tuple[int, Message]]) -> None:
        self.inbox = inbox
        self.welcome: set[int] = set()
        """Who has had the first word; no other may come before it."""
        self.sending = threading.Lock()
        super().__init__(rank)

    def _hear(self, known: Heard, message: Message) -> None:
        super()._hear(known, message)
        number = next(rank for rank, each in self.heard.items() if each is known)
        self.welcome.add(number)
        told = message.get("told")
        if isinstance(told, dict) and isinstance(told.get("said"), str):
            self.inbox.put((number, told))

    def send(self, rank: int, message: Message) -> None:
        link = self.heard[rank].link
        with self.sending, contextlib.suppress(OSError):
            if link is not None:
                link.sendall((json.dumps(message) + "\n").encode())

    def to_all(self, message: Message) -> None:
        for rank in tuple(self.welcome):
            self.send(rank, message)


class Meeting(Frozen):
    """Where the groups meet."""

    command: tuple[str, ...]
    """Starts the store on this host."""
    address: str
    """This host, as the ranks reach it."""


class Leader:
    """All ranks of a sweep, as rank 0 sees them."""

    def __init__(self, rank: Rank, worker: Sequence[str], meeting: Meeting, sizes: Sizes) -> None:
        self.rank, self.sizes, self.meeting = rank, sizes, meeting
        self.store = Lines(meeting.command)
        self.port = 0
        self.inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.others = Gathering(rank, self.inbox)
        self.ready: dict[int, Unit] = {}
        """Ranks whose torch computes."""
        self.known: dict[int, Unit] = {}
        """Those that have reached the store too."""
        self.absent: dict[int, str] = {}
        self.lost: dict[int, int] = {}
        beside = {"host": rank.host, "local": rank.local}
        threading.Thread(target=self._beat, daemon=True).start()
        self.own = Follower(worker, beside, lambda message: self.inbox.put((0, message)))

    # --- meeting -----------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until every rank is ready, or its time is over; who is not, is absent."""
        end = time.monotonic() + self.sizes.meet
        problems: dict[int, str] = {}
        self.port = store_port(self.store, self.sizes.meet)
        while len(self.known) + len(problems) < self.rank.world and time.monotonic() < end:
            for number, message in self._heard(end):
                if message["said"] in ("broken", "died", "failed"):
                    problems.setdefault(number, str(message.get("problem", ""))[:300])
                self._greet(number, message)
        for number in range(self.rank.world):
            if number not in self.known:
                self.absent[number] = problems.get(number) or self._why_absent(number)
        self._leave_out_without_gpu()

    def _leave_out_without_gpu(self) -> None:
        """A rank whose torch sees no GPU cannot exchange with those whose torch does."""
        without = [number for number, one in self.known.items() if one.device == "cpu"]
        if len(without) < len(self.known):
            for number in without:
                del self.known[number]
                self.absent[number] = "its torch sees no GPU, and others do"

    def _greet(self, number: int, message: Message) -> None:
        if message["said"] == "ready":
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self.ready[number] = unit_of(number, message)
                place = {"address": self.meeting.address, "port": self.port}
                self._send(number, {"do": "join", **place})
        if message["said"] == "joined" and number in self.ready:
            self.known[number] = self.ready[number]

    def _why_absent(self, number: int) -> str:
        seconds = f"{self.sizes.meet:g} s"
        heard = self.others.heard.get(number)
        if number and (heard is None or heard.host is None):
            return f"it did not come within {seconds}"
        if number in self.ready:
            return f"it did not reach the store at {self.meeting.address}:{self.port}"
        return f"its torch was not ready within {seconds}"

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            self.others.to_all({"beat": True})

    def _heard(self, end: float) -> Iterable[tuple[int, Message]]:
        """What was said, waiting for the first word no longer than a glance or until the end."""
        with contextlib.suppress(queue.Empty):
            left = max(0.0, min(GLANCE_SECONDS, end - time.monotonic()))
            yield self.inbox.get(timeout=left)
            while True:
                yield self.inbox.get_nowait()

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(self.known[number] for number in sorted(self.known))

    def host(self, number: int) -> str:
        """Where a rank is; empty where it never said so."""
        if number in self.known:
            return self.known[number].host
        heard = self.others.heard.get(number)
        return (heard.host or "") if heard else self.rank.host if not number else ""

    # --- rounds ------------------------------------------------------------------------------

    def sweep(self, said: Any = lambda result: None) -> list[Result]:
        """Measure until nothing is left to ask."""
        results: list[Result] = []
        while (asked := next_round(self.units, results)) is not None:
            results.append(self.measured(asked))
            said(results[-1])
        return results

    def measured(self, asked: Round) -> Result:
        """Ask a round, and gather what comes within its limit."""
        began = time.monotonic()
        for rank, question in self._questions(asked):
            self._send(rank, question)
        told = self._answers(asked, began + self.sizes.limit + SLACK_SECONDS)
        silent = tuple(rank for rank in asked.asked if rank not in told)
        self._renew([rank for rank, answer in told.items() if answer["said"] == "died"])
        return Result(
            round=asked,
            exchanged=tuple(self._exchanged(group, told) for group in asked.groups),
            computed={rank: rate for rank in asked.ranks if (rate := _rate(told.get(rank)))},
            silent=silent,
            seconds=time.monotonic() - began,
        )

    def _questions(self, asked: Round) -> Iterable[tuple[int, Message]]:
        for rank in asked.ranks:
            yield rank, {"do": "compute", "round": asked.number}
        for index, group in enumerate(asked.groups):
            whole = {
                "do": "exchange", "round": asked.number, "size": len(group), "ranks": group,
                "group": f"{time.monotonic_ns()}/{asked.number}/{index}",
                "bytes": self.sizes.bytes,
                "repeats": self.sizes.repeats, "limit": self.sizes.limit,
            }  # fmt: skip
            for place, rank in enumerate(group):
                yield rank, {**whole, "place": place}

    def _send(self, rank: int, question: Message) -> None:
        if rank == 0:
            self.own.ask(question)
        else:
            self.others.send(rank, {"ask": question})

    def _answers(self, asked: Round, end: float) -> dict[int, Message]:
        told: dict[int, Message] = {}
        waited = set(asked.asked)
        while waited and time.monotonic() < end:
            for number, message in self._heard(end):
                self._greet(number, message)
                if message["said"] in ANSWERS and message.get("round") in (asked.number, None):
                    told[number] = message
                    waited.discard(number)
        return told

    def _exchanged(self, group: Sequence[int], told: Mapping[int, Message]) -> Exchanged:
        answers = [told.get(rank, {}) for rank in group]
        times = [answer.get("seconds") for answer in answers]
        problems = (str(answer["problem"])[:300] for answer in answers if "problem" in answer)
        rate = bus_rate(times, self.sizes.bytes)
        return Exchanged(group=tuple(group), rate=rate, problem=next(problems, ""))

    def _renew(self, ranks: Sequence[int]) -> None:
        """Give these ranks new workers, and wait until they are ready."""
        for rank in ranks:
            self.lost[rank] = self.lost.get(rank, 0) + 1
        wanted = {rank for rank in ranks if self.lost[rank] <= RENEWALS}
        for rank in wanted:
            if rank == 0:
                self.own.start()
            else:
                self.others.send(rank, {"renew": True})
        end = time.monotonic() + self.sizes.meet
        while wanted and time.monotonic() < end:
            for number, message in self._heard(end):
                self._greet(number, message)
                wanted -= {number} if message["said"] in ("joined", "broken", "died") else set()

    def end(self, code: int) -> None:
        """Tell all ranks how it ended."""
        self.own.end()
        self.store.end()
        self.others.settle(code)


def unit_of(number: int, message: Message) -> Unit:
    """What a rank says of itself; raises where it is not said as it should be."""
    return Unit(
        rank=number,
        host=str(message["host"])[:255],
        local=int(message["local"]),
        device=str(message["device"])[:200],
    )


def store_port(store: Lines, seconds: float) -> int:
    """Where the store listens. Raises Blocked where it does not come up."""
    end, said = time.monotonic() + seconds, ""
    try:
        while True:
            line = store.next(end - time.monotonic())
            message = parsed(line)
            if message.get("said") == "store":
                return int(message["port"])
            said = str(message.get("problem", "")) or line or said
    except (TimeoutError, EOFError) as problem:
        raise Blocked(
            f"The store of the sweep did not come up: {said[:300] or problem}",
            hint="`gpusetup verify` says whether this torch works; `--python` names another",
        ) from problem


def _rate(answer: Message | None) -> float:
    found = (answer or {}).get("rate")
    return float(found) if isinstance(found, int | float) and found > 0 else 0.0


def bus_rate(times: Sequence[Any], moved: int) -> float:
    """Bus bandwidth of an all_reduce in bytes/s (nccl-tests' factor); 0 where it did not end.

    Of each repeat counts the rank that came last, of all repeats the faster quarter.

    >>> bus_rate([[2.0, 1.0, 1.0, 9.0], [2.0, 3.0, 1.0, 8.0]], 100)
    100.0
    """
    if not times or not all(isinstance(each, list) and each for each in times):
        return 0.0
    repeats: list[float] = sorted(min(of_each) for of_each in zip(*times, strict=False))
    size = len(times)
    return moved * 2 * (size - 1) / size / repeats[(len(repeats) - 1) // QUARTER]
