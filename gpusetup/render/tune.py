"""tune's screens: the diff with its reasons, the trials, the comparison table, the progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpusetup.model.units import GIB
from gpusetup.render.language import plain
from gpusetup.render.text import heading, indented
from gpusetup.tune.answer import TuneAnswer, TuneChange, TuneRow, TuneTrial

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
NAMES = {"+AMP": "+ AMP", "+batch": "+ batch", "+workers": "+ workers", "+compile": "+ compile"}


def tune_screen(answer: TuneAnswer, *, config: str | None = None) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = []
    if answer.trials:
        parts += [heading(f"Batch sizes on {plain(answer.device or 'this device')}")]
        parts += [trials_table(answer), Text(f"  {_best(answer)}")]
    if answer.leak:
        parts.append(Text(f"  {plain(answer.leak)}", style="yellow"))
    if answer.benchmark:
        parts += [heading(f"Measured on {plain(answer.device or 'this device')}")]
        parts += [comparison(answer.benchmark)]
        parts += [indented(word) for word in (answer.marks, answer.cause) if word]
    if config is not None:
        parts += _config(answer, config)
    else:
        parts += [indented(word) for word in answer.recommendations]
    if answer.interrupted:
        done = answer.batch_size is not None or answer.benchmark or answer.changes
        best = "this is the best so far" if done else "no trial had ended, so nothing is known"
        parts.append(Text(f"\nInterrupted: {best}", style="yellow"))
    return Group(*parts)


def _config(answer: TuneAnswer, config: str) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if answer.cannot_fit:
        parts += [Text(), indented(f"✗ {answer.cannot_fit}", by=0, style="red")]
    if answer.changes:
        parts += [heading(f"Changes of {plain(config)}"), *map(diff_line, answer.diff.splitlines())]
        parts += [heading("Why")]
        parts += [part for one in answer.changes for part in why(one)]
    else:
        parts.append(Text(f"\n{plain(config)}: nothing to change"))
    if answer.recommendations:
        parts += [heading("In words only")]
        parts += [indented(f"· {word}") for word in answer.recommendations]
    if said := _written(answer, config):
        parts.append(Text(f"\n{said}"))
    return parts


def _written(answer: TuneAnswer, config: str) -> str:
    if answer.written is not None:
        back = "; `--undo` puts back what stood there" if answer.written == config else ""
        return f"Written to {plain(answer.written)}{back}"
    return "Nothing is written; `--in-place` or `-o FILE` writes it" if answer.changes else ""


def diff_line(line: str) -> Text:
    style = DIFF_STYLES.get(line[:1], "")
    return Text(f"  {plain(line)}", style=style, no_wrap=True, overflow="ignore")


def why(change: TuneChange) -> Iterator[RenderableType]:
    before = "(new)" if change.added else shown(change.before)
    yield indented(f"{change.key}: {before} → {shown(change.after)}")
    yield indented(f"{change.reason} [{change.source}]", by=4, style="dim")


def shown(value: object) -> str:
    if value is None:
        return "empty"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


# --- measured -----------------------------------------------------------------------------------


def trials_table(answer: TuneAnswer) -> Padding:
    table = Table(box=None, pad_edge=False)
    for name in ("batch", "", "peak", "samples/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in answer.trials:
        table.add_row(*trial_cells(trial))
    return Padding(table, (0, 0, 0, 2))


def trial_cells(trial: TuneTrial) -> tuple[str, str, str, str]:
    """
    >>> trial_cells(TuneTrial(batch=8, status="ok", peak_bytes=1 << 30, samples_per_second=12.5))
    ('8', 'ran', '1.00 GiB', '12.5 ± 0 %')
    """
    words = {"ok": "ran", "oom": "out of memory", "error": "failed"}
    return (
        str(trial.batch),
        words[trial.status],
        gib(trial.peak_bytes),
        speed(trial.samples_per_second, trial.spread_percent),
    )


def gib(size: int | None) -> str:
    return f"{size / GIB:.2f} GiB" if size is not None else ""


def speed(rate: float | None, spread: float | None) -> str:
    return "" if rate is None else f"{rate:.4g} ± {(spread or 0) / 2:.0f} %"


def _best(answer: TuneAnswer) -> str:
    if answer.batch_size is None:
        return "No size ran within the memory"
    limit = f" within {gib(answer.limit_bytes)}" if answer.limit_bytes else ""
    after = f"; {plain(answer.stopped)}" if answer.stopped else ""
    return f"Batch size: {answer.batch_size}{limit}{after}"


def comparison(rows: tuple[TuneRow, ...]) -> Padding:
    """The table of the acceleration guide, with measured figures."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    epochs = any(row.seconds_per_epoch for row in rows)
    names = (
        "batch",
        "s / 1000",
        *(["s / epoch"] if epochs else []),
        "peak",
        "samples/s",
        "speed-up",
    )
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(*comparison_cells(row, epochs))
    return Padding(table, (0, 0, 0, 2))


def comparison_cells(row: TuneRow, epochs: bool) -> tuple[str, ...]:
    name = NAMES.get(row.name, row.name)
    empty = ("",) * (6 if epochs else 5)
    if row.status != "ok":
        said = {"oom": "out of memory", "error": "failed: "}.get(row.status, "")
        detail = row.detail if row.status != "oom" else ""
        return (name, *empty, plain(f"{said}{detail or ''}").splitlines()[0][:70])
    return (
        name,
        str(row.batch),
        f"{row.seconds_per_1000:.3g}" if row.seconds_per_1000 is not None else "",
        *([f"{row.seconds_per_epoch:.4g}" if row.seconds_per_epoch else ""] if epochs else []),
        gib(row.peak_bytes),
        speed(row.samples_per_second, row.spread_percent),
        f"{row.speed_up:.2f} x" if row.speed_up is not None else "",
        note(row),
    )


def note(row: TuneRow) -> str:
    workers = "" if row.workers is None else f"{row.workers} workers"
    said = {"+AMP": row.amp or "", "+workers": workers}.get(row.name, "")
    if row.name in NAMES:
        left_out = plain(row.detail) if row.detail else "no gain"
        kept = "kept" if row.kept else f"{left_out}: left out"
        return ", ".join(filter(None, (said, kept, losses(row))))
    return said or plain(row.detail or "")


def losses(row: TuneRow) -> str:
    """What mixed precision does to the loss.

    >>> losses(TuneRow(name="+AMP", status="ok", batch=8, amp="bf16", workers=None, compile=False,
    ...     loss=2.3021, loss_fp32=2.301, loss_steps=12))
    'loss after 12 steps 2.3021, in float32 2.301'
    """
    if row.loss is None or row.loss_fp32 is None:
        return ""
    return f"loss after {row.loss_steps} steps {row.loss:.5g}, in float32 {row.loss_fp32:.5g}"


@contextmanager
def measuring(say: Callable[[str], None], expected: int) -> Iterator[Callable[[str], None]]:
    """A callback that is told what is measured next: a bar with the time left, or plain lines."""
    if not sys.stderr.isatty():
        yield lambda what: say(plain(f"measuring {what}"))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("measuring", total=expected)
        done = 0

        def step(what: str) -> None:
            nonlocal done
            total = max(expected, done + 1)
            bars.update(
                task, completed=done, total=total, description=escape(f"measuring {plain(what)}")
            )
            done += 1

        yield step
