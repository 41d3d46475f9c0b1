"""Screens of many machines: a fleet, the worst nodes first, and two records side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from shlex import quote

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpusetup.fleet.compare import CompareAnswer, Difference
from gpusetup.fleet.drift import Mixed
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.history import FirstFailure
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.fleet.show import RATES, Common, DriftAnswer, FleetAnswer, NodeAnswer
from gpusetup.model.finding import Severity
from gpusetup.render.language import plain
from gpusetup.render.text import MARKS, STYLES, command_line, heading, indented

STATUS = {"failed": ("✗", "bold red"), "differs": ("!", "yellow"), "ok": ("✓", "green")}
MOST_ROWS = 40
"""Nodes that are shown by name; the JSON has all."""
MOST_LINES = 6
"""Findings and differences of one node."""


def fleet_screen(answer: FleetAnswer) -> RenderableType:
    """The whole answer: the verdict, the nodes that are not sound, what to exclude."""
    bad = list(_alike(node for node in answer.nodes if node.status != "ok"))
    usual = {one.id for one in answer.common}
    parts: list[RenderableType] = [_verdict(answer)]
    for nodes in bad[:MOST_ROWS]:
        parts += _node(nodes, usual)
    if len(bad) > MOST_ROWS:
        more = sum(map(len, bad[MOST_ROWS:]))
        parts.append(Text(f"\nand {more} nodes more: `--json` lists all"))
    parts += _common(answer.common)
    parts += _mixed(answer.mixed)
    parts += _left_alone(answer)
    parts += _exclude(answer)
    if answer.left_out:
        count = len(answer.left_out)
        parts.append(
            Text(f"\n{count} file{_s(count)} left out: {plain(answer.left_out[0])}", "dim")
        )
    return Group(*parts)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _verdict(answer: FleetAnswer) -> Text:
    counts = Counter(node.status for node in answer.nodes)
    total = len(answer.nodes)
    if not counts["failed"] and not counts["differs"]:
        return Text.assemble(("✓ ok", "bold green"), f": {total} node{_s(total)}, all alike")
    worst = "failed" if counts["failed"] else "differs"
    mark, style = STATUS[worst]
    parts = [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{counts['differs']} unlike the others"] if counts["differs"] else []
    parts += [f"{counts['ok']} sound"] if counts["ok"] else []
    return Text.assemble((f"{mark} ", style), f"{total} nodes: {', '.join(parts)}")


def _alike(nodes: Iterable[NodeAnswer]) -> Iterator[list[NodeAnswer]]:
    """Nodes of which the same is to be said, together, where the first of them stands."""
    groups: dict[object, list[NodeAnswer]] = {}
    for node in nodes:
        groups.setdefault(_said_of(node), []).append(node)
    yield from groups.values()


def _said_of(node: NodeAnswer) -> object:
    drift = tuple((one.field, one.value) for one in node.drift)
    findings = tuple((one.id, one.title, one.since) for one in node.findings)
    return node.status, node.problem, findings, drift, node.first_failure


def _node(nodes: Sequence[NodeAnswer], usual: Container[str]) -> Iterator[RenderableType]:
    node = nodes[0]
    mark, style = STATUS[node.status]
    named = slurm_list(one.name for one in nodes)
    taken = f"  {node.taken_at}" if node.taken_at else ""
    beside = f"  {len(nodes)} nodes" if len(nodes) > 1 else taken
    yield Text.assemble("\n", (f"{mark} {plain(named)}", style), (plain(beside), "dim"))
    lines = list(_lines(node, usual))
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield Text(f"    and {len(lines) - MOST_LINES} more", style="dim")
    if node.first_failure:
        yield from _history(node.first_failure)


def _lines(node: NodeAnswer, usual: Container[str]) -> Iterator[RenderableType]:
    if node.problem:
        yield indented(node.problem, 4)
    telling = (one for one in node.findings if one.severity is not Severity.NOTE)
    graver = [one for one in telling if one.severity is Severity.ERROR or one.id not in usual]
    for finding in graver:
        yield _finding(finding)
    for drift in node.drift:
        yield _drift(drift)


def _finding(finding: NodeFinding, more: str = "") -> Padding:
    since = f", since {finding.since}" if finding.since else ""
    return _marked(finding.severity, finding.id, f"{finding.title}{since}{more}")


def _drift(drift: DriftAnswer) -> Padding:
    return _marked(drift.severity, _words(drift.field), f"{drift.value}, {_others(drift)}")


def _marked(severity: Severity, name: str, text: str) -> Padding:
    head = (f"{MARKS[severity]} {plain(name)}", STYLES[severity])
    return Padding(Text.assemble(head, f": {plain(text)}"), (0, 0, 0, 4))


def _words(field: str) -> str:
    return field.removeprefix(RATES) if field.startswith(RATES) else words_of(field)


def _others(drift: DriftAnswer) -> str:
    majority = drift.majority
    if drift.field.startswith(RATES):
        return f"the middle of {drift.of} devices is {majority}"
    return f"{drift.nodes} of {drift.of} nodes have {majority}"


def _history(found: FirstFailure) -> Iterator[RenderableType]:
    if found.sound_at is None:
        yield indented(f"{found.finding} is in every earlier record", 4)
        return
    changed = ", ".join(
        f"{words_of(one.field)} {one.before or 'none'} → {one.after or 'none'}"
        for one in found.changes[:MOST_LINES]
    )
    said = changed or "nothing that the records tell"
    yield indented(f"without {found.finding} on {found.sound_at}; changed since then: {said}", 4)


def _common(rows: Sequence[Common]) -> Iterator[RenderableType]:
    shown = [row for row in rows if row.severity is not Severity.NOTE]
    if shown:
        yield heading("On most nodes")
    for row in shown:
        yield _marked(row.severity, row.id, f"{row.title} ({row.nodes} of {row.of} nodes)")


def _mixed(rows: Sequence[Mixed]) -> Iterator[RenderableType]:
    if not rows:
        return
    yield heading("No majority")
    for row in rows:
        values = ", ".join(f"{count} x {plain(value)}" for value, count in row.values.items())
        yield indented(f"{words_of(row.field)}: {values}")


def _left_alone(answer: FleetAnswer) -> Iterator[RenderableType]:
    """Nodes that got no work, those of one state together."""
    if answer.not_asked:
        yield heading("Not asked")
    groups: dict[str, list[str]] = defaultdict(list)
    for one in answer.not_asked:
        groups[one.why].append(one.name)
    for why, names in groups.items():
        yield indented(f"{plain(slurm_list(names))}: {plain(why)}")


def _exclude(answer: FleetAnswer) -> Iterator[RenderableType]:
    exclude = answer.exclude
    if exclude.slurm:
        yield heading("To leave the failed nodes out of a Slurm job")
        yield command_line(f"sbatch {quote(exclude.slurm)} job.sh")
    if exclude.not_named:
        names = ", ".join(plain(name) for name in exclude.not_named[:MOST_LINES])
        yield indented(f"not named there, for no host is called so: {names}")


# --- two records ---------------------------------------------------------------------------------


def compare_screen(answer: CompareAnswer) -> RenderableType:
    """What the second has otherwise than the first."""
    parts: list[RenderableType] = [_compared(answer)]
    for id in answer.only_second:
        parts.append(_with(answer.second.findings, id, f"only in {answer.second.name}"))
    for id in answer.only_first:
        parts.append(_with(answer.first.findings, id, f"only in {answer.first.name}"))
    if answer.differences:
        parts += [heading("What differs"), _differences(answer)]
    return Group(*parts)


def _compared(answer: CompareAnswer) -> Text:
    if answer.only_second or answer.differences or answer.only_first:
        mark, style = STATUS["differs" if answer.matters else "ok"]
        count, new = len(answer.differences), len(answer.only_second)
        said = f"{count} fact{_s(count)} differ" if count != 1 else "1 fact differs"
        more = f", {new} finding{_s(new)} more than before" if new else ""
        return Text.assemble((f"{mark} ", style), f"{said}{more}")
    return Text.assemble(("✓ ", "bold green"), "the two are alike in all that is compared")


def _with(findings: Sequence[NodeFinding], id: str, where: str) -> Padding:
    return _finding(next(one for one in findings if one.id == id), f" ({where})")


def _differences(answer: CompareAnswer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "", plain(answer.first.name), plain(answer.second.name)):
        table.add_column(title, overflow="fold", header_style="dim")
    for severity, rows in _by_severity(answer.differences).items():
        for row in rows:
            mark = Text(MARKS[severity], style=STYLES[severity])
            table.add_row(mark, words_of(row.field), *_both(row))
    return table


def _both(row: Difference) -> tuple[str, str]:
    return plain(row.first or "not told"), plain(row.second or "not told")


def _by_severity(rows: Sequence[Difference]) -> dict[Severity, list[Difference]]:
    found: dict[Severity, list[Difference]] = defaultdict(list)
    for row in rows:
        found[row.severity].append(row)
    return found
