"""Reads a folder of records: snapshots, doctor's JSON, and reports of verify and `fleet check`.

Files about the same node are merged: `node7.json` and `node7.verify.json`, or `node7/snapshot.json`
and `node7/verify.json`. Files that are not records of gpusetup are skipped and counted; an
incomplete record becomes a node with a problem.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import GPU_NAME, commonest, facts_of, joined
from gpusetup.fleet.node_check import (
    OF_A_CHECK,
    NodeFinding,
    Source,
    all_findings,
    check_rules,
    findings_of,
    sources_read,
    uuids_of,
)
from gpusetup.fleet.nodes import Node, Rate, natural
from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.named_file import text_of
from gpusetup.probe.snapshot_files import parse_snapshot, read_bytes
from gpusetup.redaction import redact

RECORD_SUFFIX = re.compile(r"(?:^|[.-])(?:snapshot|doctor|verify|node[-_]check|run)$")
"""Suffixes that may follow the node's name in a file name. In a node's own folder, such a suffix is
the whole file name."""
MOST_FILES = 200_000
"""The maximum number of files in a folder; no real cluster has this many records."""
MANY_FILES = 2000
"""If there are more files than this, several processes read them."""
MOST_READERS = 8
"""How many processes read the files if there are many."""
RECORD_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*(?:\{|\Z)")
"""How a record begins: it is a JSON object, in UTF-8 or in PowerShell's UTF-16. Incomplete records
and empty files match too."""
SNAPSHOT_FAMILIES = ("gpusetup.snapshot", "gpusetup.doctor")
LONGEST_NAME = 256
"""A node's name must be shorter than this; the longest possible host name has 255 characters."""
RATE_UNITS = ("GB/s", "TFLOP/s", "TFLOPS", "MB/s", "GFLOP/s")
FAILED = ("failed", "crashed")


class Records(Frozen):
    """The records that were read from a folder."""

    folder: str | None = None
    nodes: tuple[Node, ...]
    """Sorted by name."""
    left_out: tuple[str, ...] = ()
    """Files that are not records, each with the reason."""


class _Header(Frozen):
    schema: str | None = None
    node: str | None = None


class _Run(Frozen):
    """The fields that we read from the file which `fleet run` writes if a node's records are
    incomplete."""

    problem: str


class _NodeCheck(Frozen):
    """The fields that we read from a record of `fleet check`."""

    ok: bool
    reason: str
    taken_at: str | None = None
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    blind_to: tuple[Source, ...] = OF_A_CHECK
    gpu_uuids: tuple[str, ...] = ()


class _NoRecord(Exception):
    """Raised for a file that is not a record of gpusetup."""


def read_folder(
    folder: Path, reached: Callable[[int, int], None] = lambda done, of: None
) -> Records:
    """The records in a folder and its direct subfolders, grouped by node. `reached` is called with
    the number of files read so far and the total."""
    records_of: dict[str, list[Node]] = defaultdict(list)
    left_out: list[str] = []
    files = _files(folder)
    with ExitStack() as stack:
        map_files: Any = map
        # Start processes only for many files, because starting them takes longer than reading a few
        # files.
        if len(files) > MANY_FILES:
            pool = stack.enter_context(ProcessPoolExecutor(MOST_READERS))
            map_files = partial(pool.map, chunksize=100)
        results = map_files(partial(_node_or_reason, folder), files)
        for number, result in enumerate(results):
            reached(number, len(files))
            if isinstance(result, str):
                left_out.append(result)
            else:
                records_of[result.name].append(result)
    nodes = [merged(records_of[name]) for name in sorted(records_of, key=natural)]
    return Records(folder=str(folder), nodes=tuple(nodes), left_out=tuple(left_out))


def _node_or_reason(folder: Path, path: Path) -> Node | str:
    """The node in a file, or a text that says why the file is not a record. A text is used because
    an exception would end the whole process pool's `map`."""
    try:
        return read_record(path, name_of(path, folder))
    except _NoRecord as problem:
        return f"{on_one_line(str(path.relative_to(folder)))}: {problem}"


def _files(folder: Path) -> list[Path]:
    """The JSON files in a folder and its direct subfolders, sorted by path. Raises BadInput if it
    is not a folder or has too many files."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder of records")
    # Skip files whose names begin with a dot, because they are still being written.
    paths = [*folder.glob("[!.]*.json"), *folder.glob("[!.]*/[!.]*.json")]
    if len(paths) > MOST_FILES:
        raise BadInput(f"{folder} holds more than {MOST_FILES} files")
    return sorted(path for path in paths if path.is_file())


def name_of(path: Path, folder: Path) -> str:
    """The node's name, taken from the file's name or its folder.

    >>> here, names = Path("runs"), ("gpu1.json", "gpu1.verify.json", "gpu1/doctor.json")
    >>> [name_of(here / name, here) for name in names]
    ['gpu1', 'gpu1', 'gpu1']
    """
    name = RECORD_SUFFIX.sub("", path.stem)
    if not name:
        # A file such as `snapshot.json` may be in a folder with the node's name.
        is_in_node_folder = path.parent != folder
        name = path.parent.name if is_in_node_folder else path.stem
    return on_one_line(name)


def on_one_line(name: str) -> str:
    """A name in which `?` replaces line breaks, control characters and other unprintable
    characters.

    >>> on_one_line("gpu1\\ngpu2: passed")
    'gpu1?gpu2: passed'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


