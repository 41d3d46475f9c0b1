"""Plans many jobs at once: one for each row of a CSV file, in order."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from gpusetup import named_file
from gpusetup.catalog.gpus import GpuRow, one_memory, rows_named
from gpusetup.errors import BadInput, GpuSetupError, UsageError
from gpusetup.model.documents import PlanCell, PlanMemory
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer import cell
from gpusetup.plan.decide import decide
from gpusetup.plan.job import TrainingJob
from gpusetup.plan.models import model_named
from gpusetup.plan.place import Place, named_gpu, place_of

NEEDED_COLUMNS = frozenset(("num_gpus", "model", "max_model_len"))
COLUMNS = "gpu,gpu_mem_gb,num_gpus,model,max_model_len"
LARGEST_GIB, LARGEST_GPUS, LARGEST_LENGTH = 10**4, 10**5, 10**8
"""The largest plausible values in a row; anything above is a typo."""
NOTHING = PlanMemory(
    states=0, checkpoints=0, logits=0, fragmentation=0, other=0, total=0, capacity=0
)


def plans(path: Path, gpus: Sequence[GpuRow], *, predict: bool) -> Iterator[PlanCell]:
    """Yield one plan for each row of the CSV file, in order, with Trinity-RFT as the trainer; a row
    that cannot be planned gets an `error`.

    Raises BadInput if a column is missing, because then no row can be planned.
    """
    text = named_file.read_text(path)
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    if not NEEDED_COLUMNS.issubset(reader.fieldnames or ()):
        raise BadInput(
            f"{path} needs the columns num_gpus, model and max_model_len",
            hint=COLUMNS,
        )
    # Hundreds of rows name the same few cards and models.
    gpu_of_row = lru_cache(maxsize=64)(partial(place_of_row, gpus=gpus))
    shape_of_row = lru_cache(maxsize=64)(model_named)
    for row in reader:
        name = (row.get("gpu") or "").strip()
        try:
            place = gpu_of_row(name, (row.get("gpu_mem_gb") or "").strip())
            job = TrainingJob(
                shape=shape_of_row((row.get("model") or "").strip()),
                gpus=int(number("num_gpus", row.get("num_gpus"), LARGEST_GPUS)),
                context=int(number("max_model_len", row.get("max_model_len"), LARGEST_LENGTH)),
            )
            yield cell(decide(job, replace(place, predict=predict)))
        except GpuSetupError as problem:
            hint = f" ({problem.hint})" if problem.hint else ""
            # All fields but `error`, the model and the GPU are placeholders.
            yield PlanCell(
                error=f"line {reader.line_num}: {problem.message}{hint}",
                fits=False,
                recipe="",
                basis="predicted",
                confidence="close",
                memory_gib=NOTHING,
                margin_percent=0,
                model=row.get("model") or "",
                parameters=0,
                active_parameters=0,
                gpu=name,
                gpus=0,
                context=0,
            )


def place_of_row(name: str, size: str, gpus: Sequence[GpuRow]) -> Place:
    """The GPU that a row describes by its name, its memory size or both; UsageError if the two
    contradict each other."""
    gib = number("gpu_mem_gb", size, LARGEST_GIB) if size or not name else None
    if not name:
        return place_of(None, round((gib or 0) * GIB))
    card_has_several_sizes = gib and one_memory(rows_named(name, gpus)) is None
    place = named_gpu(f"{name} {size}GB" if card_has_several_sizes else name, gpus)
    # Allow a difference of a tenth, because the size may be in decimal gigabytes.
    if gib and abs(place.total_bytes / GIB / gib - 1) > 0.1:
        raise UsageError(
            f"{name} has {place.total_bytes / GIB:g} GiB of memory, gpu_mem_gb says {size}"
        )
    return place


def number(name: str, text: str | None, most: int) -> float:
    """The number in a CSV column; UsageError if it is not a positive number or exceeds `most`."""
    is_number = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", (text or "").strip())
    value = float(text) if text and is_number else 0
    if not 0 < value <= most:
        raise UsageError(f"{name} is {text!r}: a number up to {most:,} is needed")
    return value
