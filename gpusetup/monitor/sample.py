"""Where samples come from: NVML in a child of ours, or `nvidia-smi` where NVML is missing.

Edge. A child that hangs, crashes or was never there is a `SourceEnded` with its reason; we do not
hang with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusetup.codec import from_json
from gpusetup.monitor.source import FIRST_ANSWER_SECONDS, Source, SourceEnded
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.run import Lines
from gpusetup.value import Value

if TYPE_CHECKING:
    from gpusetup.monitor.smi import Smi

FORBIDDEN = (4, 17)
"""NVML: no permission, blocked by the operating system."""


class Hello(Value):
    init: int | None
    message: str = ""
    driver_version: str | None = None
    gpus: tuple[GpuSample, ...] = ()


class Nvml:
    """The child `inside/watch_nvml.py`, which prints one line a sample."""

    name = "nvml"

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.gpus: tuple[GpuSample, ...] = ()

    def open(self) -> None:
        """Wait for what there is. Raises SourceEnded where NVML does not answer."""
        said = self._line(FIRST_ANSWER_SECONDS, final=True)
        hello = from_json(said, Hello, what="the answer of watch_nvml")
        if hello.init != 0:
            raise SourceEnded("NVML", hello.message, blocked=hello.init in FORBIDDEN)
        if not hello.gpus:
            raise SourceEnded("NVML", "lists no GPU")
        self.gpus = hello.gpus

    def choose(self, places: Sequence[int]) -> None:
        self._lines.tell(json.dumps(list(places)))

    def next(self, timeout: float) -> Sample:
        return from_json(self._line(timeout), Sample, what="a sample of watch_nvml")

    def close(self) -> None:
        self._lines.end()

    def _line(self, timeout: float, *, final: bool = False) -> str:
        said: list[str] = []
        while True:
            try:
                line = self._lines.next(timeout)
            except TimeoutError as problem:
                if final:
                    raise SourceEnded("NVML", str(problem), blocked=True) from problem
                raise
            except EOFError as problem:
                raise SourceEnded("NVML", ": ".join((str(problem), *said[-1:]))) from problem
            if line.startswith("{"):
                return line
            said.append(line)


def open_source(nvml: Lines, interval: float) -> tuple[Source | None, tuple[SourceEnded, ...]]:
    """The first source that answers, and why those before it did not.

    `nvml` is the child that `start_nvml` started.
    """
    problems: list[SourceEnded] = []
    for make in (lambda: Nvml(nvml), lambda: _smi(interval)):
        try:
            return _opened(make()), tuple(problems)
        except SourceEnded as problem:
            problems.append(problem)
    return None, tuple(problems)


def _opened(source: Nvml | Smi) -> Source:
    try:
        source.open()
    except BaseException:
        source.close()
        raise
    return source


def _smi(interval: float) -> Smi:
    from gpusetup.monitor.smi import found

    return found(interval)
