"""Builds the result of `fleet show`: one row per node, with the worst nodes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Literal, get_args

from gpusetup.fleet.differences import COPIED, LEAST_NODES, OLD, Drift, by_kind, differences
from gpusetup.fleet.facts import GPU_COUNT
from gpusetup.fleet.names import SAFE, natural, slurm_list
from gpusetup.fleet.node_check import NodeFinding
from gpusetup.fleet.records import FAILED_CHECK, Node, Records
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

Status = Literal["failed", "differs", "ok"]
"""`differs`: the node has a warning, or differs from the other nodes. The worst status comes first.
"""


class NodeAnswer(Frozen):
    name: str
    status: Status
    problem: str | None = None
    """Why the node's record is missing or incomplete; None if it is complete."""
    taken_at: str | None = None
    findings: tuple[NodeFinding, ...] = ()
    """Its errors, and the warnings that most nodes of its kind do not have."""
    drift: tuple[Drift, ...] = ()
    next: str | None = None
    """The command that shows more about a node with a problem or, if the records already show
    enough, takes its record again after a change."""


class FleetAnswer(Frozen):
    schema: Literal["gpusetup.fleet/1"] = "gpusetup.fleet/1"
    nodes: tuple[NodeAnswer, ...]
    """The worst nodes first, then sorted by name."""
    exclude: str = ""
    """The option of sbatch and srun that leaves the failed nodes out; empty if no node failed."""
    left_out: tuple[str, ...] = ()
    """Files in the folder that are not records."""
    not_compared: tuple[str, ...] = ()
    """Nodes with whose GPU model there are fewer than three records, too few to compare."""
    not_asked: Mapping[str, str] = {}
    """Maps each node that `fleet run` skipped to the reason."""


def answer(records: Records, expected: Iterable[str]) -> FleetAnswer:
    """Judge a fleet by its records. `expected` names nodes that should have a record; a node
    without one fails."""
    recorded = {node.name for node in records.nodes}
    missing = [name for name in expected if name not in recorded]
    no_record = "no record in this folder"
    nodes = (*records.nodes, *(Node(name=name, problem=no_record) for name in missing))
    usual = usual_findings(records.nodes)
    drift_of: dict[str, list[Drift]] = defaultdict(list)
    for difference in differences(nodes):
        drift_of[difference.node].append(difference)
    rows = []
    for node in nodes:
        drift = drift_of[node.name]
        # The most severe first, as in Severity.
        drift.sort(key=lambda row: ([*Severity].index(row.severity), row.field))
        findings = tuple(
            finding
            for finding in node.findings
            if finding.severity is Severity.ERROR
            or (finding.severity is Severity.WARNING and finding.id not in usual[node.kind])
        )
        severities = {one.severity for one in findings} | {one.severity for one in drift}
        status: Status = "differs" if severities else "ok"
        if node.problem or Severity.ERROR in severities:
            status = "failed"
        row = NodeAnswer(
            name=node.name,
            status=status,
            problem=node.problem,
            taken_at=node.taken_at,
            findings=findings,
            drift=tuple(drift),
            next=next_command(node, drift, findings, records.folder),
        )
        rows.append(row)
    statuses: tuple[Status, ...] = get_args(Status)
    rows.sort(key=lambda row: (statuses.index(row.status), natural(row.name)))
    # Names that are not safe in a command are left out.
    failed = [row.name for row in rows if row.status == "failed" and SAFE.fullmatch(row.name)]
    few = [of_kind for of_kind in by_kind(records.nodes).values() if len(of_kind) < LEAST_NODES]
    return FleetAnswer(
        nodes=tuple(rows),
        not_compared=tuple(node.name for of_kind in few for node in of_kind),
        exclude=f"--exclude={slurm_list(failed)}" if failed else "",
        left_out=records.left_out,
    )


COST_SPEED = {"power-thermal-throttle", "pcie-degraded", "vgpu-unlicensed"}
"""Warnings about something that costs speed now. A node with such a warning is not healthy, even if
many other nodes have the same warning."""


def usual_findings(nodes: Sequence[Node]) -> dict[str, set[str]]:
    """The ids of the findings that more than half of the nodes of each kind have.

    For example, if the GPUs of all nodes of a kind are divided (MIG), the finding about it is not a
    difference, even if the rest of the fleet has other GPUs.
    """
    usual: dict[str, set[str]] = defaultdict(set)
    for kind, of_kind in by_kind(nodes).items():
        if len(of_kind) < LEAST_NODES:
            continue
        counts = Counter[str]()
        for node in of_kind:
            # An id counts once for each node, however often the node has it.
            counts.update({finding.id for finding in node.findings})
        of_most_nodes = {id for id, count in counts.items() if count * 2 > len(of_kind)}
        usual[kind] = of_most_nodes - COST_SPEED
    return usual


BUS_AND_LOG = 'lspci -nn -d 10de:; sudo dmesg | grep -E "NVRM|Xid|AER|pcieport" | tail -n 40'
"""Shows which GPUs are on the PCI bus (10de is NVIDIA), and the kernel's messages about those that
are missing."""
VERIFY = "gpusetup verify --level standard"


def next_command(
    node: Node, drift: Sequence[Drift], findings: Sequence[NodeFinding], folder: str | None
) -> str | None:
    """The command that shows more about a node than the records do. If its record is bad, or shows
    all that there is to know, it takes the record again; None for a healthy node, or if the node's
    name is not safe in a command.

    `findings`: those that tell it from the others. `folder`: the folder for its record.

    >>> next_command(Node(name="n1", problem="no record"), (), (), "records")
    'ssh n1 gpusetup snapshot > records/n1.json'
    >>> next_command(Node(name="n1", problem="cut", broken_file="n1.verify.json"), (), (), ".")
    'ssh n1 gpusetup verify --level standard --json > n1.verify.json'
    """
    if not (node.problem or drift or findings):
        return None
    fields = {row.field for row in drift} | {finding.field or "" for finding in findings}
    is_bad_record = node.problem or fields & {COPIED, OLD}
    by_doctor = any(finding.id != FAILED_CHECK for finding in findings)
    if by_doctor and node.snapshot_file and not is_bad_record:
        # The node itself is not needed, so its name may be unsafe.
        file = node.snapshot_file
        return f"gpusetup doctor --from {quote(file)}" if file.isprintable() else None
    if GPU_COUNT in fields and not is_bad_record:
        command = f"ssh -t {node.name} {quote(BUS_AND_LOG)}"
    elif findings and not is_bad_record:
        command = f"ssh {node.name} {'gpusetup doctor' if by_doctor else VERIFY}"
    else:
        file = node.broken_file or str(Path(folder or ".") / f"{node.name}.json")
        of_verify = Path(file).stem.endswith("verify")
        recorder = f"{VERIFY} --json" if of_verify else "gpusetup snapshot"
        command = f"ssh {node.name} {recorder} > {quote(file)}"
    # A name or file with other characters must not become part of a command on the terminal.
    return command if SAFE.fullmatch(node.name) and command.isprintable() else None
