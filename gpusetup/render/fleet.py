"""Screens of many machines: a fleet, the worst nodes first, and two records compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from shlex import quote

from gpusetup.fleet.compare import CompareAnswer
from gpusetup.fleet.drift import KIND, LEAST_NODES, RATES, TAKEN_AT
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.nodes import Drift, NodeFinding, slurm_list
from gpusetup.fleet.show import (
    COST_SPEED,
    Common,
    Exclude,
    FleetAnswer,
    NodeAnswer,
    Status,
)
from gpusetup.fleet.sweep.answer import SweepAnswer
from gpusetup.model.finding import Severity
from gpusetup.render.screen import (
    COMMAND,
    DIM,
    MARKS,
    OK,
    Row,
    Screen,
    command,
    facts,
    marked,
    plural,
    section,
    table,
)

WARNED = MARKS[Severity.WARNING]
STATUS = {"failed": MARKS[Severity.ERROR], "differs": WARNED, "degraded": WARNED, "ok": OK}
WORDS: dict[Status, str] = {
    "failed": "failed",
    "differs": "unlike the others",
    "degraded": "slowed",
    "ok": "sound",
}


def fleet_screen(answer: FleetAnswer) -> Screen:
    """The whole answer: the verdict, the nodes that are not sound, what to exclude."""
    bad: dict[object, list[NodeAnswer]] = defaultdict(list)
    for node in answer.nodes:
        if node.status != "ok":  # nodes of which the same is to be said are shown together
            drift = tuple((one.field, one.value) for one in node.drift)
            said = tuple((one.id, one.title) for one in node.findings)
            bad[node.status, node.problem, drift, said].append(node)
    usual = {one.id for one in answer.common}
    lines: list[str] = [_verdict(answer)]
    for nodes in bad.values():
        lines += _node(nodes, usual)
    lines += section("On most nodes", _common(answer.common))
    lines += section("Compared with no other node", _uncompared(answer))
    lines += section("Not asked", _left_alone(answer))
    lines += _exclude(answer.exclude)
    if answer.left_out:
        count = plural(len(answer.left_out), "file")
        lines += ["", Row((f"{count} left out: {answer.left_out[0]}", DIM), hang=2)]
    return Screen(lines)


def _verdict(answer: FleetAnswer) -> Row:
    counts = Counter(node.status for node in answer.nodes)
    nodes = plural(len(answer.nodes), "node")
    if counts["ok"] == len(answer.nodes):
        alone = sum(len(kind.nodes) for kind in answer.uncompared)
        # "All alike" would be said of nodes that nobody has compared.
        words = f"all sound; {alone} of them compared with no other" if alone else "all alike"
        return marked(OK, "ok", f"{nodes}, {words}")
    parts = [f"{counts[status]} {words}" for status, words in WORDS.items() if counts[status]]
    return marked(STATUS["failed" if counts["failed"] else "differs"], nodes, ", ".join(parts))


def _node(nodes: Sequence[NodeAnswer], usual: Container[str]) -> Iterator[str]:
    node = nodes[0]
    mark, style = STATUS[node.status]
    named = slurm_list(one.name for one in nodes)
    more = f"{len(nodes)} nodes" if len(nodes) > 1 else node.taken_at or ""
    yield from ("", Row((f"{mark} {named}", style), (f"  {more}", DIM), hang=2))
    if node.problem:
        yield Row(f"    {node.problem}", hang=4)
    for one in node.findings:
        shown = one.severity is Severity.WARNING and (one.id not in usual or one.id in COST_SPEED)
        if shown or one.severity is Severity.ERROR:
            yield _finding(one)
    yield from map(_drift, node.drift)
    if node.next:
        yield Row("    → ", (node.next, COMMAND), hang=6, whole=True)


def _finding(finding: NodeFinding, more: str = "") -> Row:
    since = f" (since {finding.since})" if finding.since else ""
    text = f"{finding.title}{since}{more}"
    return marked(MARKS[finding.severity], finding.id, text, indent=4)


def _drift(drift: Drift) -> Row:
    others = f"{drift.nodes} of {drift.of} nodes have {drift.majority}"
    words = words_of(drift.field.removeprefix(RATES))
    if drift.field.startswith(RATES):
        others = f"the median of {drift.of} devices is {drift.majority}"
    elif drift.field == TAKEN_AT:
        words = "old record"
        others = f"the median of {drift.of} records is {drift.majority}; take a new one"
    elif drift.field == KIND:
        words = "the only node with"
    return marked(MARKS[drift.severity], words, f"{drift.value}, {others}", indent=4)


def _common(rows: Sequence[Common]) -> Iterator[Row]:
    for one in rows:
        if one.severity is not Severity.NOTE:
            kind = f" with {', '.join(one.gpus)}" if one.gpus else ""
            title = f"{one.title} ({one.nodes} of {one.of} nodes{kind})"
            yield marked(MARKS[one.severity], one.id, title, indent=2)


def _uncompared(answer: FleetAnswer) -> Iterator[Row]:
    """Nodes of too small kinds, without those whose own rows already say that they are alone."""
    lone = {node.name for node in answer.nodes for drift in node.drift if drift.field == KIND}
    for kind in answer.uncompared:
        names = [name for name in kind.nodes if name not in lone]
        if names:
            gpus = ", ".join(kind.gpus) or "no GPU seen"
            words = f"{gpus} (fewer than {LEAST_NODES} such nodes)"
            yield Row(f"  {slurm_list(names)}: {words}", hang=4)


def _left_alone(answer: FleetAnswer) -> Iterator[Row]:
    """Nodes that got no work, those of one state together."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, why in answer.not_asked.items():
        groups[why].append(name)
    for why, names in groups.items():
        yield Row(f"  {slurm_list(names)}: {why}", hang=4)


