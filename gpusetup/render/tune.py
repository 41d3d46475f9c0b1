"""tune's screens: the diff with its reasons, the trials, the comparison table, the progress."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from gpusetup.model.units import GIB
from gpusetup.render.clock import CLOCK
from gpusetup.render.screen import (
    BUT,
    DIM,
    GOOD,
    HEADING,
    NO,
    Row,
    Screen,
    diff_lines,
    marked,
    section,
    table,
)
from gpusetup.tune import answer as answers
from gpusetup.tune.answer import TuneAnswer, TuneChange
from gpusetup.tune.config_file import SUFFIX
from gpusetup.tune.search import Trial

RESULTS = {"ok": "ran", "oom": "out of memory", "error": "failed"}


def tune_screen(answer: TuneAnswer, *, config: str | None = None) -> Screen:
    """The whole answer."""
    where = answer.device or "this device"
    lines: list[str] = []
    if answer.trials:
        head = ("batch", "result", "peak", "samples/s")
        trials = table(head, map(trial_cells, answer.trials), left=())
        lines += section(f"Batch sizes on {where}", (*trials, "", _best(answer)))
    if answer.benchmark:
        words = [Row(line, hang=2) for line in losses(answer.benchmark)]
        if answer.cause:
            words.append(Row(f"  {answer.cause}", hang=2))
        lines += section(f"Measured on {where}", (*comparison(answer.benchmark), *words))
    if answer.cannot_fit:
        lines += ["", marked(NO, answer.cannot_fit)]
    if answer.changes:
        lines += section(f"Changes of {config}", diff_lines(answer.diff))
        lines += section("Why", (line for one in answer.changes for line in why(one)))
    elif config and not answer.cannot_fit:
        lines += ["", Row((config, HEADING), ": nothing to change", hang=2)]
    title = "Not written" if config else "Recommended"
    others = (Row("  ", ("·", DIM), f" {one}", hang=4) for one in answer.recommendations)
    lines += section(title, others)
    if answer.written is not None:
        back = f"; {config}{SUFFIX} is the previous file" if answer.written == config else ""
        lines += ["", Row(f"Written to {answer.written}{back}", hang=2)]
    elif answer.changes:
        lines += ["", Row("Nothing is written; `--in-place` or `-o FILE` writes it", hang=2)]
    if answer.interrupted:
        done = answer.batch_size is not None or answer.benchmark or answer.changes
        best = "this is the best so far" if done else "no trial finished, so there is no answer"
        lines += ["", marked(BUT, "interrupted", best)]
    return Screen(lines[1:] if lines[:1] == [""] else lines)


def why(change: TuneChange) -> Iterator[Row]:
    before = "(new)" if change.added else shown(change.before)
    yield Row(f"  {change.key}: ", (before, DIM), " → ", (shown(change.after), GOOD), hang=4)
    yield Row(f"    {change.reason}", (f"  ({change.source})", DIM), hang=4)


def shown(value: object) -> str:
    if value is None:
        return "empty"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def preset_screen(answer: TuneAnswer, *, kept: str | None = None) -> Screen:
    """The presets as a table, one of them as its text, or where it was written.

    `kept`: the copy of what stood in the file before.
    """
    if answer.presets:
        rows = [(row.name, row.trains, row.card, row.guide) for row in answer.presets]
        listed = table(("preset", "trains", "on", "source"), rows, left=range(4))
        step = Row("`gpusetup tune --preset NAME -o train.yaml` writes one of them")
        return Screen((*listed, "", step))
    if answer.written is None:
        return Screen(Row(line, whole=True) for line in answer.preset.splitlines())
    lines = [Row(f"Written to {answer.written}", hang=2)]
    if kept is not None:
        lines.append(Row(f"{kept} is the previous file", hang=2))
    fit = f"gpusetup tune {shlex.quote(answer.written)} --in-place"
    return Screen((*lines, "", Row(f"Next, fit it to this machine: `{fit}`", whole=True)))


# --- measured -----------------------------------------------------------------------------------


def trial_cells(trial: Trial) -> tuple[str, ...]:
    """
    >>> trial_cells(Trial(batch=8, status="ok", peak_bytes=1 << 30, samples_per_second=12.5))
    ('8', 'ran', '1.00 GiB', '12.5')
    """
    rate = speed(trial.samples_per_second, trial.spread_percent)
    return str(trial.batch), RESULTS[trial.status], gib(trial.peak_bytes), rate


def gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f} GiB"


def speed(rate: float | None, spread: float | None) -> str:
    """
    >>> speed(12.5, 3.0), speed(211_400.0, None)
    ('12.5 ± 2 %', '211,400')
    """
    if rate is None:
        return ""
    # Four digits say enough of a measured rate; a thousand and more is read as a whole number.
    rounded = float(f"{rate:.4g}")
    figure = f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
    return figure if spread is None else f"{figure} ± {spread / 2:.0f} %"


def _best(answer: TuneAnswer) -> Row:
    if answer.batch_size is None:
        return marked(NO, "no batch size ran within the memory", indent=2)
    limit = f" within {gib(answer.limit_bytes)}" if answer.limit_bytes else ""
    after = f"; {answer.stopped}" if answer.stopped else ""
    return Row("  ", (f"Batch size: {answer.batch_size}", GOOD), f"{limit}{after}", hang=4)


def comparison(rows: tuple[answers.Row, ...]) -> list[Row]:
    """The table of the acceleration guide, with measured figures."""
    has_epochs = any(row.seconds_per_epoch for row in rows)
    epoch = ("s / epoch",) if has_epochs else ()
    head = ("", "batch", "s / 1000", *epoch, "peak", "samples/s", "speed-up", "")
    return table(head, (comparison_cells(row, has_epochs=has_epochs) for row in rows))


def comparison_cells(row: answers.Row, *, has_epochs: bool) -> tuple[str, ...]:
    """What a row shows below each head; a row that did not run says why in the last cell."""
    name = row.name.replace("+", "+ ")
    if row.status != "ok":
        empty_cells = ("",) * (6 if has_epochs else 5)
        return name, *empty_cells, failure(row)
    epoch = (seconds(row.seconds_per_epoch),) if has_epochs else ()
    rate = row.samples_per_second
    return (
        name,
        str(row.batch),
        seconds(1000 / rate) if rate else "",
        *epoch,
        gib(row.peak_bytes),
        speed(rate, row.spread_percent),
        f"{row.speed_up:.2f} x" if row.speed_up is not None else "",
        note(row),
    )


def seconds(amount: float | None) -> str:
    """
    >>> seconds(12.345), seconds(1234.5), seconds(None)
    ('12.3', '1,234', '')
    """
    if amount is None:
        return ""
    return f"{amount:.3g}" if amount < 1000 else f"{amount:,.0f}"


LONGEST_FAILURE = 70
"""Columns of a row's failure: an error of torch may be pages long."""


