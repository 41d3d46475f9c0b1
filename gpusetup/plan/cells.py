"""Many plans at once: the rows of a CSV file, answered in order."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpusetup import named_file
from gpusetup.catalog.gpus import GpuRow, one_memory, rows_named
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.documents import PlanCell
from gpusetup.model.units import GIB
from gpusetup.plan.answer import cell
from gpusetup.plan.decide import decide
from gpusetup.plan.job import Job
from gpusetup.plan.models import model_named
from gpusetup.plan.place import Place, named_gpu, sized_gpu

NEEDED = ("num_gpus", "model", "max_model_len")
_model = lru_cache(maxsize=64)(model_named)


def plans(path: Path, gpus: Sequence[GpuRow], *, predict: bool) -> Iterator[PlanCell]:
    """One plan a row; BadInput names the line and what is wrong with it."""
    reader = csv.DictReader(io.StringIO(named_file.read_text(path)), skipinitialspace=True)
    names = reader.fieldnames or ()
    missing = [name for name in NEEDED if name not in names]
    missing += ["gpu or gpu_mem_gb"] * (not {"gpu", "gpu_mem_gb"} & {*names})
    if missing:
        hint = "gpu,gpu_mem_gb,num_gpus,model,max_model_len"
        raise BadInput(f"{path} has no column {', '.join(missing)}", hint=hint)
    places: dict[tuple[str, str], Place] = {}
    for line, row in enumerate(reader, 2):
        key = ((row.get("gpu") or "").strip(), row.get("gpu_mem_gb") or "")
        try:
            place = places.get(key) or places.setdefault(key, _place(row, gpus))
            job = Job(
                shape=_model((row["model"] or "").strip()),
                gpus=int(_number(row, "num_gpus", 10**5)),
                context=int(_number(row, "max_model_len", 10**8)),
            )
        except UsageError as problem:
            where = f"{path}, line {line}: {problem.message}"
            raise BadInput(where, hint=problem.hint) from problem
        yield cell(decide(job, place.limits(predict=predict)), place.gpu)


def _place(row: Mapping[str, str], gpus: Sequence[GpuRow]) -> Place:
    """A GPU by its name, its size in GiB, or a name that the size makes unambiguous."""
    name = (row.get("gpu") or "").strip()
    gib = _number(row, "gpu_mem_gb", 10**4) if row.get("gpu_mem_gb") else None
    if not name:
        if gib is None:
            raise UsageError("neither `gpu` nor `gpu_mem_gb` is given")
        return sized_gpu(round(gib * GIB))
    several = gib is not None and one_memory(rows_named(name, gpus)) is None
    found = named_gpu(f"{name} {gib:g}GB" if several else name, gpus)
    if gib is not None and abs(found.total_bytes / GIB / gib - 1) > 0.1:
        known = f"{found.total_bytes / GIB:g}"
        raise UsageError(f"{name} has {known} GiB of memory, gpu_mem_gb says {gib:g}")
    return found


def _number(row: Mapping[str, str], name: str, most: int) -> float:
    try:
        value = float(row.get(name) or "")
    except ValueError as problem:
        raise UsageError(f"{name} is {row.get(name)!r}: a number is needed") from problem
    if not 0 < value <= most:
        raise UsageError(f"{name} is {row.get(name)!r}: a number up to {most:,} is needed")
    return value
