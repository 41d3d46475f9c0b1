"""Rank 0's side of a sweep: asks each round of the ranks, waits no longer than its limit.

The ranks' own processes talk with this one over TCP (`verify/ranks/gathering.py`); their workers
meet in groups through a store. No round waits for a rank that does not answer: it is left out of
those that follow.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.sweep.course import Sweep
from gpusetup.fleet.sweep.follow import Follower, Message, parsed
from gpusetup.fleet.sweep.judge import Result, Round, Unit
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Lines
from gpusetup.verify.ranks.gathering import Heard, Hub, send
from gpusetup.verify.ranks.launch import Rank

SLACK_SECONDS = 2.0
"""In addition to a round's limit, for answers that are on their way."""
REPEATS, QUARTER = 8, 4
ANSWERS = ("computed", "exchanged", "failed", "died")


class Sizes(Frozen):
    """How much is exchanged, and how long that may take."""

    bytes: int
    limit: float
    """Seconds of one round."""
    meet: float
    """Seconds until all ranks have come with a torch that computes."""


class Gathering(Hub):
    """The other ranks; what they say waits in one queue."""

    def __init__(self, rank: Rank, inbox: queue.SimpleQueue[tuple[int, Message]]) -> None:
        self.inbox = inbox
        super().__init__(rank)

    def _hear(self, known: Heard, message: Message) -> None:
        super()._hear(known, message)
        number = next(rank for rank, each in self.heard.items() if each is known)
        told = message.get("told")
        if isinstance(told, dict) and isinstance(told.get("said"), str):
            self.inbox.put((number, told))


class Leader:
    """All ranks of a sweep, as rank 0 sees them. `store`: the command of the store where groups
    meet."""

    def __init__(
        self, rank: Rank, worker: Sequence[str], store: Sequence[str], sizes: Sizes
    ) -> None:
        self.rank, self.sizes = rank, sizes
        self.store = Lines(store)
        self.place: Message = {}
        self.inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.others = Gathering(rank, self.inbox)
        self.known: dict[int, Unit] = {}
        """Ranks whose torch computes, and that have reached the store."""
        self.absent: dict[int, str] = {}
        home = {"host": rank.host, "local": rank.local}
        self.own = Follower(worker, home, lambda message: self.inbox.put((0, message)))

    # --- meeting -----------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until every rank is ready, or its time is over; who is not, is absent."""
        end, problems = time.monotonic() + self.sizes.meet, dict[int, str]()
        waited = {*range(self.rank.world)}
        port = store_port(self.store, self.sizes.meet)
        self.place = {"address": self.rank.address, "port": port}
        for number, message in self._heard(end):
            self._greet(number, message)
            if message["said"] in ("broken", "died", "failed"):
                problems.setdefault(number, str(message.get("problem", ""))[:300])
            if number in self.known or number in problems:
                waited.discard(number)
            if not waited:
                break
        gpus = any(unit.device != "cpu" for unit in self.known.values())
        for number in range(self.rank.world):
            why = problems.get(number) or f"it was not ready within {self.sizes.meet:g} s"
            if number not in self.known:
                self.absent[number] = why
            elif gpus and self.known[number].device == "cpu":
                del self.known[number]
                self.absent[number] = "its torch sees no GPU, and others do"

    def _greet(self, number: int, message: Message) -> None:
        if message["said"] == "ready":
            self._send(number, {"do": "join", **self.place})
        if message["said"] == "joined":
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self.known[number] = unit_of(number, message)

    def _heard(self, end: float) -> Iterator[tuple[int, Message]]:
        """What is said until the end."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self.inbox.get(timeout=max(0.0, end - time.monotonic()))

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(self.known[number] for number in sorted(self.known))

    def host(self, number: int) -> str:
        """Where a rank is; empty if it never said so."""
        return (self.others.heard[number].host or "") if number else self.rank.host

    # --- rounds ------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """Measure until nothing is left to ask."""
        found = Sweep(self.units)
        for asked in found.rounds():
            found.results.append(self.measured(asked))
        return found

    def measured(self, asked: Round) -> Result:
        """Ask a round, and gather what comes within its limit."""
        for rank, question in self._questions(asked):
            self._send(rank, question)
        told, waited = dict[int, Message](), {*asked.asked}
        for number, message in self._heard(time.monotonic() + self.sizes.limit + SLACK_SECONDS):
            self._greet(number, message)
            if message["said"] in ANSWERS and message.get("round") in (asked.number, None):
                told[number] = message
                waited.discard(number)
            if not waited:
                break
        problems = (str(one["problem"])[:300] for one in told.values() if "problem" in one)
        return Result(
            round=asked,
            rates={
                group: self._rate(asked, [told[rank] for rank in group])
                for group in asked.groups
                if waited.isdisjoint(group)
            },
            silent=tuple(waited),
            problem=next(problems, ""),
        )

    def _questions(self, asked: Round) -> Iterable[tuple[int, Message]]:
        for group in asked.groups:
            whole = {
                "do": "compute" if asked.stage == "computing" else "exchange",
                "round": asked.number, "size": len(group), "bytes": self.sizes.bytes,
                "repeats": REPEATS, "limit": self.sizes.limit, **self.place,
                "group": f"{time.monotonic_ns()}/{asked.number}/{group[0]}",
            }  # fmt: skip
            for place, rank in enumerate(group):
                yield rank, {**whole, "place": place}

    def _send(self, rank: int, question: Message) -> None:
        if rank == 0:
            self.own.ask(question)
        else:
            send(self.others.heard[rank].link, {"ask": question})

    def _rate(self, asked: Round, answers: Sequence[Mapping[str, Any]]) -> float:
        if asked.stage == "computing":
            rate = answers[0].get("rate")
            return float(rate) if isinstance(rate, int | float) and rate > 0 else 0.0
        return bus_rate([answer.get("seconds") for answer in answers], self.sizes.bytes)

    def end(self, code: int) -> None:
        """Tell all ranks how it ended."""
        self.own.end()
        self.store.end()
        self.others.settle(code)


def unit_of(number: int, message: Message) -> Unit:
    """What a rank says of itself; raises if it is not said as it should be."""
    return Unit(
        rank=number,
        host=str(message["host"])[:255],
        local=int(message["local"]),
        device=str(message["device"])[:200],
    )


def store_port(store: Lines, seconds: float) -> int:
    """Where the store listens. Raises Blocked if it does not come up."""
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


def bus_rate(times: Sequence[Any], moved: int) -> float:
    """Bus bandwidth of an all_reduce in bytes/s (nccl-tests' factor); 0 if it did not end.

    Of each repeat the rank that came last counts, of all repeats the faster quarter.

    >>> bus_rate([[2.0, 1.0, 1.0, 9.0], [2.0, 3.0, 1.0, 8.0]], 100)
    100.0
    """
    if not all(isinstance(each, list) and each for each in times):
        return 0.0
    repeats: list[float] = sorted(min(of_each) for of_each in zip(*times, strict=False))
    size = len(times)
    return moved * 2 * (size - 1) / size / repeats[(len(repeats) - 1) // QUARTER]
