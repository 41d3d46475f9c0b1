"""Reads a folder of records: snapshots, doctor's JSON, and reports of verify and `fleet check`.

Files about the same node, such as `node7.json` and `node7.verify.json`, are merged. Files that are
not records of gpusetup are skipped and counted; an incomplete record becomes a node with a problem.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import GPU_NAME, facts_of
from gpusetup.fleet.names import natural, on_one_line
from gpusetup.fleet.node_check import NodeCheckAnswer, NodeFinding, findings_of, uuids_of
from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.named_file import text_of
from gpusetup.probe.snapshot_files import parse_snapshot, read_bytes

RECORD_SUFFIX = re.compile(r"[.-](?:snapshot|doctor|verify|(?:node[-_])?check|run)$")
"""Suffixes that may follow the node's name in a file name, such as `.verify` in `n7.verify.json`.
"""
RECORD_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*(?:\{|\Z)")
"""How a record begins: as a JSON object in UTF-8 or PowerShell's UTF-16. Empty files match too."""
FAILED_CHECK = "gpu-check-failed"
"""The id of what verify found."""


class Node(Frozen):
    """A node with the contents of its records, or the reason why there are none."""

    name: str = ""
    taken_at: str | None = None
    kind: str = ""
    """The models of the node's GPUs, such as `NVIDIA L4`; only nodes of the same kind are compared.
    Empty if the node has no visible GPU."""
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    problem: str | None = None
    """Why the record is missing or incomplete; None if it is complete."""
    snapshot_file: str | None = None
    """The file of the node's newest record, if that is a snapshot, which doctor can read again."""
    broken_file: str | None = None
    """The file of a record that could not be read."""
    gpu_uuids: tuple[str, ...] = ()


class Records(Frozen):
    """The records that were read from a folder."""

    folder: str | None = None
    nodes: tuple[Node, ...]
    """Sorted by name."""
    left_out: tuple[str, ...] = ()
    """Files that are not records, each with the reason."""


def read_folder(folder: Path) -> Records:
    """The records in a folder, grouped by node. Raises BadInput if it is not a folder."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder of records")
    records_of: dict[str, list[Node]] = defaultdict(list)
    left_out: list[str] = []
    # Files whose names begin with a dot are still being written.
    for path in sorted(path for path in folder.glob("[!.]*.json") if path.is_file()):
        node = read_record(path, on_one_line(RECORD_SUFFIX.sub("", path.stem)))
        if isinstance(node, str):
            left_out.append(f"{on_one_line(path.name)}: {node}")
        else:
            records_of[node.name].append(node)
    nodes = [merged(records_of[name]) for name in sorted(records_of, key=natural)]
    return Records(folder=str(folder), nodes=tuple(nodes), left_out=tuple(left_out))


class _Header(Frozen):
    """The kind of a record, and the problem in a file which `fleet run` writes if a node's records
    are incomplete."""

    schema: str | None = None
    problem: str | None = None


def read_record(path: Path, name: str) -> Node | str:
    """The node in one file; a text says why the file is not a record of gpusetup. A record that
    cannot be read gives a node with a problem instead of facts."""
    try:
        raw = read_bytes(path)
        if not RECORD_START.match(raw):
            return "this is not a record of gpusetup (no JSON object)"
        raw = text_of(raw, path.name).encode()
        if not raw.strip():
            raise BadInput(f"{path.name} is empty: the command that should write it failed")
        header = from_json(raw, _Header, what=path.name)
        # `gpusetup.verify` for the schema `gpusetup.verify/1`.
        family = (header.schema or "").partition("/")[0]
        if family == "gpusetup.run":
            return Node(name=name, problem=header.problem or "no reason was recorded")
        if family not in READERS:
            return f"not a record of gpusetup ({header.schema or 'it has no schema'})"
        reader = READERS[family]
        node = reader(raw, path.name)
    except BadInput as problem:
        return Node(name=name, problem=problem.message, broken_file=str(path))
    snapshot_file = str(path) if reader is _from_snapshot else None
    return replace(node, name=name, snapshot_file=snapshot_file)


def _from_snapshot(raw: bytes, what: str) -> Node:
    """The node in a snapshot, or in doctor's document, which contains a snapshot."""
    snapshot = parse_snapshot(raw, what)
    facts = facts_of(snapshot)
    # The file is some other JSON with one of our schemas.
    if snapshot.taken_at is None and not snapshot.readings and not facts:
        raise BadInput(f"{what} does not describe its machine")
    return Node(
        taken_at=snapshot.taken_at,
        kind=facts.get(GPU_NAME, ""),
        facts=facts,
        findings=findings_of(snapshot),
        gpu_uuids=uuids_of(snapshot),
    )


def _from_verify(raw: bytes, what: str) -> Node:
    """The node in a report of verify, with its failed checks as findings."""
    answer = from_json(raw, VerifyAnswer, what=what)
    problems = [
        # The detail of a check may be empty.
        f"verify's {check.name} {check.status} on {check.device}: {check.detail}".rstrip(": ")
        for check in answer.checks
        if check.status in ("failed", "crashed")
    ]
    if answer.verdict == "failed" and not problems:
        problems = ["verify's verdict is failed"]
    return Node(
        findings=tuple(
            NodeFinding(id=FAILED_CHECK, severity=Severity.ERROR, title=problem)
            for problem in problems
        ),
    )


def _from_node_check(raw: bytes, what: str) -> Node:
    """The node in a record of `fleet check`."""
    answer = from_json(raw, NodeCheckAnswer, what=what)
    return Node(
        taken_at=answer.taken_at,
        kind=answer.facts.get(GPU_NAME, ""),
        facts=answer.facts,
        findings=answer.findings,
        gpu_uuids=answer.gpu_uuids,
    )


READERS: dict[str, Callable[[bytes, str], Node]] = {
    "gpusetup.verify": _from_verify,
    "gpusetup.node-check": _from_node_check,
    **dict.fromkeys(("gpusetup.snapshot", "gpusetup.doctor"), _from_snapshot),
}
"""Maps each schema to the function that reads it."""


def merged(records: Sequence[Node]) -> Node:
    """Several records of one node as one. The newest record counts, and older ones only fill in
    what it does not tell. Reports of verify have no date, so what they found always counts."""
    # All times are UTC in one format. Of two records of the same time, a snapshot counts as the
    # newer one, because it sees more.
    node, *others = sorted(
        records,
        key=lambda record: (record.taken_at or "", record.snapshot_file is not None),
        reverse=True,
    )
    for older in others:
        of_verify = tuple(finding for finding in older.findings if finding.id == FAILED_CHECK)
        filled_in = {name: getattr(node, name) or getattr(older, name) for name in FILLED_IN}
        node = replace(
            node,
            facts={**older.facts, **node.facts},
            findings=(*node.findings, *of_verify),
            **filled_in,
        )
    return node


FILLED_IN = ("taken_at", "kind", "problem", "broken_file", "gpu_uuids")
"""Fields whose value comes from the newest record that tells it."""
