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
from typing import Any, Literal, NamedTuple

from gpusetup.monitor import columns
from gpusetup.monitor.values import GpuSample, HostSample, ProcessUse, Sample, TreeSample

Row = Mapping[str, str]
"""Heading -> cell, with the heading's unit behind it."""
Place = tuple[int, int | None]
"""The number of a GPU, and of its MIG instance."""
MOST_DIGITS = 5
"""Of a GPU's number."""


class Line(NamedTuple):
    """What one line of a log says of one GPU, or of a MIG instance."""

    place: Place
    at: float | None
    """Seconds; the first is the start."""
    gpu: Mapping[str, Any]
    process: ProcessUse | None = None
    tree: Mapping[str, Any] = {}
    host: Mapping[str, Any] = {}


class Log(NamedTuple):
    source: str
    read: Callable[[Iterable[str]], Iterator[Line]]


def log_of(first: str) -> Log | None:
    """Which log it is, by its first line that says something.

    >>> log_of("timestamp, index, utilization.gpu [%]").source, log_of("# gpu  pwr  sm").source
    ('nvidia-smi csv', 'nvidia-smi dmon')
    """
    low = first.strip().lower()
    words = low.replace("#", " ").split()
    if low.startswith("#"):
        if "entity" in words:
            return Log("dcgmi dmon", read_columns)
        kind = "pmon" if "pid" in words else "dmon"
        return Log(f"nvidia-smi {kind}", read_columns) if "gpu" in words else None
    if low.startswith("at,seconds,gpu,"):
        return Log("csv", read_csv)
    told = ("_runtime", "_timestamp", "gpu.0.") if low.startswith("{") else ("gpu.0.",)
    if "," in low and any(name in low for name in told):
        return Log("wandb", read_wandb)
    return Log("nvidia-smi csv", read_csv) if "," in low and _is_heading(low.split(",")) else None


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
        if any(one.place == line.place and not _of_two_processes(one, line) for one in group):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _of_two_processes(one: Line, other: Line) -> bool:
    """pmon: several processes of one GPU are one moment."""
    return bool(one.process and other.process and one.process.pid != other.process.pid)


def _sample(group: list[Line], seconds: float, at: float | None) -> Sample:
    tree, host = group[0].tree, group[0].host
    order = sorted(
        {line.place for line in group}, key=lambda one: (one[0], -1 if one[1] is None else one[1])
    )
    return Sample(
        at=in_words(at if at is not None and at > 1e8 else seconds),
        seconds=round(seconds, 3),
        gpus=tuple(_gpu([line for line in group if line.place == place]) for place in order),
        tree=TreeSample(**{**TREE_LEAST, **tree}) if "cpu_percent" in tree else None,
        host=HostSample(**host) if host else None,
    )


TREE_LEAST = {"processes": 1, "busiest_cpu_percent": 0.0, "memory_bytes": 0}


def _gpu(lines: list[Line]) -> GpuSample:
    told = {name: value for line in lines for name, value in line.gpu.items()}
    if processes := tuple(line.process for line in lines if line.process):
        whole = sum(one.sm_percent or 0.0 for one in processes)
        told |= {"processes": processes, "utilization_percent": min(100.0, whole)}
    share = told.pop("memory_percent", None)
    if share is not None and "memory_total_bytes" not in told:
        used = told.get("memory_used_bytes")
        total = round(used / share * 100) if used and share else 100 << 20
        told |= {"memory_total_bytes": total, "memory_used_bytes": used or round(share * (1 << 20))}
    index, mig = lines[0].place
    return GpuSample(index=index, mig_index=mig, **told)


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
    with contextlib.suppress(csv.Error):
        for cells in csv.reader(line.replace("\0", "") for line in lines):
            if _is_heading(cells):
                names = [columns.heading(cell) for cell in cells]
            elif names and len(cells) == len(names):
                pairs = zip(names, cells, strict=True)
                row = {name: with_unit(cell, unit) for (name, unit), cell in pairs if name}
                lost = row.get("lost") in ("1", "true", "True")
                lost |= any("lost" in cell.lower() for cell in cells)
                told = _line((_index(row, known), None), row)
                yield told._replace(gpu={**told.gpu, "lost": lost})


def with_unit(cell: str, unit: str) -> str:
    """
    >>> with_unit("512 MiB", "mib"), with_unit(" N/A", "mib")
    ('512 MiB mib', 'N/A')
    """
    cell = cell.strip()
    return f"{cell} {unit}" if unit and cell[:1].isdigit() else cell


def _is_heading(cells: Iterable[str]) -> bool:
    names = {columns.heading(cell)[0] for cell in cells}
    return bool(names & {"index", "gpu", "utilization.gpu", "uuid", "gpu_uuid", "pci.bus_id"})


