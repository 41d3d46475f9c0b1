"""A folder of records, read one file after the other: snapshots, doctor's answers, verify's and
node-check's reports, of this version or an older one.

Files of one node are put together: `node7.json` and `node7.verify.json`, or `node7/snapshot.json`
and `node7/verify.json`. What is no record of ours is left out and counted; a record that is cut
off is a node with a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import facts_of
from gpusetup.fleet.node_check import findings_of
from gpusetup.fleet.nodes import Node, NodeFinding, Rate, natural
from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.named_file import text_of
from gpusetup.probe.snapshot_files import parse_snapshot, read_bytes
from gpusetup.redaction import redact

RECORD_SUFFIX = re.compile(r"(?:^|[.-])(?:snapshot|doctor|verify|node[-_]check|run)$")
"""What a file's name may end with after the node's name, and what a file in a node's folder is
called."""
MOST_FILES = 200_000
MANY_FILES, MOST_READERS = 2000, 8
"""From how many files on several processes read them, and how many processes."""
RECORD_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*(?:\{|\Z)")
"""A record is a JSON object, in UTF-8 or as PowerShell writes it; one that is cut off still is, and
so is a file in which nothing has arrived."""
RATE_UNITS = ("GB/s", "TFLOP/s", "TFLOPS", "MB/s", "GFLOP/s")
FAILED = ("failed", "crashed")


class Records(Frozen):
    """What a folder holds."""

    nodes: tuple[Node, ...]
    """By name."""
    left_out: tuple[str, ...] = ()
    """Files that are no records, with the reason."""


class _Header(Frozen):
    schema: str | None = None
    node: str | None = None


class _Run(Frozen):
    """What `fleet run` says of a node without whole records."""

    problem: str


class _NodeCheck(Frozen):
    """What is read of a node-check's answer."""

    ok: bool
    reason: str
    taken_at: str | None = None
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()


def read_folder(
    folder: Path, reached: Callable[[int, int], None] = lambda done, of: None
) -> Records:
    """Every record in a folder and in the folders in it, by node; `reached` is told how many files
    are read, of how many."""
    nodes: dict[str, Node] = {}
    left_out: list[str] = []
    files = _files(folder)
    with ExitStack() as stack:
        each: Any = map
        if len(files) > MANY_FILES:
            pool = stack.enter_context(ProcessPoolExecutor(MOST_READERS))
            each = partial(pool.map, chunksize=100)
        for place, node in enumerate(each(partial(_node_or_reason, folder), files)):
            reached(place, len(files))
            if isinstance(node, str):
                left_out.append(node)
            else:
                nodes[node.name] = merged(nodes[node.name], node) if node.name in nodes else node
    ordered = tuple(nodes[name] for name in sorted(nodes, key=natural))
    return Records(nodes=ordered, left_out=tuple(left_out))


def _node_or_reason(folder: Path, path: Path) -> Node | str:
    try:
        return read_record(path, name_of(path, folder))
    except _NoRecord as problem:
        return f"{on_one_line(str(path.relative_to(folder)))}: {problem}"


def _files(folder: Path) -> list[Path]:
    """The files of a folder and of those directly in it, by name."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder of records")
    there = [*folder.glob("[!.]*.json"), *folder.glob("[!.]*/[!.]*.json")]
    if len(there) > MOST_FILES:
        raise BadInput(f"{folder} holds more than {MOST_FILES} files")
    return sorted(filter(Path.is_file, there))


def name_of(path: Path, folder: Path) -> str:
    """The node's name by the file's.

    >>> here, names = Path("runs"), ("gpu1.json", "gpu1.verify.json", "gpu1/doctor.json")
    >>> [name_of(here / name, here) for name in names]
    ['gpu1', 'gpu1', 'gpu1']
    """
    stem = RECORD_SUFFIX.sub("", path.stem)
    return on_one_line(stem or (path.stem if path.parent == folder else path.parent.name))


def on_one_line(name: str) -> str:
    """A name that ends no line and steers no terminal.

    >>> on_one_line("gpu1\\ngpu2: passed")
    'gpu1?gpu2: passed'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


class _NoRecord(Exception):
    """A file that gpusetup did not write."""


