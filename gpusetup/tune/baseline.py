"""What is measured: the request, and training as the config has it. Pure."""

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
"""The size that is benchmarked where no config names one."""


class MeasureRequest(Frozen):
    """What is to be measured."""

    benchmark: bool
    job: BenchJob
    finds_fastest: bool = False
    """Whether the fastest size is looked for, in place of the largest."""
    largest: int | None = None
    """No size above this one is tried."""
    grows: bool = False
    """Whether the config may get a larger effective batch."""
    workers: int = 0
    """How many loader workers the table tries: what the rules would write for this machine."""


class Setup(Frozen):
    """One way to train: what a row of the table sets."""

    batch: int = DEFAULT_BATCH
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    workers: int | None = None
    """Of the loader; None: as the code's own DataLoader has it."""

    def in_words(self) -> str:
        """
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
    """What is measured first: training as the config has it."""

    setup: Setup = Setup()
    effective: int | None = None
    """The batch that a step of the optimizer sees; None if no config says."""


DEFAULT_BASELINE = Baseline()


def baseline_of(config: Config) -> Baseline:
    """The first row of the table, as the config has it."""
    setup, steps = DEFAULT_BASELINE.setup, 1
    for setting, key in known_settings(config):
        number, switch = whole_number(setting), switch_value(setting)
        if key.role == "batch" and number and number > 0:
            setup = replace(setup, batch=number)
        elif key.role == "accumulation" and number and number > 0:
            steps = number
        elif key.role == "workers" and number is not None and number >= 0:
            setup = replace(setup, workers=number)
        elif key.role == "compile" and switch is not None:
            setup = replace(setup, compile=switch)
        elif key.role in ("amp", "bf16", "fp16") and switch:
            setup = replace(setup, amp="fp16" if key.role == "fp16" else "bf16")
    return Baseline(setup=setup, effective=setup.batch * steps)


def search_goal(
    request: MeasureRequest, start: int, limit_bytes: int, effective: int | None = None
) -> Goal:
    """What a search for a batch looks for; with `effective` no size above the effective batch."""
    bounds = [bound for bound in (request.largest, effective) if bound]
    return Goal(limit_bytes=limit_bytes, start=start, largest=min(bounds, default=None))
