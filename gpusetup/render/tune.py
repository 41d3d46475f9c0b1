"""The screens of `tune`: the changes of a config with their reasons, the trials, the comparison
table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.model.units import GIB
from gpusetup.render.screen import (
    BUT,
    DIM,
    GOOD,
    HEADING,
    NO,
    Screen,
    ScreenLine,
    marked,
    plural,
    section,
    table,
    yaml_value,
)
from gpusetup.tune.answer import Row, TuneAnswer
from gpusetup.tune.bench import Trial

RESULTS = {"ok": "ran", "oom": "out of memory"}
ERROR_LENGTH = 70
"""How much of an error's first line fits into a table."""


def tune_screen(answer: TuneAnswer, *, config: str | None = None) -> Screen:
    """The screen of tune's result: trials, measured gains, a line for each change, and what was
    written. `config` is the path of the training config, if the user named one."""
    lines = [*_measured(answer)]
    if answer.cannot_fit:
        lines += ["", marked(NO, answer.cannot_fit)]
    if config is not None:
        lines += _changes(answer, config)
    advice = [ScreenLine("  ", ("·", DIM), f" {text}", hang=4) for text in answer.recommendations]
    lines += section("Not written", advice)
    if answer.written is not None:
        text = f"Written to {answer.written}"
        if answer.previous:
            text += f"; the previous file is {answer.previous}"
        lines += ["", ScreenLine(text, hang=2)]
    elif answer.changes:
        text = "Nothing was written. To write the changes, use `--in-place` or `-o FILE`"
        lines += ["", ScreenLine(text, hang=2)]
    if answer.interrupted:
        lines += ["", marked(BUT, "interrupted", ": not everything was measured")]
    # Each part begins with an empty line, but the screen must not.
    return Screen(lines[1:] if lines[:1] == [""] else lines)


def _changes(answer: TuneAnswer, config: str) -> Iterator[str]:
    """The number of changes with a reason for each, or a line that says that nothing changes."""
    count = len(answer.changes)
    # The screen already says why no change helps.
    if not count and answer.cannot_fit:
        return
    counted = plural(count, "change") if count else "nothing to change"
    device = f" for {answer.device}" if count and answer.device else ""
    yield ""
    yield ScreenLine((config, HEADING), f": {counted}{device}", hang=2)
    for change in answer.changes:
        before = "(new)" if change.added else yaml_value(change.before)
        after, reason = (yaml_value(change.after), GOOD), (f"  {change.reason}", DIM)
        yield ScreenLine(f"  {change.key}: {before} → ", after, reason, hang=4)


# --- measurements -------------------------------------------------------------------------------


def _measured(answer: TuneAnswer) -> Iterator[str]:
    """The table of tried batch sizes with the one that was found, and the table that shows how much
    each setting gains."""
    device = answer.device or "this device"
    if answer.trials:
        rows = [
            (
                str(trial.batch),
                result(trial),
                gib(trial.peak_bytes),
                speed(trial.samples_per_second, trial.spread_percent),
            )
            for trial in answer.trials
        ]
        best = marked(NO, "no batch size fits in the memory", indent=2)
        if answer.batch_size is not None:
            condition = f" within {gib(answer.limit_bytes)}" if answer.limit_bytes else ""
            best = ScreenLine("  ", (f"Batch size: {answer.batch_size}", GOOD), condition, hang=4)
        trials = table(("batch", "result", "peak", "samples/s"), rows, left=())
        yield from section(f"Batch sizes on {device}", (*trials, "", best))
    if answer.benchmark:
        titles = ("", "batch", "s / 1000", "s / epoch", "peak", "samples/s", "speed-up", "")
        lines = table(titles, map(comparison_cells, answer.benchmark))
        sentences = [*losses(answer.benchmark)]
        if answer.cause:
            sentences.append(answer.cause)
        lines += [ScreenLine(f"  {sentence}", hang=2) for sentence in sentences]
        yield from section(f"Measured on {device}", lines)


def result(trial: Trial) -> str:
    """The result of a trial in a few words, with the first line of an error."""
    if trial.status != "error":
        return RESULTS[trial.status]
    # torch's messages may be pages long.
    first_line = next(iter((trial.detail or "").splitlines()), "")
    return f"failed: {first_line}"[:ERROR_LENGTH]


def gib(size_bytes: int | None) -> str:
    """A size as text in GiB; "" if it is None."""
    return "" if size_bytes is None else f"{size_bytes / GIB:.2f} GiB"


def speed(samples_per_second: float | None, spread_percent: float | None) -> str:
    """A measured rate as text, with half of its spread in percent after `±`; "" if the rate is
    None.

    >>> speed(12.5, 3.0), speed(211_400.0, None)
    ('12.5 ± 2 %', '211,400')
    """
    if samples_per_second is None:
        return ""
    # Four digits are precise enough for a measured rate; from 1000 on, show whole numbers.
    rounded = float(f"{samples_per_second:.4g}")
    figure = f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
    return figure if spread_percent is None else f"{figure} ± {spread_percent / 2:.0f} %"


def comparison_cells(row: Row) -> tuple[str, ...]:
    """The cells of a row in the comparison. If the row did not run, its last cell gives the reason,
    and all between are empty. The time of an epoch needs the size of the data set."""
    # Write `+ AMP`, as in the guide's table.
    name = row.name.replace("+", "+ ")
    if row.status != "ok":
        # The reason of a skipped row is our own sentence.
        failure = row.detail if row.status == "skipped" else result(row)
        return name, "", "", "", "", "", "", failure or ""
    rate = row.samples_per_second
    return (
        name,
        str(row.batch),
        seconds(1000 / rate) if rate else "",
        seconds(row.seconds_per_epoch),
        gib(row.peak_bytes),
        speed(rate, row.spread_percent),
        "" if row.speed_up is None else f"{row.speed_up:.2f} x",
        note(row),
    )


def seconds(amount: float | None) -> str:
    """Seconds as text with three digits, without decimals from 1000 on; "" if they are None.

    >>> seconds(12.345), seconds(1234.5), seconds(None)
    ('12.3', '1,234', '')
    """
    if amount is None:
        return ""
    return f"{amount:.3g}" if amount < 1000 else f"{amount:,.0f}"


def note(row: Row) -> str:
    """The last cell of a row: whether its setting was kept, or why it was left out."""
    # Only rows that add a setting are kept or left out; the base row and the row with all settings
    # may have a remark.
    if not row.name.startswith("+"):
        return row.detail or ""
    outcome = "kept" if row.kept else f"{row.detail or 'no gain'}: left out"
    settings = {"+AMP": row.amp, "+workers": f"{row.workers} workers"}
    return f"{settings[row.name]}, {outcome}" if row.name in settings else outcome


def losses(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence with the loss with and without mixed precision, for each row where it was
    measured.

    >>> [*losses([Row(batch=8, loss=2.3012, loss_without_amp=2.3, loss_steps=12)])]
    ['Loss after 12 steps from the same seed: 2.301 with mixed precision, 2.3 without']
    """
    for row in rows:
        if row.loss_steps:
            mixed, plain = loss_text(row.loss), loss_text(row.loss_without_amp)
            yield (
                f"Loss after {row.loss_steps} steps from the same seed: {mixed} with mixed"
                f" precision, {plain} without"
            )


def loss_text(loss: float | None) -> str:
    """A loss with four digits. JSON has no NaN, so the answer has None for it."""
    return "NaN" if loss is None else f"{loss:.4g}"
