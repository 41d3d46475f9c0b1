"""What a run leaves behind, read back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from io import TextIOWrapper
from itertools import chain
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import Frozen
from gpusetup.monitor import logs
from gpusetup.monitor.documents import Sample, Summary

LINES_APART = 256
"""After how many lines it is told how far the reading is."""


class Recorded(Frozen):
    """A recording: where it comes from, whether its times are assumed, and its documents."""

    source: str | None = None
    timed: bool = True
    documents: Iterable[Any]


def recorded(
    path: str, interval: float = 1.0, reached: Callable[[int, int], object] | None = None
) -> Recorded:
    """A recording of ours, or nvidia-smi's log (`logs.py`), read while it is asked for.

    `interval`: seconds between the samples of a log that tells no time. A last line that is cut
    off is left out. `reached` is told how many bytes were read, of how many.
    """
    lines = _lines(path, reached)
    first = next(lines, "")
    names, lines = logs.headings(first), chain([first], lines)
    if not names and first.count(",") >= 2 and not first.lstrip().startswith(("{", "[")):
        raise BadInput(
            f"{path} has rows without a heading, so its columns are unknown",
            hint="write it with --format=csv, without noheader, or put the heading in as line 1",
        )
    if not names:
        return Recorded(documents=_documents(path, lines))
    read = logs.samples(lines, interval)
    return Recorded(source=logs.SOURCE, timed="timestamp" in names, documents=read)


def _lines(path: str, reached: Callable[[int, int], object] | None) -> Iterator[str]:
    try:
        with named_file.opened(path) as file:
            encoding = named_file.encoding_of(file.read(named_file.SAMPLE))
        with TextIOWrapper(named_file.opened(path), encoding=encoding) as file:
            size = os.fstat(file.fileno()).st_size
            for number, line in enumerate(file):
                if reached is not None and number % LINES_APART == 0:
                    reached(file.buffer.tell(), size)
                yield line
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
            hint = "`gpusetup doctor --report FILE` reads an nvidia-smi table, or what a program "
            raise BadInput(f"{where} is no JSON: {problem}", hint=hint + "printed") from problem
        if plain is not None:
            yield _document(plain, where)


def _document(plain: Any, where: str) -> Sample | Summary:
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        newer = isinstance(schema, str) and schema.startswith("gpusetup.")
        hint = f"it is {schema}; this version reads {SCHEMA}" if newer else None
        raise BadInput(f"{where} is no sample of `gpusetup monitor --json`", hint=hint)
    kind: Any = Summary if plain.get("kind") == "summary" else Sample
    read: Sample | Summary = from_plain(plain, kind, what=where)
    return read


SCHEMA = "gpusetup.monitor/1"
