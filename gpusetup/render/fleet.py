"""Screens about several machines: the state of a fleet, and a comparison of two records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from shlex import quote

from gpusetup.fleet.compare import CompareAnswer
from gpusetup.fleet.differences import (
    COPIED,
    FUTURE,
    KIND,
    LEAST_NODES,
    RATES,
    TAKEN_AT,
    Drift,
    FactSplit,
)
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.node_check import NodeFinding
from gpusetup.fleet.show import (
    COST_SPEED,
    Common,
    FleetAnswer,
    NodeAnswer,
    Status,
)
from gpusetup.model.finding import Severity
from gpusetup.render.screen import (
    COMMAND,
    DIM,
    MARKS,
    OK,
    Screen,
    ScreenLine,
    command,
    marked,
    plural,
    section,
    table,
)

STATUS_MARKS = {
    "failed": MARKS[Severity.ERROR],
    "differs": MARKS[Severity.WARNING],
    "degraded": MARKS[Severity.WARNING],
    "undecided": MARKS[Severity.WARNING],
    "ok": OK,
}
STATUS_WORDS: dict[Status, str] = {
    "failed": "failed",
    "differs": "unlike the others",
    "degraded": "slowed",
    "undecided": "without a majority to compare with",
    "ok": "sound",
}


def fleet_screen(answer: FleetAnswer) -> Screen:
    """The screen of a fleet's state: the verdict, the faulty nodes, what most nodes have in common,
    and which nodes to exclude."""
    lines: list[str] = [_verdict(answer)]

    # Findings that most nodes share are shown only once, below the nodes.
    common_findings = {common.id for common in answer.common}
    for nodes in _alike_unsound_nodes(answer):
        lines += _node(nodes, common_findings)

    lines += section("No majority", _splits(answer.splits))
    lines += section("On most nodes", _common(answer.common))
    lines += section("Compared with no other node", _uncompared(answer))
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in answer.not_asked.items():
        names_by_reason[reason].append(name)
    not_asked = [
        ScreenLine(f"  {slurm_list(names)}: {reason}", hang=4)
        for reason, names in names_by_reason.items()
    ]
    lines += section("Not asked", not_asked)
    if answer.exclude.slurm:
        line = command(f"sbatch {quote(answer.exclude.slurm)} job.sh")
        lines += section("To leave these nodes out of a Slurm job", [line])
    if answer.left_out:
        count = plural(len(answer.left_out), "file")
        first_reason = answer.left_out[0]
        lines += ["", ScreenLine((f"{count} left out: {first_reason}", DIM), hang=2)]
    return Screen(lines)


def _alike_unsound_nodes(answer: FleetAnswer) -> Iterable[Sequence[NodeAnswer]]:
    """The faulty nodes, grouped so that nodes with the same faults are shown together."""
    groups: dict[object, list[NodeAnswer]] = defaultdict(list)
    for node in answer.nodes:
        # Leave out undecided nodes, because their differences are listed once, below all nodes.
        if node.status in ("ok", "undecided"):
            continue
        drifts = tuple((drift.field, drift.value) for drift in node.drift)
        findings = tuple((finding.id, finding.title) for finding in node.findings)
        groups[node.status, node.problem, drifts, findings].append(node)
    return groups.values()


def _verdict(answer: FleetAnswer) -> ScreenLine:
    """The verdict line: how many nodes are healthy or, if not all are, how many nodes have each
    status."""
    counts = Counter(node.status for node in answer.nodes)
    nodes = plural(len(answer.nodes), "node")
    age = f"; the newest record is {answer.age} old ({answer.newest_record})" if answer.age else ""
    if counts["ok"] == len(answer.nodes):
        uncompared = sum(len(kind.nodes) for kind in answer.uncompared)
        # Do not say "all alike" if some nodes could not be compared with any other node.
        words = f"all healthy; {uncompared} of them could not be compared with others"
        verdict = words if uncompared else "all alike"
        return marked(OK, "ok", f"{nodes}, {verdict}{age}")

    worst = "failed" if counts["failed"] else "differs"
    counted = ", ".join(
        f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status]
    )
    return marked(STATUS_MARKS[worst], nodes, f"{counted}{age}")


def _node(nodes: Sequence[NodeAnswer], common_findings: Container[str]) -> Iterator[str]:
    """Yields the lines of one group of nodes: their names, their faults, and the next step."""
    node = nodes[0]
    sign, role = STATUS_MARKS[node.status]
    names = slurm_list(node.name for node in nodes)
    remark = f"{len(nodes)} nodes" if len(nodes) > 1 else node.taken_at or ""
    yield ""
    yield ScreenLine((f"{sign} {names}", role), (f"  {remark}", DIM), hang=2)
    if node.problem:
        yield ScreenLine(f"    {node.problem}", hang=4)

    for finding in node.findings:
        if _is_shown(finding, common_findings):
            is_of_older_record = finding.taken_at not in (None, node.taken_at)
            remark = f" (from the record of {finding.taken_at})" if is_of_older_record else ""
            yield _finding(finding, remark)
    for drift in node.drift:
        yield _drift(drift)
    if node.next:
        yield ScreenLine("    → ", (node.next, COMMAND), hang=6, whole=True)


def _is_shown(finding: NodeFinding, common_findings: Container[str]) -> bool:
    """Whether to list a finding under its node. An error is always listed; a warning is listed if
    most nodes do not share it or if it costs speed."""
    if finding.severity is Severity.ERROR:
        return True
    # A finding that costs speed is shown for every node, even if it is common, because jobs run
    # slowly there.
    is_usual = finding.id in common_findings and finding.id not in COST_SPEED
    return finding.severity is Severity.WARNING and not is_usual


def _finding(finding: NodeFinding, remark: str = "") -> ScreenLine:
    """A line with a finding's title and a remark."""
    return marked(MARKS[finding.severity], finding.id, f"{finding.title}{remark}", indent=4)


