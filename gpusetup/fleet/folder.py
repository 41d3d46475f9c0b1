"""Reads a folder of records: snapshots, doctor's JSON, reports of verify and `fleet check`, and
histories, from this version or older ones.

Files about the same node are merged: `node7.json` and `node7.verify.json`, or `node7/snapshot.json`
and `node7/verify.json`. Files that are not records of gpusetup are skipped and counted; an
incomplete record becomes a node with a problem.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.fleet.facts import GPU_COUNT, GPU_NAME, commonest, facts_of, joined
from gpusetup.fleet.gpu_words import gpus_of, in_short
from gpusetup.fleet.history import NodeHistory, moment
from gpusetup.fleet.merge import merged
from gpusetup.fleet.node_check import OF_A_CHECK, all_findings, check_rules, findings_of
from gpusetup.fleet.node_finding import NodeFinding, Source
from gpusetup.fleet.nodes import Node, Rate, natural
from gpusetup.fleet.sight import Sight, addresses, sources_read
from gpusetup.model.codec import from_json
from gpusetup.model.documents import VerifyAnswer
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.named_file import text_of
from gpusetup.probe.snapshot_files import parse_snapshot, read_bytes
from gpusetup.redaction import redact

RECORD_SUFFIX = re.compile(r"(?:^|[.-])(?:snapshot|doctor|verify|node[-_]check|run|history)$")
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
    blind_to: tuple[Source, ...] | None = None
    """The sources that the check could not read; None in records of older versions."""


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
                continue
            records_of[result.name].append(result)
    recorded: list[Node] = []
    for name in sorted(records_of, key=natural):
        node = merged(records_of[name])
        if node.has_record:
            recorded.append(node)
        else:
            left_out.append(f"{name}: a history without a record of the node")
    return Records(folder=str(folder), nodes=tuple(recorded), left_out=tuple(left_out))


def _node_or_reason(folder: Path, path: Path) -> Node | str:
    """The node in a file, or a text that says why the file is not a record. A text is used because
    an exception would end the whole process pool's `map`."""
    name = name_of(path, folder)
    try:
        return read_record(path, name)
    except _NoRecord as problem:
        file = on_one_line(str(path.relative_to(folder)))
        return f"{file}: {problem}"


def _files(folder: Path) -> list[Path]:
    """The JSON files in a folder and its direct subfolders, sorted by path. Raises BadInput if it
    is not a folder or has too many files."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder of records")
    # Skip files whose names begin with a dot, because they are still being written.
    directly = folder.glob("[!.]*.json")
    in_folders = folder.glob("[!.]*/[!.]*.json")
    paths = [*directly, *in_folders]
    if len(paths) > MOST_FILES:
        raise BadInput(f"{folder} holds more than {MOST_FILES} files")
    files = [path for path in paths if path.is_file()]
    return sorted(files)


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
    letters = []
    for letter in name:
        # A file name may contain any character, so replace those that cannot be printed.
        is_harmless = letter.isprintable()
        letters.append(letter if is_harmless else "?")
    return "".join(letters)


class _NoRecord(Exception):
    """Raised for a file that is not a record of gpusetup."""


def read_record(path: Path, name: str) -> Node:
    """The node in one file. A file that cannot be read gives a node with a problem instead of
    facts."""
    try:
        family, node = _read(path)
    except BadInput as problem:
        # Skip a broken history, which does not mean that the node has a problem.
        if path.stem.endswith("history"):
            raise _NoRecord(problem.message) from problem
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
    read = READERS[family]
    node = read(raw, path.name)
    name = header.node or ""
    # Drop an unusable name, because a record from an unknown source may contain any name.
    is_usable = name.isprintable() and len(name) < LONGEST_NAME
    return family, replace(node, name=name if is_usable else "")


def named_record(path: Path) -> Node:
    """The record in a file that the user named. Raises BadInput if the file is not a record of a
    node."""
    try:
        node = read_record(path, on_one_line(path.stem))
        if not node.has_record:
            raise _NoRecord("this is the history of a node, which says nothing of its facts")
        return node
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
        kind=kind_of(facts),
        facts={**facts, **variables},
        findings=_findings_of_snapshot(snapshot),
        sight=Sight(sources=(*sources_read(snapshot), "snapshot"), gpus=addresses(snapshot)),
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
    of_snapshot = []
    for finding in findings:
        if finding.id not in ids_of_check:
            finding = replace(finding, source="snapshot")
        of_snapshot.append(finding)
    return tuple(of_snapshot)


def kind_of(facts: Mapping[str, str]) -> tuple[str, ...]:
    """The model that most GPUs of a node have, as a tuple; () if no GPU is known."""
    names = facts.get(GPU_NAME)
    return (commonest(names),) if names else ()


@lru_cache(maxsize=1024)
def _as_shared(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The facts about environment variables, redacted as in a snapshot, so that redacted records
    can be compared with others."""
    snapshot = Snapshot(environment=dict(environment))
    # `fleet check` does not redact its records.
    redacted = redact(snapshot)
    return facts_of(redacted)


