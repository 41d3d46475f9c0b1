"""What to measure: the user's request, and the config's settings as the first measurement. Pure
functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gpusetup.configs.settings import switch_value, whole_number
from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.bench import BenchJob
from gpusetup.tune.case import known_settings
from gpusetup.tune.search import Goal

if TYPE_CHECKING:
    from gpusetup.configs.config import Config

DEFAULT_BATCH = 8
"""The batch size to benchmark if no config gives one."""


class MeasureRequest(Frozen):
    """What the user asked `gpusetup tune` to measure."""

    benchmark: bool
    job: BenchJob
    finds_fastest: bool = False
    """Whether to search for the fastest batch size instead of the largest."""
    largest: int | None = None
    """The largest batch size to try; None means no limit."""
    workers: int = 0
    """The number of loader workers that the table tries: the number that the rules would write into
    the config for this machine."""


class Setup(Frozen):
    """One combination of settings to train with, as in a row of the table."""

    batch: int = DEFAULT_BATCH
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    workers: int | None = None
    """The number of loader workers; None keeps the number of the code's DataLoader."""

    def in_words(self) -> str:
        """The settings as words, separated by commas.

        >>> Setup(batch=8, amp="bf16", compile=True, workers=2).in_words()
        'batch 8, bf16, 2 workers, compiled'
        """
        words = [f"batch {self.batch}"]
        if self.amp:
            words.append(self.amp)
        if self.workers is not None:
            words.append(f"{self.workers} workers")
        if self.compile:
            words.append("compiled")
        return ", ".join(words)


class Baseline(Frozen):
    """The config's own settings, which are measured first."""

    setup: Setup = Setup()
    effective: int | None = None
    """The number of samples in one optimizer step; None without a config."""


DEFAULT_BASELINE = Baseline()


def baseline_of(config: Config) -> Baseline:
    """The settings of the first measurement, read from the config."""
    setup = DEFAULT_BASELINE.setup
    steps = 1
    for setting, key in known_settings(config):
        role = key.role
        number = whole_number(setting)
        switch = switch_value(setting)
        is_count = number is not None and number > 0
        if role == "batch" and number and is_count:
            setup = replace(setup, batch=number)
        elif role == "accumulation" and number and is_count:
            steps = number
        # 0 workers are allowed: the process then loads the data itself.
        elif role == "workers" and number is not None and number >= 0:
            setup = replace(setup, workers=number)
        elif role == "compile" and switch is not None:
            setup = replace(setup, compile=switch)
        elif role == "fp16" and switch:
            setup = replace(setup, amp="fp16")
        elif role in ("amp", "bf16") and switch:
            setup = replace(setup, amp="bf16")
    return Baseline(setup=setup, effective=setup.batch * steps)


def search_goal(
    request: MeasureRequest, start: int, limit_bytes: int, effective: int | None = None
) -> Goal:
    """The goal of a batch search; with `effective`, it tries no size above the effective batch."""
    bounds = (request.largest, effective)
    # None means that only memory limits the batch.
    known_bounds = [bound for bound in bounds if bound]
    largest = min(known_bounds, default=None)
    return Goal(limit_bytes=limit_bytes, start=start, largest=largest)
