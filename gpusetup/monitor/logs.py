"""Logs of other monitors, and our own CSV, as samples. Pure: lines in, samples out.

`nvidia-smi --query-gpu=… --format=csv` with its heading, `nvidia-smi dmon` and `pmon`, `dcgmi
dmon`, W&B's system events as CSV or JSON lines. What a log does not tell is None.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import chain
from typing import Any, Literal

from gpusetup.model.frozen import Frozen
from gpusetup.monitor import columns
from gpusetup.monitor.values import GpuSample, HostSample, ProcessUse, Sample, TreeSample

Row = Mapping[str, tuple[str, str]]
"""Heading -> cell and unit."""


class Line(Frozen):
    """What one line of a log says of one GPU, or of a MIG instance."""

    index: int
    mig: int | None = None
    at: float | None = None
    """Seconds; the first is the start."""
    gpu: Mapping[str, Any] = {}
    tree: Mapping[str, Any] = {}
    host: Mapping[str, Any] = {}


class Log(Frozen):
    source: str
    read: Callable[[Iterable[str]], Iterator[Line]]


def log_of(first: str) -> Log | None:
    """Which log it is, by its first line that says something.

    >>> log_of("timestamp, index, utilization.gpu [%]").source, log_of("# gpu  pwr  sm").source
    ('nvidia-smi csv', 'nvidia-smi dmon')
    """
    low = first.strip().lower()
    return next((log for told, log in LOGS if told(low)), None)


def samples(lines: Iterator[Line], interval: float) -> Iterator[Sample]:
    """Lines of one moment together: a GPU that is there already begins the next. Where the log
    tells no time, `interval` seconds lie between."""
    start: float | None = None
    for number, group in enumerate(_moments(lines)):
        at = group[0].at
        start = at if start is None else start
        seconds = number * interval if at is None or start is None else at - start
        yield _sample(group, max(0.0, seconds), at)


def _moments(lines: Iterator[Line]) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in lines:
        if any(_place(one) == _place(line) and not _same_process(one, line) for one in group):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _place(line: Line) -> tuple[int, int]:
    """
    >>> _place(Line(index=2)), _place(Line(index=0, mig=3))
    ((2, -1), (0, 3))
    """
    return line.index, -1 if line.mig is None else line.mig


def _same_process(one: Line, other: Line) -> bool:
    """pmon: several processes of one GPU are one moment."""
    mine, theirs = one.gpu.get("process"), other.gpu.get("process")
    return mine is not None and theirs is not None and mine.pid != theirs.pid


def _sample(group: list[Line], seconds: float, at: float | None) -> Sample:
    gpus = {
        _place(line): GpuSample(
            index=line.index, mig_index=line.mig, **_merged(group, _place(line))
        )
        for line in group
    }
    tree, host = group[0].tree, group[0].host
    return Sample(
        at=in_words(at if at is not None and at > 1e8 else seconds),
        seconds=round(seconds, 3),
        gpus=tuple(gpus[place] for place in sorted(gpus)),
        tree=TreeSample(**{**TREE_LEAST, **tree}) if "cpu_percent" in tree else None,
        host=HostSample(**host) if host else None,
    )


TREE_LEAST = {"processes": 1, "busiest_cpu_percent": 0.0, "memory_bytes": 0}


def _merged(group: list[Line], place: tuple[int, int]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    processes = []
    for line in group:
        if _place(line) == place:
            told.update(line.gpu)
            processes += [line.gpu["process"]] if line.gpu.get("process") else []
    if "process" in told:
        del told["process"]
        told["processes"] = tuple(processes)
        told["utilization_percent"] = min(100.0, sum(one.sm_percent or 0.0 for one in processes))
    return _whole(told)


def _whole(told: dict[str, Any]) -> dict[str, Any]:
    share = told.pop("memory_percent", None)
    if share is not None and "memory_total_bytes" not in told:
        used = told.get("memory_used_bytes")
        total = round(used / share * 100) if used and share else 100 << 20
        told |= {"memory_total_bytes": total, "memory_used_bytes": used or round(share * (1 << 20))}
    return told


def in_words(at: float) -> str:
    """
    >>> in_words(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    moment = datetime.fromtimestamp(min(max(at, 0.0), 4e9), timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


# --- with commas ----------------------------------------------------------------------------------


def read_csv(lines: Iterable[str]) -> Iterator[Line]:
    """nvidia-smi's CSV with its heading, and our own; headings may come again."""
    names: list[tuple[str, str]] = []
    known: dict[str, int] = {}
    for cells in _cells(lines):
        if not cells or not "".join(cells).strip():
            continue
        if _is_heading(cells):
            names = [columns.heading(cell) for cell in cells]
            continue
        row = {
            name: (cell.strip(), unit)
            for (name, unit), cell in zip(names, cells, strict=False)
            if name
        }
        if len(cells) == len(names):
            yield _csv_line(row, known)


def _cells(lines: Iterable[str]) -> Iterator[list[str]]:
    """The rows, as far as they are any."""
    try:
        yield from csv.reader(line.replace("\0", "") for line in lines)
    except csv.Error:
        return


def _is_heading(cells: list[str]) -> bool:
    names = {columns.heading(cell)[0] for cell in cells}
    return bool(names & {"index", "gpu", "utilization.gpu", "uuid", "gpu_uuid", "pci.bus_id"})


def _csv_line(row: Row, known: dict[str, int]) -> Line:
    told = columns.gpu_fields(row, {**columns.OURS, **columns.SMI})
    told.pop("index", None)
    for name, field in (
        ("name", "name"),
        ("gpu_name", "name"),
        ("uuid", "uuid"),
        ("gpu_uuid", "uuid"),
    ):
        if row.get(name, ("", ""))[0]:
            told[field] = row[name][0]
    told["lost"] = "lost" in " ".join(cell.lower() for cell, _ in row.values()) or _is(row, "lost")
    return Line(
        index=_index(row, known),
        at=_time(row),
        gpu=told,
        tree=_numbers(row, {name: name for name in columns.TREE}),
        host=_numbers(row, columns.HOST),
    )


def _is(row: Row, name: str) -> bool:
    return row.get(name, ("", ""))[0] in ("1", "true", "True")


def _numbers(row: Row, told: Mapping[str, str]) -> dict[str, Any]:
    found = {field: columns.quantity(row[name][0]) for name, field in told.items() if name in row}
    return {k: columns.whole(k, value) for k, value in found.items() if value is not None}


def _index(row: Row, known: dict[str, int]) -> int:
    """By its index, else by what else names it, in the order in which they come."""
    for name in ("index", "gpu"):
        cell = row.get(name, ("", ""))[0].partition(":")[0]
        if cell.isdecimal() and len(cell) < MOST_DIGITS:
            return int(cell)
    named = next((row[n][0] for n in ("uuid", "gpu_uuid", "pci.bus_id") if n in row), "")
    return known.setdefault(named, len(known))


MOST_DIGITS = 5
"""Of a GPU's number."""


TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")


def _time(row: Row) -> float | None:
    if "seconds" in row:
        return columns.quantity(row["seconds"][0])
    stamp = row.get("timestamp", row.get("at", ("", "")))[0]
    return moment(stamp)


def moment(text: str) -> float | None:
    """
    >>> moment("2026/11/20 06:03:41.500"), moment("2026-11-20T06:03:41Z"), moment("x")
    (1795154621.5, 1795154621.0, None)
    """
    for form in TIMES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    try:
        told = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()


# --- in columns -----------------------------------------------------------------------------------


def read_columns(lines: Iterable[str]) -> Iterator[Line]:
    """dmon and pmon of nvidia-smi, and dmon of dcgmi: headings begin with `#`, and come again."""
    names: list[str] = []
    units: list[str] = []
    for line in lines:
        words = line.replace(",", " ").split()
        if line.lstrip().startswith("#"):
            told = line.replace("#", " ").replace(",", " ").split()
            if {"gpu", "entity"} & {word.lower() for word in told}:
                names, units = [word.lower() for word in told], []
            elif told[:1] and told[0].lower() in ("idx", "yyyymmdd", "hh:mm:ss"):
                units = [word.lower() for word in told]
            continue
        if names and words:
            found = _columns_line(names, units, words)
            if found is not None:
                yield found


def _columns_line(names: list[str], units: list[str], words: list[str]) -> Line | None:
    instance = words[0].upper() == "GPU-I"
    if names[0] == "entity":
        if words[0].upper() != "GPU" and not instance:
            return None
        names, words, units = ["gpu", *names[1:]], words[1:], []
        names = [name for name in names if name != "id"]
    if len(words) < len(names):
        return None
    row = {
        name: (word, unit if unit in columns.UNITS else "")
        for name, word, unit in zip(names, words, [*units, *[""] * len(names)], strict=False)
    }
    if not row["gpu"][0].isdecimal() or len(row["gpu"][0]) >= MOST_DIGITS:
        return None
    told = columns.gpu_fields(row, {**columns.DCGM, **columns.DMON})
    if "fbfre" in row and "memory_used_bytes" in told:
        free = columns.quantity(row["fbfre"][0], "mib") or 0
        told["memory_total_bytes"] = told["memory_used_bytes"] + round(free)
    if "pid" in row:
        told = {"process": _process(row)}
    number = int(row["gpu"][0])
    if instance:
        return Line(index=0, mig=number, at=_column_time(row), gpu=told)
    return Line(index=number, at=_column_time(row), gpu=told)


KINDS: Mapping[str, Literal["compute", "graphics", "both"]] = {
    "G": "graphics", "C": "compute", "C+G": "both", "M+C": "compute",
}  # fmt: skip


def _process(row: Row) -> ProcessUse | None:
    if not row["pid"][0].isdecimal() or len(row["pid"][0]) > 10:
        return None
    kind = row.get("type", ("", ""))[0].upper()
    used = columns.quantity(row.get("fb", ("", ""))[0], "mib")
    return ProcessUse(
        pid=int(row["pid"][0]),
        name=row.get("command", ("", ""))[0] or None,
        kind=KINDS.get(kind),
        sm_percent=columns.quantity(row.get("sm", ("", ""))[0]),
        memory_bytes=None if used is None else round(used),
    )


def _column_time(row: Row) -> float | None:
    date, time = (row.get(name, ("", ""))[0] for name in ("date", "time"))
    if not re.fullmatch(r"\d\d:\d\d:\d\d", time):
        return None
    return moment(f"{date if date.isdecimal() else '20000101'} {time}")


# --- W&B ------------------------------------------------------------------------------------------


def read_wandb(lines: Iterable[str]) -> Iterator[Line]:
    """`wandb-events.jsonl`, or rows of `run.history(stream='events')` as CSV or JSON lines."""
    for row in _wandb_rows(lines):
        told = {str(name).lower().removeprefix("system."): str(row[name]) for name in row}
        at = columns.quantity(told.get("_runtime", told.get("_timestamp", "")))
        busy = columns.quantity(told.get("cpu", ""))
        host = {"busy_percent": busy} if busy is not None and 0 <= busy <= 100 else {}
        gpus: dict[int, dict[str, tuple[str, str]]] = {}
        for name, cell in told.items():
            if match := columns.WANDB_NAME.match(name):
                gpus.setdefault(int(match[1]), {})[match[2]] = (cell, "")
        for index in sorted(gpus):
            fields = columns.gpu_fields(gpus[index], columns.WANDB)
            yield Line(index=index, at=at, gpu=fields, host=host)


def _wandb_rows(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    first, lines = told_first(line.replace("\0", "") for line in lines)
    if not first.startswith("{"):
        with contextlib.suppress(csv.Error):
            yield from csv.DictReader(lines)
        return
    for line in lines:
        with contextlib.suppress(ValueError):
            plain = json.loads(line)
            if isinstance(plain, dict):
                yield plain


def told_first(lines: Iterable[str]) -> tuple[str, Iterator[str]]:
    """The first line that says something, and all lines."""
    kept: list[str] = []
    iterator = iter(lines)
    for line in iterator:
        kept.append(line)
        if line.strip():
            return line, chain(kept, iterator)
    return "", iter(kept)


def _begins(*told: str) -> Callable[[str], bool]:
    """A heading in columns that has these words."""
    return lambda low: low.startswith("#") and all(word in low for word in told)


def _is_wandb(low: str) -> bool:
    names = ("_runtime", "_timestamp", "gpu.0.") if low.startswith("{") else ("gpu.0.",)
    return "," in low and any(name in low for name in names)


LOGS: tuple[tuple[Callable[[str], bool], Log], ...] = (
    (lambda low: low.startswith("at,seconds,gpu,"), Log(source="csv", read=read_csv)),
    (_is_wandb, Log(source="wandb", read=read_wandb)),
    (_begins("entity"), Log(source="dcgmi dmon", read=read_columns)),
    (_begins("gpu", " pid "), Log(source="nvidia-smi pmon", read=read_columns)),
    (_begins("gpu"), Log(source="nvidia-smi dmon", read=read_columns)),
    (
        lambda low: "," in low and _is_heading(low.split(",")),
        Log(source="nvidia-smi csv", read=read_csv),
    ),
)
"""How a log is told by its first line, the surest first."""
