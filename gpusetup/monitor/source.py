"""What a source of samples is, and how one ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpusetup.monitor.values import GpuSample, Sample

PATIENCE_SECONDS = 10.0
"""How long a sample may be late before its source is given up, where nobody says."""


class SourceEnded(Exception):
    """A source gives no more samples; the text says why.

    `silent`: the driver did not answer in time; `blocked`: this or something else is in the way.
    """

    def __init__(
        self, source: str, problem: str, *, blocked: bool = False, silent: bool = False
    ) -> None:
        super().__init__(f"{source}: {problem}")
        self.blocked = blocked or silent
        self.silent = silent


class Source(Protocol):
    """GPUs that can be watched. `next` raises TimeoutError, and SourceEnded for good."""

    name: str
    gpus: tuple[GpuSample, ...]

    def choose(self, places: Sequence[int]) -> None: ...

    def next(self, timeout: float) -> Sample: ...

    def close(self) -> None: ...
