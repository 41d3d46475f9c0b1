"""Links that the kernel slows down: a network namespace a rank, a veth pair between each two.

Each end of a pair has a token bucket (`tc`, tbf), so that a link of half the rate is one. Needs
root, `ip` and `tc`; `missing()` says why this machine cannot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

FULL_MBIT = 80
BURST = "burst 10kb latency 200ms"
MTU = 9000


class Network:
    """A mesh of ranks."""

    def __init__(self, ranks: int, name: str = "sweep") -> None:
        self.ranks, self.name = ranks, name

    @property
    def rate(self) -> float:
        """bytes/s of a sound link."""
        return FULL_MBIT * 1e6 / 8

    def space(self, rank: int) -> str:
        return f"{self.name}-{rank}"

    def address(self, rank: int) -> str:
        return f"10.99.0.{rank + 1}"

    def interface(self, rank: int) -> str:
        """One that has the rank's address; all have."""
        return _end(rank, int(rank == 0))

    def inside(self, rank: int, words: Sequence[str]) -> tuple[str, ...]:
        """A command in the rank's namespace."""
        return ("ip", "netns", "exec", self.space(rank), *words)

    def make(self) -> None:
        self.remove()
        for rank in range(self.ranks):
            _ip("netns", "add", self.space(rank))
            _batch(self.space(rank), ("link set lo up",))
        for one, other in combinations(range(self.ranks), 2):
            ends = (_end(one, other), _end(other, one))
            _ip("link", "add", ends[0], "mtu", str(MTU), "netns", self.space(one), "type", "veth",
                "peer", "name", ends[1], "mtu", str(MTU), "netns", self.space(other))  # fmt: skip
            self._joined(one, other)
            self._joined(other, one)
        self.slow(dict.fromkeys(combinations(range(self.ranks), 2), 1.0), "add")

    def _joined(self, here: int, there: int) -> None:
        end, route = _end(here, there), f"{self.address(there)}/32"
        address = f"addr add {self.address(here)}/32 dev {end}"
        lines = (address, f"link set {end} up", f"route add {route} dev {end}")
        _batch(self.space(here), lines)

    def slow(self, shares: dict[tuple[int, int], float], how: str = "change") -> None:
        """Give the links between two ranks a share of the full rate, in both directions."""
        for rank in range(self.ranks):
            lines = [
                f"qdisc {how} dev {_end(rank, sum(pair) - rank)} root tbf "
                f"rate {FULL_MBIT * share:g}mbit {BURST}"
                for pair, share in shares.items()
                if rank in pair
            ]
            if lines:
                _said(("tc", "-n", self.space(rank), "-batch", "-"), lines)

    def remove(self) -> None:
        for rank in range(self.ranks):
            subprocess.run(("ip", "netns", "del", self.space(rank)), capture_output=True)


def _end(here: int, there: int) -> str:
    return f"v{here}-{there}"


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True)


def _batch(space: str, lines: Iterable[str]) -> None:
    _said(("ip", "-n", space, "-batch", "-"), lines)


def _said(words: Sequence[str], lines: Iterable[str]) -> None:
    text = "\n".join(lines) + "\n"
    subprocess.run(words, input=text, text=True, check=True, capture_output=True)


def missing() -> str:
    """Why this machine cannot slow links down; empty where it can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "namespaces need root"
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return _refused()


def _refused() -> str:
    network = Network(2, "sweep-try")
    try:
        network.make()
    except subprocess.CalledProcessError as problem:
        return f"{' '.join(problem.cmd[:4])}: {(problem.stderr or '').strip()[:100]}"
    finally:
        network.remove()
    return ""


@contextmanager
def network(ranks: int) -> Iterator[Network]:
    """The mesh, removed at the end."""
    made = Network(ranks)
    try:
        made.make()
        yield made
    finally:
        made.remove()