def _exclude(exclude: Exclude) -> Iterator[str]:
    job = [command(f"sbatch {quote(exclude.slurm)} job.sh")] if exclude.slurm else ()
    return section("To leave these nodes out of a Slurm job", job)


# --- the exchange between ranks -------------------------------------------------------------------

LEVELS = {"within": "exchange within a host", "between": "exchange between hosts"}


def sweep_screen(answer: SweepAnswer) -> Screen:
    """The verdict, who is named, and what was measured."""
    how = f"{len(answer.ranks)} ranks on {plural(answer.nodes, 'node')}, {answer.backend}"
    took = f"{how}, {answer.rounds} rounds in {answer.seconds:.1f} s"
    found = f"{took}: {len(answer.findings)} found"
    bad = MARKS[Severity.ERROR]
    lines: list[str] = [marked(OK, "ok", f"{took}: all alike") if answer.ok else marked(bad, found)]
    for finding in answer.findings:
        lines += ["", marked(bad, finding.fault, finding.title)]
        lines += [Row("    ", (finding.detail, DIM), hang=4)] if finding.detail else []
        lines += [Row(f"    → {finding.then}", hang=6)] if finding.then else []
    told = {}
    for level in answer.levels:
        sees = f"slower than {level.sees_below or 0:.0%} of this counts as slow"
        sees = sees if level.sees_below else "too few to compare"
        told[LEVELS[level.of]] = f"median {level.median:.3g} GB/s; {sees}"
    lines += section("Measured", facts(told))
    lines += _exclude(answer.exclude)
    return Screen(lines)


# --- two records ---------------------------------------------------------------------------------


def compare_screen(answer: CompareAnswer) -> Screen:
    """What the second has otherwise than the first."""
    first, second = answer.first, answer.second
    lines = [_compared(answer)]
    lines += [_finding(one, f" (only in {second})") for one in answer.only_second]
    lines += [_finding(one, f" (only in {first})") for one in answer.only_first]
    rows = [
        (
            MARKS[one.severity],
            words_of(one.field),
            one.first or "not told",
            one.second or "not told",
        )
        for one in answer.differences
    ]
    shown = table(("", "", first, second), rows, left=range(4)) if rows else []
    return Screen((*lines, *section("What differs", shown)))


def _compared(answer: CompareAnswer) -> Row:
    if not (answer.only_second or answer.differences or answer.only_first):
        return marked(OK, "ok", "the two are alike")
    said = [f"different: {plural(len(answer.differences), 'fact')}"]
    if answer.only_second:
        said.append(f"{plural(len(answer.only_second), 'finding')} more than before")
    return marked(STATUS["differs" if answer.matters else "ok"], *said)
