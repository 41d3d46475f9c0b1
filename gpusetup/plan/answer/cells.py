"""Many plans at once: the rows of a CSV file, answered in order."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpusetup import named_file
from gpusetup.catalog.gpus import GpuRow
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.documents import PlanCell
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan.answer.calibrate import Cell, Trial
from gpusetup.plan.answer.cell import Asked, answer
from gpusetup.plan.answer.decide import Case, decide
from gpusetup.plan.answer.measured import NONE
from gpusetup.plan.answer.place import Place, named_gpu, sized_gpu
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.workload import Recipe, Workload

NEEDED = ("num_gpus", "model", "max_model_len")
GPU_COLUMNS = ("gpu", "gpu_mem_gb")
"""One of these at least: a name, a size in GiB, or a name made unambiguous by the size."""

OUTCOMES = {"fits": True, "fit": True, "ok": True, "oom": False, "no": False}


class Row(Frozen):
    """One line of the file, checked."""

    line: int
    place: Place
    workload: Workload
    values: Mapping[str, str]


def read_rows(path: Path, gpus: Sequence[GpuRow]) -> tuple[Row, ...]:
    """The rows of a cells file; BadInput names the line and what is wrong with it."""
    reader = csv.DictReader(io.StringIO(named_file.read_text(path)), skipinitialspace=True)
    _check_columns(path, reader.fieldnames or ())
    places = _places(gpus)
    try:
        return tuple(_row(path, number, row, places) for number, row in enumerate(reader, 2))
    except csv.Error as problem:
        raise BadInput(f"{path} is no CSV file: {problem}") from problem


def _check_columns(path: Path, names: Sequence[str]) -> None:
    missing = [name for name in NEEDED if name not in names]
    if not any(name in names for name in GPU_COLUMNS):
        missing.append("gpu or gpu_mem_gb")
    if missing:
        raise BadInput(
            f"{path} has no column {', '.join(missing)}",
            hint="gpu,gpu_mem_gb,num_gpus,model,max_model_len",
        )


def _row(
    path: Path,
    line: int,
    values: Mapping[str, str],
    place_of: Callable[[str, float | None], Place],
) -> Row:
    try:
        gib = _number(values, "gpu_mem_gb") if values.get("gpu_mem_gb") else None
        place = place_of((values.get("gpu") or "").strip(), gib)
        workload = Workload(
            shape=_model((values["model"] or "").strip()),
            gpus=_whole(values, "num_gpus", 10**5),
            context=_whole(values, "max_model_len", 10**8),
        )
    except UsageError as problem:
        raise BadInput(f"{path}, line {line}: {problem.message}", hint=problem.hint) from problem
    return Row(line=line, place=place, workload=workload, values=values)


_model = lru_cache(maxsize=64)(model_named)


def _places(gpus: Sequence[GpuRow]) -> Callable[[str, float | None], Place]:
    """The place of a name and a size in GiB, each looked up once."""

    @lru_cache(maxsize=256)
    def place_of(name: str, gib: float | None) -> Place:
        if not name and gib is None:
            raise UsageError("neither `gpu` nor `gpu_mem_gb` is given")
        if not name:
            return sized_gpu(round((gib or 0) * GIB))
        found = named_gpu(f"{name} {gib:g}GB" if _ambiguous(name, gib, gpus) else name, gpus)
        if gib is not None and abs(found.total_bytes / GIB / gib - 1) > 0.1:
            known = f"{found.total_bytes / GIB:g}"
            raise UsageError(f"{name} has {known} GiB of memory, gpu_mem_gb says {gib:g}")
        return found

    return place_of


def _ambiguous(name: str, gib: float | None, gpus: Sequence[GpuRow]) -> bool:
    """Whether the name alone has several sizes of memory, and the size tells which."""
    from gpusetup.catalog.gpus import one_memory, rows_named

    return gib is not None and one_memory(rows_named(name, gpus)) is None


def _number(values: Mapping[str, str], name: str) -> float:
    try:
        value = float(values.get(name) or "")
    except ValueError as problem:
        raise UsageError(f"{name} is {values.get(name)!r}: a number is needed") from problem
    if not 0 < value < 1e12:
        raise UsageError(f"{name} is {values.get(name)!r}: out of range")
    return value


def _whole(values: Mapping[str, str], name: str, most: int) -> int:
    value = _number(values, name)
    if value != int(value) or value > most:
        raise UsageError(f"{name} is {values.get(name)!r}: a whole number up to {most:,} is needed")
    return int(value)


def plans(
    rows: Sequence[Row], c: Constants, *, predict: bool, safe: bool, brief: bool = True
) -> Iterator[PlanCell]:
    """One plan a row, in order. `predict` leaves the measured table aside."""
    for row in rows:
        case = Case(
            limits=row.place.limits(safe=safe, sp=None),
            constants=c,
            measured_gpu=None if predict else row.place.measured,
        )
        asked = Asked(place=row.place, case=case, brief=brief)
        yield answer(decide(row.workload, case), asked)


# --- cells to fit to ----------------------------------------------------------------------------


def facts(rows: Sequence[Row], path: Path, groups: int = 5) -> tuple[Cell | Trial, ...]:
    """What the rows say was measured: `recipe` is the first that fits (`-`: none), or, with a
    column `outcome` (`fits` or `oom`), the one that was run.

    The rows are dealt to `groups` in turn, for cross-validation.
    """
    return tuple(_fact(row, path, f"part {i % groups + 1}") for i, row in enumerate(rows))


def _fact(row: Row, path: Path, group: str) -> Cell | Trial:
    said = (row.values.get("recipe") or "").strip()
    outcome = (row.values.get("outcome") or "").strip().lower()
    limits = row.place.limits(safe=False, sp=None)
    where = f"{path}, line {row.line}"
    try:
        recipe = None if said == NONE else Recipe.parse(said)
    except ValueError as problem:
        raise BadInput(f"{where}: {said!r} is no recipe", hint="`Env + SP=2`, or `-`") from problem
    if not outcome:
        return Cell(workload=row.workload, limits=limits, recipe=recipe, group=group)
    if outcome not in OUTCOMES or recipe is None:
        raise BadInput(f"{where}: outcome {outcome!r}", hint="`fits` or `oom`, of a recipe")
    return Trial(
        workload=row.workload,
        limits=limits,
        recipe=recipe,
        fits=OUTCOMES[outcome],
        group=group,
    )
