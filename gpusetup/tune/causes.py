"""Why nothing made a training faster, and where it stands beside the guides' marks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.tune.benchmark import Row

BUSY = 90
"""Percent of the time from which on a GPU has no time to spare."""
IDLE = 50
SHORT_STEP_SECONDS = 0.005
"""A step of a GPU that takes less is mostly launching."""
KEEPS_UP = 0.9
UNSTEADY = 30
"""Percent between the slowest and the fastest step from which on 3 % more cannot be seen."""
MEMORY_MARKS = "70 to 90 %"
"""The acceleration guide's, for memory; for the GPU: busy near 100 %."""


def cause(rows: Sequence[Row], rates: Sequence[tuple[int, float]], *, gpu: bool) -> str | None:
    """Where no step was kept: the likeliest reason, from what was measured.

    `rates`: (workers, samples a second) of the loader alone.
    """
    if not rows or rows[0].status != "ok" or any(row.kept for row in rows):
        return None
    return f"Nothing made it faster: {next(_reasons(rows, rates, gpu))}"


def _reasons(rows: Sequence[Row], rates: Sequence[tuple[int, float]], gpu: bool) -> Iterator[str]:
    base = rows[0]
    speed, busy = base.samples_per_second or 0.0, base.utilization_percent
    most = max((rate for _, rate in rates), default=0.0)
    if most and base.setup.workers is not None and speed >= KEEPS_UP * most:
        yield (
            f"the loader gives {most:.4g} samples a second at most, and the steps keep up with it:"
            " cache the data, or prepare it once and keep the result"
        )
    if (base.spread_percent or 0) > UNSTEADY:
        yield (
            f"the steps differ by {base.spread_percent:.0f} %, more than a gain of 3 % could show:"
            " something else works on this machine, measure again"
        )
    if gpu and speed and base.setup.batch / speed < SHORT_STEP_SECONDS:
        yield (
            f"a step takes {1000 * base.setup.batch / speed:.1f} ms, most of it launching: the"
            " model is too small for this GPU, only a larger batch in each update would load it"
        )
    if busy is not None and busy >= BUSY:
        yield (
            f"the GPU is busy {busy:.0f} % of the time already: what is left is a smaller model, or"
            " a faster card"
        )
    if busy is not None and busy < IDLE:
        yield (
            f"the GPU is busy {busy:.0f} % of the time, and neither the loader nor the batch is the"
            " reason: `gpusetup monitor -- COMMAND` shows what it waits for"
        )
    if all(row.status == "skipped" for row in rows[1:]):
        yield "all that could be tried is on already, or does not apply"
    if not gpu:
        yield "this is a CPU, which these steps help little; a GPU is what would"
    yield "the steps are limited by computing, which none of these shortens here"


def marks(rows: Sequence[Row], limit_bytes: int, *, gpu: bool) -> str | None:
    """How full and how busy the GPU is with all that was kept, beside the acceleration guide."""
    done = [row for row in rows if row.status == "ok" and (row.kept or row.name in ("base", "all"))]
    if not gpu or not done or not done[-1].peak_bytes or not limit_bytes:
        return None
    last = done[-1]
    memory = f"memory {100 * (last.peak_bytes or 0) / limit_bytes:.0f} % (mark: {MEMORY_MARKS})"
    busy = last.utilization_percent
    told = "not told" if busy is None else f"{busy:.0f} %"
    return f"{memory}, GPU busy {told} (mark: near 100 %)"
