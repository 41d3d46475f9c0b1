"""Rank 0's side of a sweep: starts each round on the ranks, and waits for it no longer than the
round's time limit.

The other ranks' processes communicate with this one over TCP (`verify/ranks/gathering.py`); their
workers connect in pairs through a store. No round waits for a rank that does not respond: it is
left out of the following rounds.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.sweep.follower import Follower, Message, message_in
from gpusetup.fleet.sweep.rounds import Sweep
from gpusetup.fleet.sweep.scores import Round, RoundResult, Unit
from gpusetup.system.processes import StreamingChild
from gpusetup.verify.ranks.gathering import Hub, RankNews, send
from gpusetup.verify.ranks.launch import Rank

SLACK_SECONDS = 2.0
"""How many seconds we wait for late messages after a round's time limit."""
MEET_SECONDS = 240.0
"""How many seconds the ranks have to start and to become ready with a working torch."""
GPU_BYTES, CPU_BYTES = 1 << 27, 1 << 22
"""How many bytes a pair of ranks exchanges on GPUs, and how many on CPUs."""
REPEATS, FASTER_QUARTER = 8, 4


class Gathering(Hub):
    """The connections to the other ranks. Messages from their workers go into one queue."""

    def __init__(self, rank: Rank, inbox: queue.SimpleQueue[tuple[int, Message]]) -> None:
        self.inbox = inbox
        super().__init__(rank)

    def _keep(self, rank_link: RankNews, message: Message) -> None:
        super()._keep(rank_link, message)
        worker_message = message.get("told")
        # Another version's follower, or a stranger who connects to the port, may send anything.
        if not isinstance(worker_message, dict):
            return
        if not isinstance(worker_message.get("said"), str):
            return
        for rank, link in self.ranks.items():
            if link is rank_link:
                self.inbox.put((rank, worker_message))


