#!/usr/bin/env python3
"""Plants faults among gloo ranks that are started once, sweeps, and counts who is named.

    scripts/trial_sweep.py --runs 100                    all kinds; a line a run, then the sums
    scripts/trial_sweep.py --runs 3 --kinds hung sound --links shim
    scripts/trial_sweep.py --runs 100 --log runs.jsonl   goes on where the log ends

Links have a rate: by the kernel (namespaces and tc, `sweep_trial/network.py`) where that is
permitted, else by waiting in the worker. A slow rank computes everything twice; one that hangs is
stopped by a signal before or in the course of the sweep.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sweep_trial import network

from gpusetup.fleet.sweep.follow import Follower, take_part
from gpusetup.fleet.sweep.lead import Leader, Meeting, Sizes
from gpusetup.fleet.sweep.values import Options, Result, Round
from gpusetup.fleet.sweep.verdict import NOTES, verdict
from gpusetup.verify.ranks.gathering import Spoke
from gpusetup.verify.ranks.launch import Rank

HERE = Path(__file__).resolve().parent
SHIM_RATE = 1e7
SIZES = Sizes(bytes=1 << 17, repeats=5, limit=3.0, meet=120.0)
Told = set[tuple[str, tuple[int, ...]]]


@dataclass
class Ranks:
    """Ranks on this machine, started once."""

    count: int
    folder: Path
    links: network.Network | None
    sizes: Sizes = SIZES
    python: str = sys.executable
    threads: list[threading.Thread] = field(default_factory=list)
    followers: dict[int, Follower] = field(default_factory=dict)

    def start(self) -> None:
        self.plant({})
        port = free_port()
        ranks = [
            Rank(rank, self.count, 0, "127.0.0.1", port, f"n{rank}", "trial")
            for rank in range(self.count)
        ]
        for rank in ranks[1:]:
            self.threads.append(threading.Thread(target=self._follow, args=(rank,), daemon=True))
            self.threads[-1].start()
        meeting = Meeting(command=self.worker(0, "store"), address=self.address(0))
        self.leader = Leader(ranks[0], self.worker(0), meeting, self.sizes)
        self.followers[0] = self.leader.own
        self.leader.meet()
        assert not self.leader.absent, self.leader.absent

    def _follow(self, rank: Rank) -> None:
        spoke = Spoke(rank)
        beside = {"host": rank.host, "local": 0}
        worker = self.worker(rank.rank)
        take_part(spoke, worker, beside, lambda one: self.followers.update({rank.rank: one}))

    def worker(self, rank: int, device: str = "cpu:0") -> tuple[str, ...]:
        script, faults = HERE / "sweep_trial" / "worker.py", self.folder / "faults.json"
        words: tuple[str, ...] = (self.python, str(script), str(rank), str(faults), device)
        interface = self.links.interface(rank) if self.links else "lo"
        words = ("env", f"GLOO_SOCKET_IFNAME={interface}", *words)
        return self.links.inside(rank, words) if self.links else words

    def address(self, rank: int) -> str:
        return self.links.address(rank) if self.links else "127.0.0.1"

    def plant(self, faults: dict[str, Any]) -> None:
        """What the workers read before each question; written whole."""
        rate = {} if self.links else {"rate": SHIM_RATE}
        new = self.folder / "new.json"
        new.write_text(json.dumps({**rate, **faults}), encoding="utf-8")
        new.replace(self.folder / "faults.json")

    def pid(self, rank: int) -> int:
        lines = self.followers[rank].lines
        assert lines is not None
        return int(lines._child.pid)

    def awake(self) -> None:
        """Wait until every rank answers again."""
        every = tuple(range(self.count))
        for number in range(1_000_000, 1_000_060):
            asked = Round(number=number, kind="compute", ranks=every)
            if not self.leader.measured(asked).silent:
                return
        raise AssertionError("a rank does not come back")

    def end(self) -> None:
        self.leader.end(0)
        for thread in self.threads:
            thread.join(5)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# --- faults --------------------------------------------------------------------------------------


@contextlib.contextmanager
def sound(ranks: Ranks, draw: random.Random) -> Iterator[Told]:
    yield set()


@contextlib.contextmanager
def slow_link(ranks: Ranks, draw: random.Random) -> Iterator[Told]:
    """Every path of one rank at half of the others' rate."""
    rank = draw.randrange(ranks.count)
    pairs = [(min(rank, n), max(rank, n)) for n in range(ranks.count) if n != rank]
    with slowed(ranks, pairs, {"links": {str(rank): 0.5}}):
        yield {("slow-link", (rank,))}


@contextlib.contextmanager
def slow_path(ranks: Ranks, draw: random.Random) -> Iterator[Told]:
    """The link between two ranks at half of the others' rate."""
    one, other = sorted(draw.sample(range(ranks.count), 2))
    with slowed(ranks, [(one, other)], {"slow": [[one, other, 0.5]]}):
        yield {("slow-path", (one, other))}