def read_record(path: Path, name: str) -> Node:
    """One file as a node; one that is broken has the problem instead of facts."""
    try:
        raw = read_bytes(path)
        if not RECORD_START.match(raw):
            raise _NoRecord("this is no record of gpusetup (no JSON object)")
        raw = text_of(raw, path.name).encode()
        header = from_json(raw, _Header, what=path.name)
        family = (header.schema or "").partition("/")[0]
        if family not in READERS:
            raise _NoRecord(f"no record of gpusetup ({header.schema or 'it has no schema'})")
        node = READERS[family](raw, path.name)
    except BadInput as problem:
        return Node(name=name, problem=problem.message)
    name_in_record = header.node
    return replace(
        node,
        name=name_in_record
        if name_in_record and name_in_record.isprintable() and len(name_in_record) < 256
        else name,
    )


def named_record(path: Path) -> Node:
    """The record in a file that somebody named; `BadInput` if it is none."""
    try:
        return read_record(path, on_one_line(path.stem))
    except _NoRecord as problem:
        raise BadInput(
            f"{path}: {problem}", hint="`gpusetup snapshot --output FILE` writes one"
        ) from problem


def _from_snapshot(raw: bytes, what: str) -> Node:
    snapshot = parse_snapshot(raw, what)
    if snapshot.taken_at is None and not snapshot.readings and not facts_of(snapshot):
        raise BadInput(f"{what} says nothing about its machine")
    return Node(
        taken_at=snapshot.taken_at,
        kind=tuple(sorted({gpu.name for gpu in snapshot.gpus or ()})),
        facts={**facts_of(snapshot), **_as_shared(tuple(snapshot.environment.items()))},
        findings=findings_of(snapshot),
    )


@lru_cache(maxsize=1024)
def _as_shared(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The variables without what a snapshot hides: most records are snapshots."""
    return facts_of(redact(Snapshot(environment=dict(environment))))


def _from_verify(raw: bytes, what: str) -> Node:
    answer = from_json(raw, VerifyAnswer, what=what)
    models = {str(one.get("device")): str(one.get("name")) for one in answer.devices}
    facts = {"torch.version": answer.torch, "python.version": answer.python}
    failed = [one for one in answer.checks if one.status in FAILED]
    problems = [f"{c.name} {c.status} on {c.device}: {c.detail}".rstrip(": ") for c in failed]
    if answer.verdict == "failed" and not failed:
        problems = ["verdict is failed"]
    return Node(
        kind=tuple(sorted({model for device, model in models.items() if device != "cpu"})),
        facts={field: value for field, value in facts.items() if value},
        findings=tuple(_error("gpu-check-failed", f"verify's {one}") for one in problems),
        rates=tuple(
            Rate(
                check=one.name,
                device=one.device,
                model=models.get(one.device, ""),
                value=one.value,
                unit=one.unit,
            )
            for one in answer.checks
            if one.value is not None and one.unit in RATE_UNITS and one.status != "skipped"
        ),
    )


def _error(id: str, title: str) -> NodeFinding:
    return NodeFinding(id=id, severity=Severity.ERROR, title=title)


def _from_node_check(raw: bytes, what: str) -> Node:
    answer = from_json(raw, _NodeCheck, what=what)
    gpu = answer.facts.get("gpus.name")
    findings = answer.findings
    if not answer.ok and not any(one.severity is Severity.ERROR for one in findings):
        findings = (*findings, _error("node-check-failed", answer.reason))
    return Node(
        taken_at=answer.taken_at,
        kind=(gpu,) if gpu else (),
        facts=answer.facts,
        findings=findings,
    )


READERS: dict[str, Callable[[bytes, str], Node]] = {
    "gpusetup.snapshot": _from_snapshot,
    "gpusetup.doctor": _from_snapshot,
    "gpusetup.verify": _from_verify,
    "gpusetup.node-check": _from_node_check,
    "gpusetup.run": lambda raw, what: Node(problem=from_json(raw, _Run, what=what).problem),
}
"""Schema -> how it is read."""


def merged(one: Node, other: Node) -> Node:
    """Two records of one node; the later in the folder adds to the earlier."""
    return replace(
        one,
        taken_at=max(filter(None, (one.taken_at, other.taken_at)), default=None),
        kind=one.kind or other.kind,
        facts={**other.facts, **one.facts},
        findings=tuple(dict.fromkeys((*one.findings, *other.findings))),
        rates=(*one.rates, *other.rates),
        problem=one.problem or other.problem,
    )
