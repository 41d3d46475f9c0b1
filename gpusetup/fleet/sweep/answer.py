"""The answer of `fleet sweep`: who is named, what that means, and what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Literal

from gpusetup.fleet.show import Exclude, excluded
from gpusetup.fleet.sweep.decide import BOTH, Seen
from gpusetup.fleet.sweep.values import Result, Stage, Unit
from gpusetup.fleet.sweep.verdict import NOTES, Fault, Named, verdict
from gpusetup.model.frozen import Frozen

GB = 1e9
OF_NODES: tuple[Fault, ...] = (*("absent", "hung", "slow-compute", "broken-link", "slow-link"),)
"""Faults of a rank, so of its node: that one is left out of jobs."""


class Fact(Frozen):
    """What is said of a fault."""

    words: str
    """With `{who}`, `{rate}`, `{middle}`, `{share}`."""
    then: str


FACTS: Mapping[Fault, Fact] = {
    "absent": Fact(words="{who} did not take part", then="is its process running, and its torch?"),
    "hung": Fact(
        words="{who} hangs: it answered nothing, asked twice",
        then="on that node: `gpusetup fleet check`, and the kernel's log for an Xid",
    ),
    "slow-compute": Fact(
        words="{who} computes at {share} of the median",
        then="on that node: `gpusetup doctor` (clocks, power, heat, another program)",
    ),
    "broken-link": Fact(
        words="{who} exchanges with nobody",
        then="its port, cable and interface: `gpusetup fleet check`, `ibstat`, `ip link`",
    ),
    "slow-link": Fact(
        words="{who} exchanges at {rate} with every partner; the median is {middle} ({share})",
        then="its port, cable and slot: `gpusetup fleet check`, `ibstat`, `nvidia-smi nvlink -e`",
    ),
    "broken-path": Fact(
        words="no exchange between {who}, which both exchange with others",
        then="the switches and routes between them",
    ),
    "slow-path": Fact(
        words="{rate} between {who}, both sound with others; the median is {middle} ({share})",
        then="the switches and cables between them",
    ),
    "apart": Fact(
        words="{who} reach the others at {rate}, each other faster; the median is {middle}",
        then="the uplink of their switch, where it is not built so",
    ),
    "uneven": Fact(
        words="many pairs are slow, about {rate}; the median is {middle}: the network is uneven",
        then="an oversubscribed network shows that; compare nodes of one switch",
    ),
    "unmeasured": Fact(
        words="no exchange of any pair ended",
        then="name the interface that joins the hosts: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME",
    ),
}  # fmt: skip


class Finding(Frozen):
    """One thing that is wrong, or a note."""

    fault: Fault
    title: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    within_host: bool = False
    """The link is that inside a host."""
    rate: float | None = None
    """GB/s of bus bandwidth; of computing, runs per second."""
    median: float | None = None
    share: float | None = None
    detail: str = ""
    then: str = ""

    @property
    def blames(self) -> bool:
        return self.fault not in NOTES


class RankAnswer(Frozen):
    """What one rank measured, as shares of the median."""

    rank: int
    node: str
    local: int
    device: str
    computing: float | None = None
    within: float | None = None
    between: float | None = None


class Level(Frozen):
    """What was compared."""

    of: Literal["computing", "within", "between"]
    median: float
    """GB/s; of computing, runs per second."""
    sees_below: float
    """A rank slower than this share of the median would have been named; 0: too few to compare."""


class SweepAnswer(Frozen):
    """`fleet sweep`."""

    schema: Literal["gpusetup.sweep/1"] = "gpusetup.sweep/1"
    ok: bool
    findings: tuple[Finding, ...]
    levels: tuple[Level, ...]
    ranks: tuple[RankAnswer, ...]
    nodes: int
    backend: str
    rounds: int
    seconds: float
    message_bytes: int
    exclude: Exclude = Exclude()


class Course(Frozen):
    """What a sweep has at its end."""

    units: tuple[Unit, ...]
    results: tuple[Result, ...]
    absent: Mapping[int, str] = {}
    hosts: Mapping[int, str] = {}
    """Rank -> its host, also of those that are absent."""
    message_bytes: int = 0
    seconds: float = 0.0


def answer(course: Course) -> SweepAnswer:
    """Judge a sweep."""
    units, results = course.units, course.results
    named = verdict(units, results, course.absent)
    findings = tuple(_finding(course, group) for group in _together(course, named))
    seen = Seen(units, results)
    bad = {node for one in findings if one.fault in OF_NODES for node in one.nodes if node}
    return SweepAnswer(
        ok=not any(one.blames for one in findings),
        findings=findings,
        levels=_levels(seen),
        ranks=_ranks(seen),
        nodes=len({unit.host for unit in units}),
        backend="gloo" if all(unit.device == "cpu" for unit in units) else "nccl",
        rounds=len(results),
        seconds=course.seconds,
        message_bytes=course.message_bytes,
        exclude=excluded(bad),
    )


def _together(course: Course, named: Sequence[Named]) -> list[list[Named]]:
    """The same fault on several ranks of a node is said once."""
    groups: dict[object, list[Named]] = defaultdict(list)
    for number, one in enumerate(named):
        host = course.hosts.get(one.ranks[0], "") if one.fault in OF_NODES else ""
        groups[one.fault, one.stage, host or number].append(one)
    return list(groups.values())


def _finding(course: Course, group: Sequence[Named]) -> Finding:
    first = group[0]
    ranks = tuple(rank for one in group for rank in one.ranks)
    rates = [one.rate for one in group if one.rate is not None]
    rate, middle = (median(rates) if rates else None), first.middle
    unit = 1.0 if first.fault == "slow-compute" else GB
    share = rate / middle if rate is not None and middle else None
    detail = first.detail or course.absent.get(ranks[0], "") or _problem(course, first)
    told = {
        "who": who(course.hosts, ranks, first.fault),
        "rate": in_gb(rate), "middle": in_gb(middle),
        "share": f"{share:.0%}" if share is not None else "",
    }  # fmt: skip
    return Finding(
        fault=first.fault,
        title=FACTS[first.fault].words.format(**told),
        nodes=tuple(dict.fromkeys(filter(None, (course.hosts.get(rank, "") for rank in ranks)))),
        ranks=ranks,
        within_host=first.stage == "within",
        rate=rate / unit if rate is not None else None,
        median=middle / unit if middle else None,
        share=share,
        detail=detail,
        then=FACTS[first.fault].then,
    )


def _problem(course: Course, one: Named) -> str:
    """What a backend said in an exchange of these ranks that failed."""
    if not one.fault.startswith("broken"):
        return ""
    wanted = set(one.ranks)
    said = (e.problem for r in course.results for e in r.exchanged if wanted <= set(e.group))
    return next(filter(None, said), "")


def who(hosts: Mapping[int, str], ranks: Sequence[int], fault: str = "") -> str:
    """Ranks and where they are.

    >>> who({3: "n1", 4: "n1", 7: "n2"}, (3, 4)), who({3: "n1", 7: "n2"}, (3, 7)), who({}, (9,))
    ('ranks 3 and 4 on n1', 'rank 3 on n1 and rank 7 on n2', 'rank 9')
    """
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        by_host[hosts.get(rank, "")].append(rank)
    if len(by_host) > 4:
        from gpusetup.fleet.names import slurm_list

        return f"{len(ranks)} ranks on {slurm_list(filter(None, by_host))}"
    return _and([_ranks_on(host, group) for host, group in by_host.items()])


def _ranks_on(host: str, ranks: Sequence[int]) -> str:
    numbers = _and([str(rank) for rank in ranks])
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}{f' on {host}' if host else ''}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def in_gb(rate: float | None) -> str:
    """
    >>> in_gb(24.96e9), in_gb(1.234e7)
    ('25 GB/s', '0.0123 GB/s')
    """
    return "" if rate is None else f"{rate / GB:.3g} GB/s"


# --- what was measured ---------------------------------------------------------------------------


STAGES: tuple[Stage, ...] = ("within", "between")


def _levels(seen: Seen) -> tuple[Level, ...]:
    found = [
        Level(of="computing", median=scores.middle, sees_below=scores.sees)
        for scores in seen.computing()
        if scores.of
    ]
    for plane in seen.planes:
        scores = seen.scores(plane.stage)
        of: Literal["within", "between"] = "within" if plane.stage == "within" else "between"
        if scores.of:
            found.append(Level(of=of, median=scores.middle / GB, sees_below=scores.sees))
    return tuple(found)


def _ranks(seen: Seen) -> tuple[RankAnswer, ...]:
    computing = {r: s / c.middle for c in seen.computing() if c.middle for r, s in c.of.items()}
    shares: dict[Stage, Callable[[int], float | None]] = {}
    for stage in STAGES:
        scores = seen.scores(stage, BOTH)
        middle = scores.middle or 1.0
        shares[stage] = {rank: rate / middle for rank, rate in scores.of.items()}.get
    return tuple(
        RankAnswer(
            rank=unit.rank,
            node=unit.host,
            local=unit.local,
            device=unit.device,
            computing=computing.get(unit.rank),
            within=shares["within"](unit.rank),
            between=shares["between"](unit.rank),
        )
        for unit in seen.units
    )
