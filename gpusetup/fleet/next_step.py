"""Chooses the next command to run for a node. The command shows more than the records do, or takes
a new record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from gpusetup.fleet.drift import RATES
from gpusetup.fleet.facts import GPU_COUNT
from gpusetup.fleet.node_finding import NodeFinding
from gpusetup.fleet.nodes import SAFE, Drift, Node
from gpusetup.model.finding import Severity

BUS_AND_LOG = 'lspci -nn -d 10de:; sudo dmesg | grep -E "NVRM|Xid|AER|pcieport" | tail -n 40'
"""Shows which GPUs are on the PCI bus (10de is NVIDIA), and the kernel's messages about those that
are missing."""
VERIFY_AGAIN = "gpusetup verify --level standard"
RECORDERS = {
    "verify": f"{VERIFY_AGAIN} --json",
    "check": "gpusetup fleet check --json",
    "doctor": "gpusetup doctor --json",
}
"""Maps the ending of a record's file name to the command that writes such a record."""


def next_command(node: Node, drift: Sequence[Drift], folder: str | None = None) -> str | None:
    """The next command to run for a node; None if the node's name is not safe in a command.

    `folder`: the folder for the node's record.

    >>> next_command(Node(name="n1", problem="no record"), (), "records")
    'ssh n1 gpusetup snapshot > records/n1.json'
    >>> next_command(Node(name="n1", problem="cut", broken_file="records/n1.verify.json"), ())
    'ssh n1 gpusetup verify --level standard --json > records/n1.verify.json'
    """
    if not node.problem and _doctor_knows(node, drift):
        return f"gpusetup doctor --from {quote(node.snapshot_file or '')}"
    if not SAFE.fullmatch(node.name):
        return None
    if node.problem:
        return _new_record(node, folder)
    fields = {row.field for row in drift if row.severity is Severity.ERROR}
    if GPU_COUNT in fields or any(map(_is_missing_gpu, node.findings)):
        return f"ssh -t {node.name} {quote(BUS_AND_LOG)}"
    is_slow = any(field.startswith(RATES) for field in fields)
    if is_slow or any(finding.source == "verify" for finding in node.findings):
        return f"ssh {node.name} {VERIFY_AGAIN}"
    return f"ssh {node.name} gpusetup doctor"


def _doctor_knows(node: Node, drift: Iterable[Drift]) -> bool:
    """Whether doctor, run on the node's snapshot file, reports one of the node's most serious
    findings."""
    file = node.snapshot_file
    # A file name with control characters must not become part of a command on the terminal.
    if file is None or not file.isprintable():
        return False
    ids = {finding.id for finding in node.findings}
    errors = {finding.id for finding in node.findings if finding.severity is Severity.ERROR}
    # Doctor judges a single machine, so it cannot report differences from other machines.
    has_grave_difference = any(row.severity is Severity.ERROR for row in drift)
    gravest = errors if errors or has_grave_difference else ids
    return not gravest.isdisjoint(node.snapshot_findings)


def _is_missing_gpu(finding: NodeFinding) -> bool:
    """Whether a finding says that a node's number of GPUs differs from its profile."""
    return finding.source == "profile" and GPU_COUNT in finding.about


def _new_record(node: Node, folder: str | None) -> str:
    """The command that takes a node's missing or broken record again."""
    file = node.broken_file
    # If some of the records exist but not all, something on the node hangs.
    has_no_record = file is None and not node.facts
    if has_no_record and folder is not None:
        file = str(Path(folder) / f"{node.name}.json")
    if file is None or not file.isprintable():
        return f"ssh {node.name} gpusetup doctor"
    command = "gpusetup snapshot"
    for ending, recorder in RECORDERS.items():
        if Path(file).stem.endswith(ending):
            command = recorder
    return f"ssh {node.name} {command} > {quote(file)}"
