"""Recordings read back: ours, and what `nvidia-smi` printed.

Its log (`--query-gpu=… --format=csv` with a heading), its table, its long output (`-q`) and `dmon`
are read, each of one moment or of many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import chain, islice
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import Frozen
from gpusetup.monitor import smi_csv, smi_text
from gpusetup.monitor.documents import Sample, Summary

SCHEMA = "gpusetup.monitor/1"
FORMAT_HINT = (
    "it reads what `gpusetup monitor --json` or `--csv` wrote, and nvidia-smi's output: the table, "
    "-q, dmon, or a log of --query-gpu with --format=csv and its heading. For the output of a "
    "program use `gpusetup doctor --report FILE`"
)
FIRST_LINES = 200
"""Among so many lines the beginning of a recording is looked for: a shell's prompt may be above."""


class RecordedRun(Frozen):
    """A recording: where it comes from, whether its times are assumed, and its documents."""

    source: str | None = None
    has_times: bool = True
    documents: Iterable[Any]


def read_recording(path: str, interval: float = 1.0) -> RecordedRun:
    """A recording, read while it is asked for.

    `interval`: seconds between the samples of a log that tells no time. A last line that is cut
    off is left out.
    """
    lines = _lines(path)
    beginning = list(islice(lines, FIRST_LINES))
    texts = [line for line in beginning if line.strip()]
    if texts and texts[0].lstrip().startswith(("{", "[")):
        return RecordedRun(documents=_documents(path, chain(beginning, lines)))
    for number, line in enumerate(beginning):
        if names := smi_csv.headings(line):
            rows = chain(beginning[number + 1 :], lines)
            read = smi_csv.samples(names, rows, interval)
            has_times = "timestamp" in names
            return RecordedRun(source=smi_csv.NAME, has_times=has_times, documents=read)
        for form in smi_text.FORMS:
            if form.begins(line):
                # What stands above it may be its time.
                read = form.samples(chain(beginning, lines), interval)
                has_times = form.tells_time(beginning)
                return RecordedRun(source=form.name, has_times=has_times, documents=read)
    if not texts:
        return RecordedRun(documents=())
    raise BadInput(f"{path} is no recording of the monitor or of nvidia-smi", hint=FORMAT_HINT)


def _lines(path: str) -> Iterator[str]:
    try:
        with named_file.opened(path) as file:
            encoding = named_file.encoding_of(file.read(named_file.SAMPLE))
        with TextIOWrapper(named_file.opened(path), encoding=encoding) as file:
            yield from file
    except OSError as problem:
        raise BadInput(f"Cannot read {path}: {problem.strerror}") from problem
    except UnicodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text: {problem}") from problem


def _documents(path: str, lines: Iterable[str]) -> Iterator[Sample | Summary]:
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            plain = json.loads(line) if line.strip() else None
        except ValueError as problem:
            if not line.endswith("\n"):
                return  # the recorder was killed in the middle of it
            raise BadInput(f"{where} is no JSON: {problem}", hint=FORMAT_HINT) from problem
        if plain is not None:
            yield _document(plain, where)


def _document(plain: Any, where: str) -> Sample | Summary:
    """A line of a recording. Raises BadInput for what `monitor --json` did not write."""
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        hint = f"it is {schema or 'something else'}; this version reads {SCHEMA}"
        raise BadInput(f"{where} is no sample of `gpusetup monitor --json`", hint=hint)
    kind: Any = Summary if plain.get("kind") == "summary" else Sample
    document: Sample | Summary = from_plain(plain, kind, what=where)
    return document
