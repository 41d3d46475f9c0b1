"""A source of samples that calls a function once per interval, for example to read files, and needs
no permanent child process."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.sources import Machine


class Polled(Machine):
    """Returns one sample per interval, with the GPUs as a function describes them at that
    moment."""

    def __init__(self, ask: Callable[[], tuple[GpuSample, ...]], interval: float) -> None:
        super().__init__(interval)
        self._ask = ask

    def read(self, timeout: float) -> Sample:
        moment = super().read(timeout)
        before = time.monotonic()
        gpus = self._ask()
        # Take the time only now, because a slow tool's values are from the moment when it returns.
        waited = time.monotonic() - before
        return replace(moment, gpus=gpus, seconds=round(moment.seconds + waited, 3))