@contextlib.contextmanager
def slowed(ranks: Ranks, pairs: list[tuple[int, int]], faults: dict[str, Any]) -> Iterator[None]:
    if ranks.links is None:
        ranks.plant(faults)
        yield
        ranks.plant({})
        return
    ranks.links.slow(dict.fromkeys(pairs, 0.5))
    yield
    ranks.links.slow(dict.fromkeys(pairs, 1.0))


@contextlib.contextmanager
def slow_compute(ranks: Ranks, draw: random.Random) -> Iterator[Told]:
    rank = draw.randrange(ranks.count)
    ranks.plant({"compute": {str(rank): 2}})
    yield {("slow-compute", (rank,))}
    ranks.plant({})


@contextlib.contextmanager
def hung(ranks: Ranks, draw: random.Random) -> Iterator[Told]:
    """Stopped at once, or after a while in the midst of whatever it does."""
    rank = draw.randrange(ranks.count)
    after = draw.choice((0.0, draw.uniform(0.0, 0.6)))
    timer = threading.Timer(after, lambda: os.kill(ranks.pid(rank), signal.SIGSTOP))
    timer.start()
    if not after:
        timer.join()
    yield {("hung", (rank,))}
    timer.join()
    os.kill(ranks.pid(rank), signal.SIGCONT)
    ranks.awake()


KINDS: dict[str, Callable[[Ranks, random.Random], Any]] = {
    "link": slow_link, "path": slow_path, "compute": slow_compute, "hung": hung, "sound": sound,
}  # fmt: skip


def run(ranks: Ranks, kind: str, number: int) -> dict[str, Any]:
    """One sweep with one fault of a kind: what was planted, what was named."""
    draw, began = random.Random(f"{kind} {number}"), time.monotonic()
    with KINDS[kind](ranks, draw) as planted:
        results = ranks.leader.sweep(Options())
        named = verdict(ranks.leader.units, results, Options())
    told = {(one.fault, tuple(one.ranks)) for one in named if one.fault not in NOTES}
    return {
        "kind": kind, "run": number, "right": told == planted, "planted": sorted(planted),
        "told": sorted(told), "rounds": len(results), "seconds": round(time.monotonic() - began, 2),
        "longest": round(max(result.seconds for result in results), 2),
        **({} if told == planted else {"course": [_short(result) for result in results]}),
    }  # fmt: skip


def _short(result: Result) -> list[Any]:
    """What came back of a round, to be read where a run went wrong."""
    rates = {
        "-".join(map(str, e.group)): round(e.rate / 1e6, 3) or e.problem for e in result.exchanged
    }
    computed = {rank: round(rate) for rank, rate in result.computed.items()}
    return [result.round.kind, result.round.turn, rates or computed, list(result.silent)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--ranks", type=int, default=8, metavar="N")
    parser.add_argument("--links", choices=("auto", "kernel", "shim"), default="auto")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="that has torch")
    parser.add_argument("--log", type=Path, metavar="FILE", help="one line of JSON a run")
    options = parser.parse_args()
    why = network.missing() if options.links != "shim" else "as asked"
    if why and options.links == "kernel":
        parser.error(why)
    with contextlib.ExitStack() as stack:
        links = None if why else stack.enter_context(network.network(options.ranks))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ranks = Ranks(options.ranks, folder, links, python=options.python)
        print(f"{options.ranks} ranks, links by {f'waiting ({why})' if why else 'the kernel'}")
        ranks.start()
        stack.callback(ranks.end)
        return _runs(ranks, options)


def _runs(ranks: Ranks, options: argparse.Namespace) -> int:
    log: Path | None = options.log
    rows = (
        [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    )
    done = {(row["kind"], row["run"]) for row in rows}
    for number in range(options.runs):
        for kind in options.kinds:  # by turns: all kinds meet the same load
            if (kind, number) not in done:
                rows.append(run(ranks, kind, number))
                _noted(rows[-1], log)
    return _summed(rows, options)


def _noted(row: dict[str, Any], log: Path | None) -> None:
    told = "right" if row["right"] else f"WRONG: planted {row['planted']}, told {row['told']}"
    print(f"{row['kind']:8} {row['run']:3} {row['seconds']:6.2f} s  {told}", flush=True)
    if log:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _summed(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    every, right = Counter(r["kind"] for r in rows), Counter(r["kind"] for r in rows if r["right"])
    for kind in options.kinds:
        mine = sorted(row["seconds"] for row in rows if row["kind"] == kind)
        rounds = max(row["rounds"] for row in rows if row["kind"] == kind)
        print(
            f"{kind}: {right[kind]} of {every[kind]} right, at most {rounds} rounds, "
            f"{mine[len(mine) // 2]:.1f} s in the middle, {mine[-1]:.1f} s at most"
        )
    return 0 if right == every else 1


if __name__ == "__main__":
    sys.exit(main())