class Leader:
    """Leads a sweep from rank 0: starts the rounds on all ranks and collects the results."""

    def __init__(self, rank: Rank, worker: Sequence[str], store: Sequence[str]) -> None:
        """`worker` is the command of this rank's worker; `store` is the command that starts the
        store through which pairs connect."""
        self.rank = rank
        self.store = StreamingChild(store)
        self.inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.others = Gathering(rank, self.inbox)
        self.ready_units: dict[int, Unit] = {}
        """Ranks with a working torch that have connected to the store."""
        self.absent: dict[int, str] = {}
        # Rank 0 takes part too.
        self.own = Follower(worker, self._hear_own)
        port = store_port(self.store, MEET_SECONDS)
        self.store_address = {"address": rank.address, "port": port}

    def _hear_own(self, message: Message) -> None:
        """Put a message from this rank's worker into the queue."""
        # Use the same queue as for the other ranks' messages.
        own_number = 0
        self.inbox.put((own_number, message))

    def meet(self) -> None:
        """Wait until every rank is ready, or until the time limit. Ranks that are not ready by then
        are recorded as absent."""
        pending = {*range(self.rank.world)}
        for number, message in self._heard(MEET_SECONDS):
            self._welcome(number, message)
            pending -= self.ready_units.keys()
            pending -= self.absent.keys()
            if not pending:
                break
        late = f"it was not ready within {MEET_SECONDS:g} s"
        self.absent |= dict.fromkeys(pending, late)
        without_gpu = []
        for number, unit in self.ready_units.items():
            if unit.device == "cpu":
                without_gpu.append(number)
        # If all ranks are on the CPU, this was intended; if only some are, something is wrong.
        if len(without_gpu) < len(self.ready_units):
            reason = "its torch sees no GPU, but other ranks see one"
            self.absent |= dict.fromkeys(without_gpu, reason)

    def _welcome(self, number: int, message: Message) -> None:
        """Process a rank's message before the first round: the rank is ready, has connected to the
        store, or has died."""
        said = message["said"]
        if said == "ready":
            self._send(number, {"do": "join", **self.store_address})
        elif said == "joined":
            self.ready_units[number] = self._unit(number, message)
        else:
            problem = str(message.get("problem", ""))
            self.absent[number] = problem[:LONGEST_PROBLEM]

    def _unit(self, number: int, message: Message) -> Unit:
        """The record of a rank that is ready. Texts from the rank are shortened, because a rank may
        send anything."""
        host = self.host(number)
        local = int(message.get("local", 0))
        device = str(message.get("device"))
        return Unit(
            rank=number,
            host=host[:LONGEST_HOST],
            local=local,
            device=device[:LONGEST_DEVICE],
        )

    def _heard(self, seconds: float) -> Iterator[tuple[int, Message]]:
        """The messages that arrive within this many seconds, each with its rank."""
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while True:
                # After the time limit, still take the messages that are already in the queue.
                remaining = max(0.0, end - time.monotonic())
                yield self.inbox.get(timeout=remaining)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The ranks that take part in the sweep, in order."""
        present = self.ready_units.keys() - self.absent.keys()
        # Leave out ranks that became ready but died later.
        units = [self.ready_units[number] for number in sorted(present)]
        return tuple(units)

    def host(self, number: int) -> str:
        """The host of a rank; "" if the rank never reported it."""
        if number == 0:
            return self.rank.host
        link = self.others.ranks[number]
        return link.host or ""

    def sweep(self, limit: float) -> Sweep:
        """Run all rounds of a sweep and return their results. `limit` is the time limit for one
        round in seconds."""
        sweep = Sweep(self.units)
        for round in sweep.rounds():
            # The next round is planned from the results so far.
            result = self.measure(round, limit)
            sweep.results.append(result)
        return sweep

    def measure(self, round: Round, limit: float) -> RoundResult:
        """Run one round, and collect the results that arrive within its time limit in seconds."""
        size = self._bytes_of_exchange()
        for pair in round.pairs:
            question = {
                "do": "exchange", "round": round.number, "bytes": size, "repeats": REPEATS,
                "limit": limit, "group": f"{time.monotonic_ns()}/{pair[0]}", **self.store_address,
            }  # fmt: skip
            for place, rank in enumerate(pair):
                self._send(rank, {**question, "place": place})
        answers: dict[int, Message] = {}
        pending = {*round.asked}
        problem = ""
        for number, message in self._heard(limit + SLACK_SECONDS):
            # The first problem is usually the cause of the others.
            if "problem" in message and not problem:
                problem = str(message["problem"])[:LONGEST_PROBLEM]
            # Check the round's number, because a response to an earlier round may arrive late.
            if message.get("round") == round.number:
                answers[number] = message
                pending.discard(number)
            if not pending:
                break
        rates = {}
        for pair in round.pairs:
            both_answered = pending.isdisjoint(pair)
            if both_answered:
                times = [answers[rank].get("seconds") for rank in pair]
                rates[pair] = bus_rate(times, size)
        return RoundResult(round=round, rates=rates, silent=tuple(pending), problem=problem)

    def _bytes_of_exchange(self) -> int:
        """How many bytes each pair exchanges, depending on whether the ranks use GPUs or CPUs."""
        devices = {unit.device for unit in self.units}
        # Without any ranks the result is CPU_BYTES, but then nothing is exchanged.
        is_on_cpu = devices <= {"cpu"}
        return CPU_BYTES if is_on_cpu else GPU_BYTES

    def _send(self, rank: int, question: Message) -> None:
        """Send a request to one rank's worker."""
        if rank == 0:
            self.own.ask(question)
            return
        link = self.others.ranks[rank].link
        # The rank's follower passes the request on to its worker.
        send(link, {"ask": question})

    def end(self, code: int) -> None:
        """Stop this rank's worker, the store and all other ranks, which exit with `code`."""
        # The other ranks exit with the same code.
        self.own.end()
        self.store.end()
        self.others.settle(code)


def store_port(store: StreamingChild, seconds: float) -> int:
    """The port on which the store listens. Raises Blocked if the store does not start in time."""
    end = time.monotonic() + seconds
    problem_text = ""
    try:
        while True:
            remaining = end - time.monotonic()
            line = store.next(remaining)
            message = message_in(line)
            if message.get("said") == "store":
                return int(message["port"])
            # The last line that a library printed often gives the reason.
            problem_text = str(message.get("problem", "")) or line or problem_text
    except (TimeoutError, EOFError) as problem:
        reason = problem_text[:LONGEST_PROBLEM] or problem
        raise Blocked(
            f"The sweep could not start its store, through which the ranks talk: {reason}",
            hint="`gpusetup verify` says whether this torch works; `--python` names another",
        ) from problem


def bus_rate(times: Sequence[Any], moved: int) -> float:
    """The bandwidth of a pair's all_reduce in bytes per second; 0 if it did not finish.

    For each repeat, the shorter time of the two ranks counts; of these times, the result uses the
    one a quarter of the way from the fastest.

    >>> bus_rate([[2.0, 1.0, 1.0, 9.0], [2.0, 3.0, 1.0, 8.0]], 100)
    100.0
    """
    for rank_times in times:
        is_list = isinstance(rank_times, list)
        if not is_list or not rank_times:
            return 0.0
    # The rank that arrived last did not have to wait, so its time is that of the exchange.
    repeats: list[float] = sorted(map(min, *times))
    last = len(repeats) - 1
    quarter = last // FASTER_QUARTER
    return moved / repeats[quarter]


LONGEST_PROBLEM = 300
"""How many characters of a rank's error message are kept."""


LONGEST_HOST = 255


LONGEST_DEVICE = 200
"""The maximum length of a text that a rank sends about itself, because a rank may send anything."""
