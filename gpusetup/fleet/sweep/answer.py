"""Builds the result of `fleet sweep`: what is wrong, what to do next, and what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from gpusetup.fleet.nodes import slurm_list
from gpusetup.fleet.show import Exclude, excluded
from gpusetup.fleet.sweep.rounds import Sweep
from gpusetup.fleet.sweep.scores import Fault, NamedFault, Stage, Unit
from gpusetup.model.frozen import Frozen

GB = 1e9
LONGEST_PROBLEM = 300
"""How many characters of the backend's message are kept, because NCCL repeats it for each rank."""
MOST_NAMED = 4
"""How many ranks of a finding are named; if there are more, only the hosts are named."""
OF_NODES = ("absent", "hung", "broken-link", "slow-link")
"""Faults of a rank for which its node is excluded from jobs."""
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
"""Maps each fault to its description and to the advice on what to do."""


class Finding(Frozen):
    """One fault that the sweep found, with its ranks and nodes."""

    fault: Fault
    title: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    stage: Stage
    rate: float | None = None
    """Bus bandwidth in GB/s."""
    median: float | None = None
    detail: str = ""
    then: str = ""


class Level(Frozen):
    """The statistics of one stage: exchanges within hosts, or exchanges between hosts."""

    of: Stage
    median: float
    """In GB/s."""
    sees_below: float
    """The fraction of the median below which a rank would have been reported as slow; 0 if there
    are too few ranks to compare."""


class SweepAnswer(Frozen):
    """The JSON document of `fleet sweep`."""

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
    """Judge a sweep. `absent` maps each rank that did not start to the reason; `hosts` maps each
    rank to its host."""
    absent_faults = [NamedFault(fault="absent", ranks=(rank,)) for rank in sorted(absent)]
    faults = (*absent_faults, *sweep.faults())
    backend_problems = [result.problem for result in sweep.results if result.problem]
    problems = " ".join(backend_problems)[:LONGEST_PROBLEM]
    findings = []
    bad_nodes: set[str] = set()
    for group in _groups_of_host(faults, hosts):
        finding = _finding(group, hosts, absent, problems)
        findings.append(finding)
        if finding.fault in OF_NODES:
            bad_nodes.update(finding.nodes)
    is_on_cpu = all(unit.device == "cpu" for unit in sweep.units)
    host_names = {unit.host for unit in sweep.units}
    return SweepAnswer(
        ok=not findings,
        findings=tuple(findings),
        levels=_levels(sweep),
        ranks=tuple(sweep.units),
        nodes=len(host_names),
        # These are torch's default backends for the two kinds of device.
        backend="gloo" if is_on_cpu else "nccl",
        rounds=len(sweep.results),
        seconds=seconds,
        exclude=excluded(bad_nodes),
    )


def _groups_of_host(
    faults: Sequence[NamedFault], hosts: Mapping[int, str]
) -> Iterable[list[NamedFault]]:
    """The faults in groups: equal faults of several ranks on one host form a group; any other fault
    is a group by itself."""
    groups: dict[object, list[NamedFault]] = defaultdict(list)
    for number, fault in enumerate(faults):
        # A fault between two ranks does not belong to a single host, so it forms its own group,
        # with its number as the key.
        host_or_number: str | int = number
        if fault.fault in OF_NODES:
            first_rank = fault.ranks[0]
            host_or_number = hosts.get(first_rank) or number
        group = (fault.fault, fault.stage, host_or_number)
        groups[group].append(fault)
    return groups.values()


def _levels(sweep: Sweep) -> tuple[Level, ...]:
    """The statistics of the stages that were measured, within hosts and between them."""
    levels = []
    for plane in sweep.planes:
        scores = sweep.scores(plane.stage)
        # Leave out the stage if all its ranks stopped responding.
        if not scores.by_rank:
            continue
        middle = scores.middle
        sees_below = scores.limit / middle if middle else 0.0
        level = Level(of=scores.stage, median=middle / GB, sees_below=sees_below)
        levels.append(level)
    return tuple(levels)


def _finding(
    group: Sequence[NamedFault], hosts: Mapping[int, str], absent: Mapping[int, str], problems: str
) -> Finding:
    """The finding for one fault, or for the same fault of several ranks on one host."""
    fault = group[0]
    ranks: list[int] = []
    for member in group:
        ranks += member.ranks
    rates = [member.rate for member in group if member.rate is not None]
    rate = median(rates) if rates else 0.0
    middle = fault.middle or 0.0
    share = rate / middle if middle else 0.0
    title, next_step = FACTS[fault.fault]
    title = title.format(
        who=who(hosts, ranks),
        rate=gigabytes(rate),
        middle=gigabytes(middle),
        share=f"{share:.0%}",
    )
    # The backend's message explains a failed exchange, but not a slow one.
    backend_problem = "" if rate else problems
    nodes = [hosts[rank] for rank in ranks if hosts.get(rank)]
    distinct_nodes = dict.fromkeys(nodes)
    return Finding(
        fault=fault.fault,
        title=title,
        nodes=tuple(distinct_nodes),
        ranks=tuple(ranks),
        stage=fault.stage,
        rate=rate / GB if rates else None,
        median=middle / GB if middle else None,
        detail=absent.get(ranks[0]) or backend_problem,
        then=next_step,
    )


def gigabytes(rate: float) -> str:
    """A rate in bytes per second as text in GB/s.

    >>> gigabytes(12.5e9)
    '12.5 GB/s'
    """
    size = rate / GB
    # Three digits are enough, because a measurement is not more precise.
    return f"{size:.3g} GB/s"


def who(hosts: Mapping[int, str], ranks: Sequence[int]) -> str:
    """Ranks with their hosts as text. If there are many ranks, only their number and the hosts.

    >>> who({3: "n1", 7: "n2"}, (3, 7)), who({}, (9,))
    ('rank 3 on n1 and rank 7 on n2', 'rank 9')
    """
    if len(ranks) > MOST_NAMED:
        host_names = {hosts[rank] for rank in ranks if hosts.get(rank)}
        return f"{len(ranks)} ranks on {slurm_list(host_names)}"
    names = []
    for rank in ranks:
        name = f"rank {rank}"
        host = hosts.get(rank)
        # A rank that never joined did not report its host.
        if host:
            name += f" on {host}"
        names.append(name)
    return " and ".join(names)
