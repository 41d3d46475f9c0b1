"""Many plans at once: the rows of a CSV file, answered in order."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
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
from gpusetup.plan.place import Place, named_gpu, place_of

_model = lru_cache(maxsize=64)(model_named)


def plans(path: Path, gpus: Sequence[GpuRow], *, predict: bool) -> Iterator[PlanCell]:
    """One plan a row; BadInput names the line and what is wrong with it."""
    reader = csv.DictReader(io.StringIO(named_file.read_text(path)), skipinitialspace=True)
    if not {"num_gpus", "model", "max_model_len"} <= {*(reader.fieldnames or ())}:
        hint = "gpu,gpu_mem_gb,num_gpus,model,max_model_len"
        raise BadInput(f"{path} needs the columns num_gpus, model and max_model_len", hint=hint)

    @lru_cache
    def place(name: str, gib: str) -> Place:
        if not name:
            return place_of(None, round(number("gpu_mem_gb", gib, 10**4) * GIB))
        has_sizes = gib and one_memory(rows_named(name, gpus)) is None
        found = named_gpu(f"{name} {gib}GB" if has_sizes else name, gpus)
        total_gib = found.total_bytes / GIB
        if gib and abs(total_gib / number("gpu_mem_gb", gib, 10**4) - 1) > 0.1:
            raise UsageError(f"{name} has {total_gib:g} GiB of memory, gpu_mem_gb says {gib}")
        return found

    for line, row in enumerate(reader, 2):
        try:
            place_of_row = place((row.get("gpu") or "").strip(), row.get("gpu_mem_gb") or "")
            job = Job(
                shape=_model((row["model"] or "").strip()),
                gpus=int(number("num_gpus", row["num_gpus"], 10**5)),
                context=int(number("max_model_len", row["max_model_len"], 10**8)),
            )
        except UsageError as problem:
            raise BadInput(
                f"{path}, line {line}: {problem.message}", hint=problem.hint
            ) from problem
        yield cell(decide(job, place_of_row.limits(predict=predict)), place_of_row.gpu)


def number(name: str, text: str | None, most: int) -> float:
    """
    >>> number("num_gpus", "8", 10)
    8.0
    """
    try:
        value = float(text or "")
    except ValueError:
        value = 0
    if not 0 < value <= most:
        raise UsageError(f"{name} is {text!r}: a number up to {most:,} is needed")
    return value