def _from_verify(raw: bytes, what: str) -> Node:
    """The node in a report of verify, with its failed checks as findings and the measured
    speeds."""
    answer = from_json(raw, VerifyAnswer, what=what)
    models = {str(device.get("device")): str(device.get("name")) for device in answer.devices}
    gpu_models = [model for device, model in models.items() if device != "cpu"]
    facts = {"torch.version": answer.torch, "python.version": answer.python}
    known_facts = {field: value for field, value in facts.items() if value}
    gpu_names = joined(gpu_models)
    failed_checks = [check for check in answer.checks if check.status in FAILED]
    problems = []
    for check in failed_checks:
        words = f"{check.name} {check.status} on {check.device}: {check.detail}"
        # The detail of a check may be empty.
        problems.append(words.rstrip(": "))
    if answer.verdict == "failed" and not failed_checks:
        problems = ["verdict is failed"]
    findings = [_failed_check(problem) for problem in problems]
    return Node(
        kind=kind_of({GPU_NAME: gpu_names} if gpu_names else {}),
        facts=known_facts,
        findings=tuple(findings),
        rates=tuple(_rates_of(answer, models)),
        sight=Sight(sources=("verify",)),
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


def _failed_check(problem: str) -> NodeFinding:
    """The finding for a check of verify that failed."""
    return NodeFinding(
        id="gpu-check-failed", severity=Severity.ERROR, title=f"verify's {problem}", source="verify"
    )


def _from_node_check(raw: bytes, what: str) -> Node:
    """The node in a record of `fleet check`. Findings from older versions are converted to the
    current form."""
    answer = from_json(raw, _NodeCheck, what=what)
    findings = all_findings(answer.ok, answer.reason, answer.findings)
    current_findings = [in_current_form(finding, answer.taken_at) for finding in findings]
    return Node(
        taken_at=answer.taken_at,
        kind=kind_of(answer.facts),
        facts=answer.facts,
        findings=tuple(current_findings),
        sight=Sight(sources=_sources_of_check(answer)),
    )


def _sources_of_check(answer: _NodeCheck) -> tuple[Source, ...]:
    """The sources that a check of a node could read. Records of older versions do not say whether
    the kernel log was among them."""
    if answer.blind_to is not None:
        return tuple(source for source in OF_A_CHECK if source not in answer.blind_to)
    has_gpus = answer.facts.get(GPU_COUNT, "0") != "0"
    return ("driver",) if has_gpus else ()


def in_current_form(finding: NodeFinding, taken_at: str | None) -> NodeFinding:
    """A finding of `fleet check` in the form that the current version writes.

    Older versions name the GPUs only in the title, do not mark differences from the profile, and
    have no time for each finding; the time of the whole check (`taken_at`) is used instead.
    """
    about = finding.about or gpus_of(finding.title)
    is_of_profile = finding.id == "unlike-profile"
    return replace(
        finding,
        title=in_short(finding.title),
        about=about,
        source="profile" if is_of_profile else finding.source,
        taken_at=finding.taken_at or taken_at,
    )


def _from_history(raw: bytes, what: str) -> Node:
    history = from_json(raw, NodeHistory, what=what)
    since = {}
    for key, time in history.since().items():
        # Check each time, because a user may have edited the file.
        if moment(time) is not None:
            since[key] = time
    return Node(since=since, has_record=False)


def _from_run(raw: bytes, what: str) -> Node:
    """The node in a file that `fleet run` wrote because the records are incomplete; it only has a
    problem."""
    run = from_json(raw, _Run, what=what)
    # The file contains nothing but the problem.
    problem = run.problem
    return Node(problem=problem)


READERS: dict[str, Callable[[bytes, str], Node]] = {
    "gpusetup.snapshot": _from_snapshot,
    "gpusetup.doctor": _from_snapshot,
    "gpusetup.verify": _from_verify,
    "gpusetup.node-check": _from_node_check,
    "gpusetup.run": _from_run,
    "gpusetup.history": _from_history,
}
"""Maps each schema to the function that reads it."""
