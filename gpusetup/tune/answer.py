"""What `gpusetup tune` answers under `--json`, and how it is made from what was decided."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from gpusetup.configs.settings import NOTHING, name_of, truth, unquoted
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_word

if TYPE_CHECKING:
    from gpusetup.configs.config import Config
    from gpusetup.tune.benchmark import Row
    from gpusetup.tune.propose import Proposal
    from gpusetup.tune.trial import Trial

Plain = int | float | bool | str | None


class TuneChange(Frozen, rename={"before": "from", "after": "to"}):  # type: ignore[call-arg]
    """One setting of the config; `from` is null where it was empty, or is added."""

    key: str
    before: Plain
    after: Plain
    reason: str
    source: str
    line: int
    """Of the setting, or of the one that it is added below."""
    added: bool = False


class TuneTrial(Frozen):
    """One batch size that was tried in a child of its own."""

    batch: int
    status: Literal["ok", "oom", "error"]
    peak_bytes: int | None = None
    """The most that counted against the limit in any step: on a GPU what torch had allocated, on
    the CPU what was resident, or under a limit of addresses these with the holes of the heap."""
    samples_per_second: float | None = None
    spread_percent: float | None = None
    """How far the middle half of the steps lies apart; null where one was timed."""
    utilization_percent: float | None = None
    reserved_bytes: int | None = None
    """What a GPU's allocator held at most, the fragments that serve nothing included."""
    detail: str | None = None


class TuneRow(Frozen):
    """One line of the comparison table of `--benchmark`."""

    name: str
    status: Literal["ok", "oom", "error", "skipped"]
    batch: int
    amp: str | None
    workers: int | None
    compile: bool
    seconds_per_1000: float | None = None
    peak_bytes: int | None = None
    samples_per_second: float | None = None
    spread_percent: float | None = None
    speed_up: float | None = None
    kept: bool = False
    loss: float | None = None
    loss_fp32: float | None = None
    """Of +AMP: the loss after `loss_steps`, and after as many steps in float32."""
    loss_steps: int = 0
    seconds_per_epoch: float | None = None
    """Where the code returns a data set that has a length."""
    detail: str | None = None


class TuneAnswer(Frozen):
    schema: Literal["gpusetup.tune/1"] = "gpusetup.tune/1"
    changes: tuple[TuneChange, ...] = ()
    cannot_fit: str | None = None
    """Why not even one sample fits on this card, with plan's table; null where one may."""
    recommendations: tuple[str, ...] = ()
    """What would change the experiment, or cannot be written: in words."""
    trials: tuple[TuneTrial, ...] = ()
    batch_size: int | None = None
    """The largest (or, with `--objective speed`, the fastest) size that ran."""
    limit_bytes: int | None = None
    """The memory that was allowed to it."""
    stopped: str | None = None
    """What the next larger size that was tried said; null where none was."""
    leak: str | None = None
    """What is said of a training whose memory grows with every step."""
    benchmark: tuple[TuneRow, ...] = ()
    cause: str | None = None
    """Why nothing made it faster, where nothing did."""
    marks: str | None = None
    """How full and how busy the GPU is, beside the acceleration guide's marks."""
    workers: int | None = None
    """The best number of loader workers, where that was measured."""
    device: str | None = None
    """What was measured, or the GPU that the config is for."""
    diff: str = ""
    preset: str | None = None
    """The text of `--preset`."""
    flags: str | None = None
    """The line of `--flags`."""
    written: str | None = None
    interrupted: bool = False


def changes_of(proposal: Proposal) -> tuple[TuneChange, ...]:
    return tuple(
        TuneChange(
            key=one.key,
            before=one.before,
            after=one.after,
            reason=one.reason,
            source=one.source,
            line=one.line,
            added=one.edit.start == one.edit.end,
        )
        for one in proposal.changes
    )


def trials_of(trials: Sequence[Trial]) -> tuple[TuneTrial, ...]:
    return tuple(
        TuneTrial(
            batch=one.batch,
            status=one.status,
            peak_bytes=one.peak_bytes,
            samples_per_second=one.samples_per_second,
            spread_percent=one.spread_percent,
            utilization_percent=one.utilization_percent,
            reserved_bytes=one.reserved_bytes,
            detail=one.detail,
        )
        for one in trials
    )


def rows_of(rows: Sequence[Row]) -> tuple[TuneRow, ...]:
    """The rows, each beside the first."""
    base = rows[0].samples_per_second if rows else None
    return tuple(
        TuneRow(
            name=row.name,
            status=row.status,
            batch=row.setup.batch,
            amp=row.setup.amp,
            workers=row.setup.workers,
            compile=row.setup.compile,
            seconds_per_1000=1000 / speed if speed else None,
            peak_bytes=row.peak_bytes,
            samples_per_second=speed,
            spread_percent=row.spread_percent,
            speed_up=speed / base if speed and base else None,
            kept=row.kept,
            loss=row.loss,
            loss_fp32=row.loss_fp32,
            loss_steps=row.loss_steps,
            seconds_per_epoch=row.samples / speed if speed and row.samples else None,
            detail=row.detail,
        )
        for row in rows
        for speed in (row.samples_per_second,)
    )


def flags_of(config: Config) -> str:
    """The settings as flags, by their own names; a switch that is off has none.

    >>> from gpusetup.configs.config import read_config
    >>> flags_of(read_config(b"batch_size: 8\\namp: true\\ncompile: no\\nrun: 'my run'", "a.yaml"))
    "--batch_size 8 --amp --run 'my run'"
    """
    words: list[str] = []
    for one in config.settings:
        listed = any(isinstance(part, int) for part in one.path)
        if one.kind == "scalar" and not listed and (on := truth(one)) is not False:
            value = [] if on else [own_word(unquoted(one.text))]
            words += [f"--{name_of(one.path)}", *value] if one.text not in NOTHING else []
    return " ".join(words)


def difference(name: str, before: str, after: str) -> str:
    """The unified diff of the file's text; "" where nothing changes."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, f"{name} (tuned)", lineterm="", n=1
    )
    return "".join(f"{line}\n" for line in lines)