def _index(row: Row, known: dict[str, int]) -> int:
    """By its index, else by what else names it, in the order in which they come."""
    for name in ("index", "gpu"):
        cell = row.get(name, "").partition(":")[0]
        if cell.isdecimal() and len(cell) < MOST_DIGITS:
            return int(cell)
    named = next((row[name] for name in ("uuid", "gpu_uuid", "pci.bus_id") if name in row), "")
    return known.setdefault(named, len(known))


def _line(place: Place, row: Row) -> Line:
    told: dict[str, Any] = columns.numbers(row, columns.COLUMNS)
    if "fbfre" in row and "memory_used_bytes" in told:
        free = columns.quantity(row["fbfre"], "mib") or 0
        told["memory_total_bytes"] = told["memory_used_bytes"] + round(free)
    for name in ("name", "gpu_name", "uuid", "gpu_uuid"):
        if row.get(name):
            told[name.removeprefix("gpu_")] = row[name]
    if (reasons := columns.throttle(row)) is not None:
        told["throttle_reasons"] = reasons
    return Line(
        place=place,
        at=_time(row),
        gpu=RESTS if "pid" in row else told,
        process=_process(row),
        tree=columns.numbers(row, columns.TREE),
        host=columns.numbers(row, columns.HOST),
    )


RESTS = {"processes": (), "utilization_percent": 0.0}
"""A GPU of pmon without a process."""
TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")


def _time(row: Row) -> float | None:
    if "seconds" in row:
        return columns.quantity(row["seconds"])
    if time := row.get("time"):
        date = row.get("date", "")
        whole = re.fullmatch(r"\d\d:\d\d:\d\d", time)
        return moment(f"{date if date.isdecimal() else '20000101'} {time}") if whole else None
    return moment(row.get("timestamp", row.get("at", "")))


def moment(text: str) -> float | None:
    """
    >>> moment("2026/11/20 06:03:41.500"), moment("2026-11-20T06:03:41Z"), moment("x")
    (1795154621.5, 1795154621.0, None)
    """
    for form in TIMES:
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
    with contextlib.suppress(ValueError):
        told = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    return None


# --- in columns -----------------------------------------------------------------------------------


def read_columns(lines: Iterable[str]) -> Iterator[Line]:
    """dmon and pmon of nvidia-smi, and dmon of dcgmi: headings begin with `#`, and come again."""
    names: list[str] = []
    units: list[str] = []
    for line in lines:
        words = line.replace("#", " ").replace(",", " ").split()
        low = [word.lower() for word in words]
        if line.lstrip().startswith("#"):
            if {"gpu", "entity"} & {*low}:
                names, units = low, [""] * len(low)
            elif low[:1] and low[0] in ("idx", "yyyymmdd", "hh:mm:ss"):
                units = [unit if unit in columns.UNITS else "" for unit in low]
            continue
        instance = low[:1] == ["gpu-i"]
        if names[:1] == ["entity"]:
            if not instance and low[:1] != ["gpu"]:
                continue
            heads, words, told = ["gpu", *names[1:]], words[1:], [""] * len(names)
            heads = [name for name in heads if name != "id"]
        else:
            heads, told = names, units
        if not heads or len(words) < len(heads):
            continue
        told = [*told, *[""] * len(heads)]
        row = {n: with_unit(w, u) for n, w, u in zip(heads, words, told, strict=False)}
        if row["gpu"].isdecimal() and len(row["gpu"]) < MOST_DIGITS:
            number = int(row["gpu"])
            yield _line((0, number) if instance else (number, None), row)


KINDS: Mapping[str, Literal["compute", "graphics", "both"]] = {
    "G": "graphics", "C": "compute", "C+G": "both", "M+C": "compute",
}  # fmt: skip


def _process(row: Row) -> ProcessUse | None:
    pid = row.get("pid", "")
    if not pid.isdecimal() or len(pid) > 10:
        return None
    used = columns.quantity(row.get("fb", ""), "mib")
    return ProcessUse(
        pid=int(pid),
        name=row.get("command") or None,
        kind=KINDS.get(row.get("type", "").upper()),
        sm_percent=columns.quantity(row.get("sm", "")),
        memory_bytes=None if used is None else round(used),
    )


# --- W&B ------------------------------------------------------------------------------------------


def read_wandb(lines: Iterable[str]) -> Iterator[Line]:
    """`wandb-events.jsonl`, or rows of `run.history(stream='events')` as CSV or JSON lines."""
    for plain in _wandb_rows(lines):
        row = {str(name).lower().removeprefix("system."): str(plain[name]) for name in plain}
        at = columns.quantity(row.get("_runtime", row.get("_timestamp", "")))
        busy = columns.quantity(row.get("cpu", ""))
        host = {"busy_percent": busy} if busy is not None and 0 <= busy <= 100 else {}
        gpus: dict[int, dict[str, str]] = {}
        for name, cell in row.items():
            if match := columns.WANDB_NAME.match(name):
                gpus.setdefault(int(match[1]), {})[match[2]] = cell
        for index in sorted(gpus):
            yield Line((index, None), at, columns.numbers(gpus[index], columns.WANDB), host=host)


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
