"""Screens of many machines: a fleet, the worst nodes first, and two records side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from shlex import quote

from gpusetup.fleet.compare import CompareAnswer, Difference
from gpusetup.fleet.drift import Mixed
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.nodes import Drift, NodeFinding
from gpusetup.fleet.rates import RATES
from gpusetup.fleet.show import COSTS, Common, FleetAnswer, NodeAnswer, Status
from gpusetup.model.finding import Severity
from gpusetup.render.language import (
    DIM,
    MARKS,
    OK,
    Row,
    Screen,
    command,
    marked,
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
MOST_ROWS = 40
"""Nodes that are shown by name; the JSON has all."""
MOST_LINES = 6
"""Findings and differences of one node."""


def fleet_screen(answer: FleetAnswer) -> Screen:
    """The whole answer: the verdict, the nodes that are not sound, what to exclude."""
    bad = list(_alike(node for node in answer.nodes if node.status != "ok"))
    usual = {one.id for one in answer.common}
    lines: list[str] = [_verdict(answer)]
    for nodes in bad[:MOST_ROWS]:
        lines += _node(nodes, usual)
    if len(bad) > MOST_ROWS:
        more = sum(map(len, bad[MOST_ROWS:]))
        lines += ["", f"and {more} nodes more: `--json` lists all"]
    lines += section("On most nodes", _common(answer.common))
    lines += section("No majority", _mixed(answer.mixed))
    lines += section("Not asked", _left_alone(answer))
    lines += section("To leave the failed nodes out of a Slurm job", _exclude(answer))
    if answer.left_out:
        count = len(answer.left_out)
        said = f"{count} file{_s(count)} left out: {answer.left_out[0]}"
        lines += ["", Row((said, DIM), hang=2)]
    return Screen(lines)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _verdict(answer: FleetAnswer) -> Row:
    counts = Counter(node.status for node in answer.nodes)
    total = len(answer.nodes)
    if counts["ok"] == total:
        return marked(OK, "ok", f"{total} node{_s(total)}, all alike")
    parts = [f"{counts[status]} {words}" for status, words in WORDS.items() if counts[status]]
    mark = STATUS["failed" if counts["failed"] else "differs"]
    return marked(mark, f"{total} node{_s(total)}", ", ".join(parts))


def _alike(nodes: Iterable[NodeAnswer]) -> Iterator[list[NodeAnswer]]:
    """Nodes of which the same is to be said, together, where the first of them stands."""
    groups: dict[object, list[NodeAnswer]] = {}
    for node in nodes:
        groups.setdefault(_said_of(node), []).append(node)
    yield from groups.values()


def _said_of(node: NodeAnswer) -> object:
    drift = tuple((one.field, one.value) for one in node.drift)
    findings = tuple((one.id, one.title) for one in node.findings)
    return node.status, node.problem, findings, drift


def _node(nodes: Sequence[NodeAnswer], usual: Container[str]) -> Iterator[str]:
    node = nodes[0]
    mark, style = STATUS[node.status]
    named = slurm_list(one.name for one in nodes)
    taken = f"  {node.taken_at}" if node.taken_at else ""
    beside = f"  {len(nodes)} nodes" if len(nodes) > 1 else taken
    yield from ("", Row((f"{mark} {named}", style), (beside, DIM), hang=2))
    lines = list(_lines(node, usual))
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield Row((f"    and {len(lines) - MOST_LINES} more", DIM))


def _lines(node: NodeAnswer, usual: Container[str]) -> Iterator[Row]:
    if node.problem:
        yield Row(f"    {node.problem}", hang=4)
    telling = (one for one in node.findings if one.severity is not Severity.NOTE)
    graver = [
        o for o in telling if o.severity is Severity.ERROR or o.id not in usual or o.id in COSTS
    ]
    for finding in graver:
        yield _finding(finding)
    for drift in node.drift:
        yield _drift(drift)


def _finding(finding: NodeFinding, more: str = "") -> Row:
    return marked(MARKS[finding.severity], finding.id, f"{finding.title}{more}", indent=4)


def _drift(drift: Drift) -> Row:
    said = f"{drift.value}, {_others(drift)}"
    return marked(MARKS[drift.severity], _words(drift.field), said, indent=4)


def _words(field: str) -> str:
    return field.removeprefix(RATES) if field.startswith(RATES) else words_of(field)


def _others(drift: Drift) -> str:
    majority = drift.majority
    if drift.field.startswith(RATES):
        return f"the middle of {drift.of} devices is {majority}"
    return f"{drift.nodes} of {drift.of} nodes have {majority}"


def _common(rows: Sequence[Common]) -> Iterator[Row]:
    for one in rows:
        if one.severity is not Severity.NOTE:
            said = f"{one.title} ({one.nodes} of {one.of} nodes)"
            yield marked(MARKS[one.severity], one.id, said, indent=2)


def _mixed(rows: Sequence[Mixed]) -> Iterator[Row]:
    for one in rows:
        values = ", ".join(f"{count} x {value}" for value, count in one.values.items())
        yield Row(f"  {words_of(one.field)}: {values}", hang=4)


def _left_alone(answer: FleetAnswer) -> Iterator[Row]:
    """Nodes that got no work, those of one state together."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one in answer.not_asked:
        groups[one.why].append(one.name)
    for why, names in groups.items():
        yield Row(f"  {slurm_list(names)}: {why}", hang=4)


def _exclude(answer: FleetAnswer) -> Iterator[Row]:
    exclude = answer.exclude
    if exclude.slurm:
        yield command(f"sbatch {quote(exclude.slurm)} job.sh")
    if exclude.not_named:
        names = ", ".join(exclude.not_named[:MOST_LINES])
        yield Row(f"  not named there, for no host is called so: {names}", hang=4)


# --- two records ---------------------------------------------------------------------------------


def compare_screen(answer: CompareAnswer) -> Screen:
    """What the second has otherwise than the first."""
    lines: list[str] = [_compared(answer)]
    for id in answer.only_second:
        lines.append(_with(answer.second.findings, id, f"only in {answer.second.name}"))
    for id in answer.only_first:
        lines.append(_with(answer.first.findings, id, f"only in {answer.first.name}"))
    return Screen((*lines, *section("What differs", _differences(answer))))


def _compared(answer: CompareAnswer) -> Row:
    if answer.only_second or answer.differences or answer.only_first:
        count, new = len(answer.differences), len(answer.only_second)
        said = f"{count} fact{_s(count)} differ" if count != 1 else "1 fact differs"
        more = (f"{new} finding{_s(new)} more than before",) if new else ()
        return marked(STATUS["differs" if answer.matters else "ok"], said, *more)
    return marked(OK, "ok", "the two are alike in all that is compared")


def _with(findings: Sequence[NodeFinding], id: str, where: str) -> Row:
    return _finding(next(one for one in findings if one.id == id), f" ({where})")


def _differences(answer: CompareAnswer) -> list[Row]:
    rows = [
        (MARKS[severity], words_of(row.field), *_both(row))
        for severity, rows in _by_severity(answer.differences).items()
        for row in rows
    ]
    return (
        table(("", "", answer.first.name, answer.second.name), rows, left=range(4)) if rows else []
    )


def _both(row: Difference) -> tuple[str, str]:
    return row.first or "not told", row.second or "not told"


def _by_severity(rows: Sequence[Difference]) -> dict[Severity, list[Difference]]:
    found: dict[Severity, list[Difference]] = defaultdict(list)
    for row in rows:
        found[row.severity].append(row)
    return found