OF_RECORDS = {
    TAKEN_AT: ("old record", "the newest of {of} records is of {majority}; record it again"),
    FUTURE: ("record from the future", "now it is {majority}; check the node's clock"),
    COPIED: ("copied record", "so one of them was not examined; take a new record on each"),
    KIND: ("the only node with", "{nodes} of {of} nodes have {majority}"),
}
"""Field that is no fact of a node -> its words, and what is said of the other nodes."""


def _drift(drift: Drift) -> ScreenLine:
    """A line with a value that differs from the other nodes, and the value that the others have."""
    usual_words = words_of(drift.field.removeprefix(RATES))
    words, others = OF_RECORDS.get(drift.field, (usual_words, OF_RECORDS[KIND][1]))
    # Two measured values are never equal, so the median represents the others.
    if drift.field.startswith(RATES):
        others = "the median of {of} devices is {majority}"
    majority = others.format(nodes=drift.nodes, of=drift.of, majority=drift.majority)
    return marked(MARKS[drift.severity], words, f"{drift.value}, {majority}", indent=4)


def _splits(splits: Iterable[FactSplit]) -> Iterator[ScreenLine]:
    """Yields a line for each fact without a majority, with its values and the nodes that have each
    value."""
    for split in splits:
        groups = [f"{value} on {slurm_list(names)}" for value, names in split.values.items()]
        yield marked(MARKS[split.severity], words_of(split.field), "; ".join(groups), indent=2)


def _common(rows: Sequence[Common]) -> Iterator[ScreenLine]:
    """Yields a line for each error or warning that most nodes have."""
    for common in rows:
        if common.severity is not Severity.NOTE:
            gpus = f" with {', '.join(common.gpus)}" if common.gpus else ""
            text = f"{common.title} ({common.nodes} of {common.of} nodes{gpus})"
            yield marked(MARKS[common.severity], common.id, text, indent=2)


def _uncompared(answer: FleetAnswer) -> Iterator[ScreenLine]:
    """Yields a line for each kind of node with too few nodes to compare, unless the nodes' own
    lines already say so."""
    nodes_that_say_so = {
        node.name for node in answer.nodes if any(drift.field == KIND for drift in node.drift)
    }
    for kind in answer.uncompared:
        names = [name for name in kind.nodes if name not in nodes_that_say_so]
        if names:
            gpus = ", ".join(kind.gpus) or "no GPU seen"
            words = f"{gpus} (fewer than {LEAST_NODES} such nodes)"
            yield ScreenLine(f"  {slurm_list(names)}: {words}", hang=4)


# --- two records ---------------------------------------------------------------------------------


def compare_screen(answer: CompareAnswer) -> Screen:
    """The screen of a comparison of two records: findings in only one of them, and facts that
    differ."""
    lines: list[str] = [_compared(answer)]

    # The second record is the later one.
    for name, findings in ((answer.second, answer.only_second), (answer.first, answer.only_first)):
        lines += [_finding(finding, f" (only in {name})") for finding in findings]
    rows = [
        (
            MARKS[difference.severity],
            words_of(difference.field),
            difference.first or "not recorded",
            difference.second or "not recorded",
        )
        for difference in answer.differences
    ]
    titles = ("", "", answer.first, answer.second)
    lines += section("What differs", table(titles, rows, left=range(4)) if rows else [])
    return Screen(lines)


def _compared(answer: CompareAnswer) -> ScreenLine:
    """The verdict line about two records: alike, or how many facts and findings differ."""
    if not (answer.only_second or answer.differences or answer.only_first):
        return marked(OK, "ok", "the two are alike")
    status = "differs" if answer.matters else "ok"
    counts = plural(len(answer.differences), "fact")
    if answer.only_second:
        counts += f", and {plural(len(answer.only_second), 'finding')} only in {answer.second}"
    return marked(STATUS_MARKS[status], "different", counts)