# --- one file -------------------------------------------------------------------------------------


def read_record(path: Path, name: str) -> Node:
    """The node in one file. A file that cannot be read gives a node with a problem instead of
    facts."""
    try:
        family, node = _read(path)
    except BadInput as problem:
        return Node(name=name, problem=problem.message, broken_file=str(path))
    if family in SNAPSHOT_FAMILIES:
        ids = tuple(finding.id for finding in node.findings)
        node = replace(node, snapshot_file=str(path), snapshot_findings=ids)
    # A record of `fleet check` contains the node's name; a file's name was chosen by a user.
    return replace(node, name=node.name or name)


def _read(path: Path) -> tuple[str, Node]:
    """The family of a record's schema (without its version), and the node in it. The node's name is
    "" if the record contains none."""
    raw = read_bytes(path)
    if not RECORD_START.match(raw):
        raise _NoRecord("this is not a record of gpusetup (no JSON object)")
    # PowerShell writes UTF-16.
    raw = text_of(raw, path.name).encode()
    header = from_json(raw, _Header, what=path.name)
    family = (header.schema or "").partition("/")[0]
    if family not in READERS:
        schema = header.schema or "it has no schema"
        raise _NoRecord(f"not a record of gpusetup ({schema})")
    node = READERS[family](raw, path.name)
    name = header.node or ""
    # Drop an unusable name, because a record from an unknown source may contain any name.
    is_usable = name.isprintable() and len(name) < LONGEST_NAME
    return family, replace(node, name=name if is_usable else "")


def named_record(path: Path) -> Node:
    """The record in a file that the user named. Raises BadInput if the file is not a record of a
    node."""
    try:
        return read_record(path, on_one_line(path.stem))
    except _NoRecord as problem:
        raise BadInput(
            f"{path}: {problem}", hint="`gpusetup snapshot --output FILE` writes one"
        ) from problem


def _from_snapshot(raw: bytes, what: str) -> Node:
    """The node in a snapshot, or in doctor's document, which contains a snapshot."""
    snapshot = parse_snapshot(raw, what)
    facts = facts_of(snapshot)
    # The file is some other JSON with one of our schemas.
    if snapshot.taken_at is None and not snapshot.readings and not facts:
        raise BadInput(f"{what} says nothing about its machine")
    variables = _as_shared(tuple(snapshot.environment.items()))
    return Node(
        taken_at=snapshot.taken_at,
        kind=kind_of(facts.get(GPU_NAME)),
        facts={**facts, **variables},
        findings=_findings_of_snapshot(snapshot),
        sources=(*sources_read(snapshot), "snapshot"),
        gpu_uuids=uuids_of(snapshot),
    )


def _findings_of_snapshot(snapshot: Snapshot) -> tuple[NodeFinding, ...]:
    """Doctor's findings in a snapshot. Findings that `fleet check` does not look for get the source
    `snapshot`."""
    findings = findings_of(snapshot)
    # Skip the second judgement if there are no findings, because judging thousands of nodes twice
    # takes time.
    if not findings:
        return ()
    ids_of_check = {finding.id for finding in findings_of(snapshot, check_rules())}
    return tuple(
        finding if finding.id in ids_of_check else replace(finding, source="snapshot")
        for finding in findings
    )


def kind_of(gpu_names: str | None) -> tuple[str, ...]:
    """The model that most GPUs of a node have, as a tuple; () if no GPU is known."""
    return (commonest(gpu_names),) if gpu_names else ()


