"""The answer of `fleet sweep`: who is named, what that means, and what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from gpusetup.fleet.nodes import slurm_list
from gpusetup.fleet.show import Exclude, excluded
from gpusetup.fleet.sweep.rounds import Sweep
from gpusetup.fleet.sweep.scores import Fault, NamedFault, Stage, Unit
from gpusetup.model.frozen import Frozen

GB = 1e9
MOST_NAMED = 4
"""Ranks of one finding; of more, only the hosts are said."""
OF_NODES = ("absent", "hung", "broken-link", "slow-link")
"""Faults of a rank, so of its node: that one is left out of jobs."""
FACTS: Mapping[Fault, tuple[str, str]] = {
    "absent": ("{who}: did not take part", "check that its process runs and that its torch starts"),
    "hung": (
        "{who}: no answer, although asked twice",
        "on that node: `gpusetup fleet check`, and the kernel's log for an Xid",
    ),
    "broken-link": (
        "{who}: could not exchange data with any partner",
        "its port, cable and interface: `gpusetup fleet check`, `ibstat`, `ip link`",
    ),
    "slow-link": (
        "{who}: {rate} with every partner; the median is {middle} ({share})",
        "its port, cable and slot: `gpusetup fleet check`, `ibstat`, `nvidia-smi nvlink -e`",
    ),
    "broken-path": (
        "no exchange between {who}",
        "check the switches and routes between them",
    ),
    "slow-path": (
        "{rate} between {who}; the median is {middle} ({share})",
        "check the switches and cables between them",
    ),
    "unmeasured": (
        "no pair of ranks could exchange data",
        "set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME to the network interface between the hosts",
    ),
}
"""Fault -> what is said of it, and what to do then."""


class Finding(Frozen):
    """One thing that is wrong."""

    fault: Fault
    title: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    stage: Stage
    rate: float | None = None
    """GB/s of bus bandwidth."""
    median: float | None = None
    detail: str = ""
    then: str = ""


class Level(Frozen):
    """What was compared."""

    of: Stage
    median: float
    """GB/s."""
    sees_below: float
    """A rank slower than this share of the median would have been named; 0: too few to compare."""


class SweepAnswer(Frozen):
    """`fleet sweep`."""

    schema: Literal["gpusetup.sweep/1"] = "gpusetup.sweep/1"
    ok: bool
    findings: tuple[Finding, ...]
    levels: tuple[Level, ...]
    ranks: tuple[Unit, ...]
    nodes: int
    backend: str
    rounds: int
    seconds: float
    exclude: Exclude = Exclude()


def answer(
    sweep: Sweep, absent: Mapping[int, str], hosts: Mapping[int, str], seconds: float
) -> SweepAnswer:
    """Judge a sweep. `absent`: ranks that did not come, and why; `hosts`: where every rank is."""
    every = (
        *(NamedFault(fault="absent", ranks=(rank,)) for rank in sorted(absent)),
        *sweep.faults(),
    )
    groups: dict[object, list[NamedFault]] = defaultdict(list)
    for number, one in enumerate(every):  # the same fault of several ranks of a node is said once
        host = hosts.get(one.ranks[0]) if one.fault in OF_NODES else None
        groups[one.fault, one.stage, host or number].append(one)
    problems = " ".join(filter(None, (result.problem for result in sweep.results)))[:300]
    findings = tuple(_finding(group, hosts, absent, problems) for group in groups.values())
    bad = {node for one in findings if one.fault in OF_NODES for node in one.nodes}
    compared = [sweep.scores(plane.stage) for plane in sweep.planes]
    return SweepAnswer(
        ok=not findings,
        findings=findings,
        levels=tuple(
            Level(
                of=one.stage,
                median=one.middle / GB,
                sees_below=one.limit / one.middle if one.middle else 0.0,
            )
            for one in compared
            if one.by_rank
        ),
        ranks=tuple(sweep.units),
        nodes=len({unit.host for unit in sweep.units}),
        backend="gloo" if all(unit.device == "cpu" for unit in sweep.units) else "nccl",
        rounds=len(sweep.results),
        seconds=seconds,
        exclude=excluded(bad),
    )


def _finding(
    group: Sequence[NamedFault], hosts: Mapping[int, str], absent: Mapping[int, str], problems: str
) -> Finding:
    first, ranks = group[0], tuple(rank for one in group for rank in one.ranks)
    rates = [one.rate for one in group if one.rate is not None]
    rate, middle = (median(rates) if rates else 0.0), first.middle or 0.0
    words, then = FACTS[first.fault]
    values = {"who": who(hosts, ranks), "rate": f"{rate / GB:.3g} GB/s"}
    values |= {
        "middle": f"{middle / GB:.3g} GB/s",
        "share": f"{rate / middle if middle else 0:.0%}",
    }
    return Finding(
        fault=first.fault,
        title=words.format(**values),
        nodes=tuple(dict.fromkeys(hosts[rank] for rank in ranks if hosts.get(rank))),
        ranks=ranks,
        stage=first.stage,
        rate=rate / GB if rates else None,
        median=middle / GB if middle else None,
        detail=absent.get(ranks[0], "") or ("" if rate else problems),
        then=then,
    )


def who(hosts: Mapping[int, str], ranks: Sequence[int]) -> str:
    """Ranks and where they are.

    >>> who({3: "n1", 7: "n2"}, (3, 7)), who({}, (9,))
    ('rank 3 on n1 and rank 7 on n2', 'rank 9')
    """
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} ranks on {slurm_list({*filter(None, map(hosts.get, ranks))})}"
    places = (f" on {host}" if (host := hosts.get(rank)) else "" for rank in ranks)
    return " and ".join(f"rank {rank}{place}" for rank, place in zip(ranks, places, strict=True))
