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

from gpusetup.fleet.sweep.decide import next_round
from gpusetup.fleet.sweep.follow import Follower, Message
from gpusetup.fleet.sweep.values import Exchanged, Options, Result, Round, Unit
from gpusetup.model.frozen import Frozen
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
        self.numbers: dict[int, int] = {}
        self.sending = threading.Lock()
        super().__init__(rank)

    def _hear(self, known: Heard, message: Message) -> None:
        super()._hear(known, message)
        number = next(rank for rank, each in self.heard.items() if each is known)
        if isinstance(message.get("told"), dict):
            self.inbox.put((number, message["told"]))

    def send(self, rank: int, message: Message) -> None:
        link = self.heard[rank].link
        with self.sending, contextlib.suppress(OSError):
            if link is not None:
                link.sendall((json.dumps(message) + "\n").encode())

    def to_all(self, message: Message) -> None:
        for rank in self.heard:
            self.send(rank, message)


class Known(Frozen):
    """A rank that is ready."""

    unit: Unit
    address: str
    port: int
    torch: str


class Leader:
    """All ranks of a sweep, as rank 0 sees them."""

    def __init__(self, rank: Rank, worker: Sequence[str], sizes: Sizes) -> None:
        self.rank, self.sizes = rank, sizes
        self.inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.others = Gathering(rank, self.inbox)
        self.known: dict[int, Known] = {}
        self.absent: dict[int, str] = {}
        self.lost: dict[int, int] = {}
        beside = {"host": rank.host, "local": rank.local, "address": rank.address}
        self.own = Follower(worker, beside, lambda message: self.inbox.put((0, message)))

    # --- meeting -----------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until every rank is ready, or its time is over; who is not, is absent."""
        end = time.monotonic() + self.sizes.meet
        problems: dict[int, str] = {}
        while len(self.known) + len(problems) < self.rank.world and time.monotonic() < end:
            for number, message in self._heard(end):
                if message["said"] in ("broken", "died"):
                    problems[number] = str(message.get("problem", ""))[:300]
                self._greet(number, message)
        for number in range(self.rank.world):
            if number not in self.known:
                self.absent[number] = problems.get(number) or self._why_absent(number)
        threading.Thread(target=self._beat, daemon=True).start()

    def _greet(self, number: int, message: Message) -> None:
        if message["said"] == "ready":
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self.known[number] = known(number, message)

    def _why_absent(self, number: int) -> str:
        seconds = f"{self.sizes.meet:g} s"
        heard = self.others.heard.get(number)
        if number and (heard is None or heard.host is None):
            return f"it did not come within {seconds}"
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
        return tuple(self.known[number].unit for number in sorted(self.known))

    def host(self, number: int) -> str:
        """Where a rank is; empty where it never said so."""
        if number in self.known:
            return self.known[number].unit.host
        heard = self.others.heard.get(number)
        return (heard.host or "") if heard else self.rank.host if not number else ""

    # --- rounds ------------------------------------------------------------------------------

    def sweep(self, options: Options, said: Any = lambda result: None) -> list[Result]:
        """Measure until nothing is left to ask."""
        results: list[Result] = []
        while (asked := next_round(self.units, results, options)) is not None:
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
        stuck = [rank for group in asked.groups if set(group) <= set(silent) for rank in group]
        self._renew([*stuck, *(rank for rank, answer in told.items() if answer["said"] == "died")])
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
            first = self.known[group[0]]
            whole = {
                "do": "exchange", "round": asked.number, "size": len(group),
                "group": f"{time.monotonic_ns()}/{asked.number}/{index}", "port": first.port,
                "address": first.address, "bytes": self.sizes.bytes,
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
                wanted -= {number} if message["said"] in ("ready", "broken", "died") else set()

    def end(self, code: int, words: str) -> None:
        """Tell all ranks how it ended."""
        self.others.to_all({"exit": code, "words": words})
        self.own.end()
        self.others.settle(code)


def known(number: int, message: Message) -> Known:
    """What a rank says of itself; raises where it is not said as it should be."""
    unit = Unit(
        rank=number,
        host=str(message["host"])[:255],
        local=int(message["local"]),
        device=str(message["device"])[:200],
    )
    port, address = int(message["port"]), str(message["address"])[:255]
    return Known(unit=unit, address=address, port=port, torch=str(message["torch"])[:50])


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