@lru_cache(maxsize=1024)
def _as_shared(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The facts about environment variables, redacted as in a snapshot, so that redacted records
    can be compared with others. `fleet check` does not redact its records."""
    return facts_of(redact(Snapshot(environment=dict(environment))))


def _from_verify(raw: bytes, what: str) -> Node:
    """The node in a report of verify, with its failed checks as findings and the measured
    speeds."""
    answer = from_json(raw, VerifyAnswer, what=what)
    models = {str(device.get("device")): str(device.get("name")) for device in answer.devices}
    facts = {"torch.version": answer.torch, "python.version": answer.python}
    problems = []
    for check in answer.checks:
        if check.status in FAILED:
            words = f"verify's {check.name} {check.status} on {check.device}: {check.detail}"
            # The detail of a check may be empty.
            problems.append(words.rstrip(": "))
    if answer.verdict == "failed" and not problems:
        problems = ["verify's verdict is failed"]
    findings = [
        NodeFinding(id="gpu-check-failed", severity=Severity.ERROR, title=problem, source="verify")
        for problem in problems
    ]
    return Node(
        kind=kind_of(joined([model for device, model in models.items() if device != "cpu"])),
        facts={field: value for field, value in facts.items() if value},
        findings=tuple(findings),
        rates=tuple(_rates_of(answer, models)),
        sources=("verify",),
    )


def _rates_of(answer: VerifyAnswer, models: Mapping[str, str]) -> Iterator[Rate]:
    """The speeds that verify measured, each with the model of its device."""
    for check in answer.checks:
        # Only speeds are compared between nodes, not the other values of verify.
        is_speed = check.unit in RATE_UNITS and check.status != "skipped"
        if check.value is None or check.unit is None or not is_speed:
            continue
        yield Rate(
            check=check.name,
            device=check.device,
            model=models.get(check.device, ""),
            value=check.value,
            unit=check.unit,
        )


def _from_node_check(raw: bytes, what: str) -> Node:
    """The node in a record of `fleet check`."""
    answer = from_json(raw, _NodeCheck, what=what)
    findings = all_findings(answer.ok, answer.reason, answer.findings)
    return Node(
        taken_at=answer.taken_at,
        kind=kind_of(answer.facts.get(GPU_NAME)),
        facts=answer.facts,
        findings=tuple(replace(finding, taken_at=answer.taken_at) for finding in findings),
        sources=tuple(source for source in OF_A_CHECK if source not in answer.blind_to),
        gpu_uuids=answer.gpu_uuids,
    )


def _from_run(raw: bytes, what: str) -> Node:
    """The node in a file that `fleet run` wrote because the records are incomplete; it only has a
    problem."""
    return Node(problem=from_json(raw, _Run, what=what).problem)


READERS: dict[str, Callable[[bytes, str], Node]] = {
    "gpusetup.snapshot": _from_snapshot,
    "gpusetup.doctor": _from_snapshot,
    "gpusetup.verify": _from_verify,
    "gpusetup.node-check": _from_node_check,
    "gpusetup.run": _from_run,
}
"""Maps each schema to the function that reads it."""


# --- several records of one node ------------------------------------------------------------------

UNDATED = datetime.min.replace(tzinfo=timezone.utc)


def merged(records: Sequence[Node]) -> Node:
    """Several records of one node, merged into one. Newer records take precedence, and undated ones
    count as the oldest."""

    def newness(record: Node) -> tuple[datetime, bool]:
        # If two records have the same time, a snapshot counts as the newer one, for it sees more.
        return moment(record.taken_at) or UNDATED, "snapshot" in record.sources

    newest_first = sorted(records, key=newness, reverse=True)
    node = newest_first[0]
    findings = list(node.findings)
    for number, older in enumerate(newest_first[1:], 1):
        # A fault is gone if a newer record looked for it and does not report it. A report of verify
        # has no date, so it neither contradicts other records nor is contradicted by them.
        read_later: set[Source] = set()
        for newer in newest_first[:number]:
            is_newer = newness(newer)[0] > newness(older)[0] > UNDATED
            read_later.update(newer.sources if is_newer else ())
        known_ids = {finding.id for finding in findings}
        for finding in older.findings:
            if finding.source not in read_later and finding.id not in known_ids:
                findings.append(finding)
        node = replace(
            node,
            taken_at=node.taken_at or older.taken_at,
            kind=node.kind or older.kind,
            # If both records contain a fact, the newer record counts.
            facts={**older.facts, **node.facts},
            rates=(*node.rates, *older.rates),
            problem=node.problem or older.problem,
            broken_file=node.broken_file or older.broken_file,
            gpu_uuids=node.gpu_uuids or older.gpu_uuids,
        )
        if node.snapshot_file is None:
            node = replace(
                node,
                snapshot_file=older.snapshot_file,
                snapshot_findings=older.snapshot_findings,
            )
    return replace(node, findings=tuple(findings))


def moment(text: str | None) -> datetime | None:
    """The time in a text, in UTC; None if the text is not an ISO 8601 time.

    >>> str(moment("2026-11-19T03:00:00Z")), moment("yesterday"), moment(None)
    ('2026-11-19 03:00:00+00:00', None, None)
    """
    if text is None:
        return None
    # Replace the `Z` at the end of our times, which Python 3.10 cannot read.
    with_offset = f"{text[:-1]}+00:00" if text.endswith("Z") else text
    try:
        time = datetime.fromisoformat(with_offset)
        if time.tzinfo is None:
            return time.replace(tzinfo=timezone.utc)
        return time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