def failure(row: answers.Row) -> str:
    """Why a row did not run."""
    if row.status == "oom":
        return "out of memory"
    detail = row.detail or ""
    if row.status == "error":
        detail = f"failed: {detail}"
    first_line = (detail.splitlines() or [""])[0]
    return first_line if row.status == "skipped" else first_line[:LONGEST_FAILURE]


def note(row: answers.Row) -> str:
    """What became of a row: kept, or why it was left out."""
    if not row.name.startswith("+"):
        return row.detail or ""
    result = "kept" if row.kept else f"{row.detail or 'no gain'}: left out"
    if row.name == "+AMP":
        return f"{row.amp}, {result}"
    if row.name == "+workers":
        return f"{row.workers} workers, {result}"
    return result


def losses(rows: Sequence[answers.Row]) -> Iterator[str]:
    """The loss with and without mixed precision, as a sentence; nothing where it was not read.

    >>> [*losses([answers.Row(batch=8, loss=2.3012, loss_without_amp=2.3, loss_steps=12)])]
    ['  Loss after 12 steps from the same seed: 2.301 with mixed precision, 2.3 without']
    """
    for row in rows:
        if row.loss_steps:
            mixed, plain = (
                "NaN" if loss is None else f"{loss:.4g}"
                for loss in (row.loss, row.loss_without_amp)
            )
            yield (
                f"  Loss after {row.loss_steps} steps from the same seed: {mixed} with mixed"
                f" precision, {plain} without"
            )


@contextmanager
def measuring(say: Callable[[str], None], expected: int) -> Iterator[Callable[[str], None]]:
    """A callback that is told what is measured next, and shows the time that is left."""
    steps, began = count(), time.monotonic()

    def step(what: str) -> None:
        say(f"measuring {what} ...")
        done = next(steps)
        CLOCK.reached(done, max(expected, done + 1), since=began)

    yield step
