"""Reads recordings of the monitor, and the outputs of `nvidia-smi` that `smi_logs.py` knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import chain, islice
from typing import Any, NamedTuple

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.monitor import smi_logs
from gpusetup.monitor.documents import Sample, Summary
from gpusetup.monitor.smi_logs import SmiLog

SCHEMA = "gpusetup.monitor/1"
FORMAT_HINT = (
    "use the output of `gpusetup monitor --json` or of nvidia-smi: its table, -q, dmon, or a log "
    "of --query-gpu with --format=csv and its header. For the output of a program, use `gpusetup "
    "doctor --report FILE`"
)
FIRST_LINES = 200
"""How many lines are searched for the beginning, because a shell prompt may precede it."""


class Header(Frozen):
    """What the kind of a document shows."""

    schema: str | None = None
    kind: str | None = None


class RecordedRun(NamedTuple):
    """The documents of a recording, and the form of nvidia-smi's output that it is in."""

    documents: Iterator[Sample | Summary]
    log: SmiLog | None = None
    """None for our own recordings."""


def read_recording(path: str, interval: float = 1.0) -> RecordedRun:
    """Open a recording; its samples are only read from the file when they are needed.

    `interval`: seconds between samples if the log contains no times. An incomplete last line is
    left out.
    """
    lines = _lines(path)
    beginning = list(islice(lines, FIRST_LINES))
    lines_with_text = [line for line in beginning if line.strip()]
    # A file that begins with a brace or a bracket is one of our own recordings, which have one JSON
    # document per line. An empty file may be one that has just begun.
    if not lines_with_text or lines_with_text[0].lstrip().startswith(("{", "[")):
        return RecordedRun(_documents(path, chain(beginning, lines)))
    for number, line in enumerate(beginning):
        log = smi_logs.log_that_begins(line)
        if log:
            # The lines above a table may contain its time; those above a CSV's heading, no rows.
            rows = beginning[number + 1 :] if log.name == smi_logs.CSV else beginning
            return RecordedRun(log.samples(chain(rows, lines), interval), log)
    raise BadInput(f"{path} is not a recording of monitor or nvidia-smi", hint=FORMAT_HINT)


def _lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, decoded with the encoding that its first bytes indicate. Raises
    BadInput if the file cannot be read."""
    try:
        # PowerShell writes UTF-16.
        with named_file.opened(path) as file:
            first_bytes = file.read(named_file.SAMPLE)
        encoding = named_file.encoding_of(first_bytes)
        with TextIOWrapper(named_file.opened(path), encoding=encoding) as text_file:
            yield from text_file
    except OSError as problem:
        raise BadInput(f"Cannot read {path}: {problem.strerror}") from problem
    except UnicodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text: {problem}") from problem


def _documents(path: str, lines: Iterable[str]) -> Iterator[Sample | Summary]:
    """Yields the samples and the summary from a recording that the monitor wrote as JSON. Raises
    BadInput for a line that it did not write."""
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        # Skip empty lines; an editor may leave one at the end.
        if not line.strip():
            continue
        try:
            header = from_json(line, Header, what=where)
        except BadInput as problem:
            if not line.endswith("\n"):
                return  # the recorder was killed while writing this line
            raise BadInput(problem.message, hint=FORMAT_HINT) from problem
        if header.schema != SCHEMA:
            hint = f"it is {header.schema or 'something else'}; this version reads {SCHEMA}"
            raise BadInput(f"{where} is not a sample of `gpusetup monitor --json`", hint=hint)
        kind: Any = Summary if header.kind == "summary" else Sample
        yield from_json(line, kind, what=where)
