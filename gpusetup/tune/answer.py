"""The records of the JSON document that `gpusetup tune --json` prints."""

from __future__ import annotations

from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.tune.bench import Trial

Plain = int | float | bool | str | None


class TuneChange(Frozen, rename={"before": "from", "after": "to"}):  # type: ignore[call-arg]
    """One change of a setting. `from` is null if the setting was empty or is newly added."""

    key: str
    before: Plain
    after: Plain
    reason: str
    source: str
    line: int
    """The line of the setting; for an added setting, the line below which it is added."""
    added: bool = False


RowName = Literal["base", "+AMP", "+batch", "+workers", "+compile"]


class Row(Trial):
    """One row of the `--benchmark` table: a combination of settings and its measurement."""

    name: RowName = "base"
    status: Literal["ok", "oom", "error", "skipped"] = "skipped"  # type: ignore[assignment]
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    speed_up: float | None = None
    kept: bool = False
    runs: int = 1
    """How often this combination of settings ran. It alternates with the combination that it is
    compared with, and the speed is the median."""
    seconds_per_epoch: float | None = None
    """The time for one epoch; null if the data set's number of samples is unknown."""
    loss_steps: int | None = None
    """In the row `+AMP`, the number of training steps before `loss` and `loss_without_amp` were
    read."""
    loss_without_amp: float | None = None


class TuneAnswer(Frozen):
    schema: Literal["gpusetup.tune/1"] = "gpusetup.tune/1"
    changes: tuple[TuneChange, ...] = ()
    cannot_fit: str | None = None
    """Why the config does not fit on this card, according to plan; null if it may fit."""
    recommendations: tuple[str, ...] = ()
    """Advice that tune does not write into the config, because it would change the experiment or
    has no key there."""
    trials: tuple[Trial, ...] = ()
    batch_size: int | None = None
    """The largest batch size that ran."""
    limit_bytes: int | None = None
    """The memory that the search was allowed to use."""
    benchmark: tuple[Row, ...] = ()
    cause: str | None = None
    """Why no change made the training faster, or what to measure next."""
    device: str | None = None
    """The device that was measured, or the GPU that the config is for."""
    written: str | None = None
    previous: str | None = None
    """The copy of the file that `written` replaced; null if there was no such file."""
    interrupted: bool = False
