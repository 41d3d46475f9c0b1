"""The screen about several machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from shlex import quote

from gpusetup.fleet.differences import COPIED, KIND, LEAST_NODES, OLD
from gpusetup.fleet.facts import words_of
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.show import COST_SPEED, FleetAnswer, NodeAnswer, Status
from gpusetup.render.screen import (
    BUT,
    COMMAND,
    DIM,
    MARKS,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    marked,
    plural,
    section,
)

STATUS_MARKS = {"failed": NO, "differs": BUT, "ok": OK}
STATUS_WORDS: dict[Status, str] = {"failed": "failed", "differs": "to look at", "ok": "healthy"}
"""The words for each status in a count of nodes, in the order of the verdict."""
ABOUT_SLOW = (
    "Leave slow nodes out of your Slurm jobs (`{}`), and show this to the cluster's administrator."
)
ABOUT_DIFFERENCES = (
    "If a different setting is not intended, change it to what most nodes have. Then take a new "
    "record of the node with `gpusetup snapshot`, and compare with `gpusetup fleet show`."
)


def fleet_screen(answer: FleetAnswer) -> Screen:
    """The screen of a fleet's state: the verdict, the faulty nodes, and which nodes to exclude."""
    lines: list[str] = [_verdict(answer)]
    nodes_by_faults: dict[object, list[NodeAnswer]] = defaultdict(list)
    for node in answer.nodes:
        # Nodes with the same faults are shown together.
        if node.status != "ok":
            drifts = tuple((drift.field, drift.value) for drift in node.drift)
            findings = tuple((finding.id, finding.title) for finding in node.findings)
            nodes_by_faults[node.status, node.problem, drifts, findings].append(node)
    for nodes in nodes_by_faults.values():
        lines += _faulty_nodes(nodes)

    differing = [node for node in answer.nodes if node.status == "differs"]
    slow = [node.name for node in differing if COST_SPEED & {one.id for one in node.findings}]
    advice = [ABOUT_SLOW.format(quote(f"--exclude={slurm_list(slow)}"))] if slow else []
    if any(node.drift for node in differing):
        advice.append(ABOUT_DIFFERENCES)
    lines += section("What to do", [ScreenLine(f"  {text}", hang=2) for text in advice])
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in answer.not_asked.items():
        names_by_reason[reason].append(name)
    not_asked = [
        ScreenLine(f"  {slurm_list(names)}: {reason}", hang=4)
        for reason, names in names_by_reason.items()
    ]
    lines += section("Skipped", not_asked)
    if answer.exclude:
        line = command(f"sbatch {quote(answer.exclude)} job.sh")
        lines += section("To leave the failed nodes out of a Slurm job", [line])
    if answer.left_out:
        count = plural(len(answer.left_out), "file")
        lines += ["", ScreenLine((f"{count} ignored: {answer.left_out[0]}", DIM), hang=2)]
    return Screen(lines)


def _verdict(answer: FleetAnswer) -> ScreenLine:
    """The verdict line: that all nodes are healthy, or how many nodes have each status."""
    counts = Counter(node.status for node in answer.nodes)
    nodes = plural(len(answer.nodes), "node")
    if counts["ok"] == len(answer.nodes):
        # Do not say that all nodes are equal: a node may be the only one with its GPUs.
        compared = "no node differs from others of its kind"
        if answer.not_compared:
            few = slurm_list(answer.not_compared)
            compared = f"not compared: {few} (fewer than {LEAST_NODES} records of the GPU model)"
        return marked(OK, "ok", f": {nodes}, all healthy; {compared}")
    worst = "failed" if counts["failed"] else "differs"
    counted = ", ".join(
        f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status]
    )
    return marked(STATUS_MARKS[worst], nodes, f": {counted}")


def _faulty_nodes(nodes: Sequence[NodeAnswer]) -> Iterator[str]:
    """Yields the lines of nodes with the same faults: names, faults, and the next step."""
    node = nodes[0]
    sign, role = STATUS_MARKS[node.status]
    names = slurm_list(node.name for node in nodes)
    remark = f"{len(nodes)} nodes" if len(nodes) > 1 else node.taken_at or ""
    yield ""
    yield ScreenLine((f"{sign} {names}", role), (f"  {remark}", DIM), hang=2)
    if node.problem:
        yield ScreenLine(f"    {node.problem}", hang=4)

    for finding in node.findings:
        yield marked(MARKS[finding.severity], finding.id, f": {finding.title}", indent=4)
    for drift in node.drift:
        field, others = words_of(drift.field), f"most nodes have {drift.majority}"
        # Three fields are not about one of the node's facts, and have words of ours.
        if drift.field == COPIED:
            field = "copied record"
            others = "so one of them was not examined; take a new record on each"
        elif drift.field == OLD:
            field, others = "old record", "take a new one"
        elif drift.field == KIND:
            field = "the only node with"
        elif drift.majority is None:
            others = "and no value is shared by most nodes"
        yield marked(MARKS[drift.severity], field, f": {drift.value}, {others}", indent=4)
    if node.next:
        yield ScreenLine("    → ", (node.next, COMMAND), hang=6, whole=True)
