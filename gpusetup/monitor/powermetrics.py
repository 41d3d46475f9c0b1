"""Samples of Apple's GPU from `powermetrics`, which only root may run. Reads the machine.

gpusetup never asks for a password: without root, it only watches the machine's CPU and memory. The
output format is known from Apple's manual page powermetrics(1), and from outputs in public issues
of asitop.
"""

from __future__ import annotations

import os
import re

from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.polled import Polled
from gpusetup.monitor.sources import SourceEnded, SourceName
from gpusetup.system.system import System

PROGRAM = "powermetrics"
SAMPLE_MILLISECONDS = 500
QUESTION = (PROGRAM, "--samplers", "gpu_power", "-n", "1", "-i", str(SAMPLE_MILLISECONDS))
ANSWER_SECONDS = 10.0
ACTIVE = re.compile(r"GPU (?:HW )?active residency: +(\d{1,3}(?:\.\d{1,4})?)%")
POWER = re.compile(r"GPU Power: +(\d{1,7}) mW")
CLOCK = re.compile(r"GPU (?:HW )?active frequency: +(\d{1,5}) MHz")
ROOT = 0


class PowerMetrics(Polled):
    """Samples from `powermetrics`, which is started anew for each sample."""

    name: SourceName = "powermetrics"


def open_powermetrics(interval: float, system: System | None = None) -> PowerMetrics:
    """The powermetrics source. Raises SourceEnded if the program is missing, fails or shows no GPU,
    or if we are not root."""
    system = system or System()
    if system.which(PROGRAM) is None:
        raise SourceEnded(f"{PROGRAM}: not found")
    if is_root() is False:
        raise SourceEnded(f"{PROGRAM}: needs root (`sudo gpusetup monitor` shows the GPU too)")
    output = system.run(QUESTION, ANSWER_SECONDS)
    if not gpus_of(output.stdout):
        reason = output.problem or output.stderr.strip()[:200] or "no GPU in its answer"
        raise SourceEnded(f"{PROGRAM}: {reason}")
    return PowerMetrics(lambda: gpus_of(system.run(QUESTION, ANSWER_SECONDS).stdout), interval)


def is_root() -> bool | None:
    """Whether this process runs as root; None if the system has no root."""
    effective_user = getattr(os, "geteuid", None)
    return None if effective_user is None else effective_user() == ROOT


def gpus_of(text: str) -> tuple[GpuSample, ...]:
    """The GPU in an output of powermetrics; empty if the output shows none.

    >>> gpu = gpus_of("GPU HW active residency:  42.50% (444 MHz: 42%)\\nGPU Power: 1250 mW")[0]
    >>> gpu.utilization_percent, gpu.power_watts
    (42.5, 1.25)
    """
    active, power, clock = ACTIVE.search(text), POWER.search(text), CLOCK.search(text)
    if active is None:
        return ()
    return (
        GpuSample(
            index=0,
            name="Apple GPU",
            utilization_percent=float(active[1]),
            power_watts=int(power[1]) / 1000 if power else None,
            clock_sm_mhz=int(clock[1]) if clock else None,
            memory_is_unified=True,
        ),
    )
