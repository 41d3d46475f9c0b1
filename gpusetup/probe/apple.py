"""The chip of a Mac, and whether this Python runs natively on it or is translated by Rosetta.

`sysctl` answers at once and needs no rights, while `system_profiler` would take seconds.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.apple import metal_bytes
from gpusetup.accelerators.makers import APPLE
from gpusetup.model.machine import Gpu, MakerStack, Reading, Snapshot
from gpusetup.system.system import System

SYSCTL = ("sysctl", "machdep.cpu.brand_string", "hw.memsize", "hw.optional.arm64")
"""A Mac with an Intel chip lacks some of these keys. sysctl then exits with 1, but still prints the
others."""
SYSCTL_SECONDS = 5.0


def read_apple(system: System) -> Snapshot:
    """The Apple chip and how much of its memory torch can use; an empty snapshot on an Intel
    Mac."""
    output = system.run(SYSCTL, SYSCTL_SECONDS)
    values = dict(re.findall(r"^([\w.]{1,60}): (.{1,120})$", output.stdout, re.MULTILINE))
    if not values:
        problem = output.problem or f"exit {output.exit}"
        reading = Reading(subject="makers.gpus", source="sysctl", problem=problem)
        return Snapshot(readings=(reading,))
    brand = values.get("machdep.cpu.brand_string", "")
    reading = Reading(subject="makers.gpus", source="sysctl", value=brand or "unknown chip")
    # A translated program (Rosetta) sees the chip's name as `VirtualApple`, but the CPU's own flag
    # is right.
    has_apple_chip = brand.startswith("Apple") or values.get("hw.optional.arm64") == "1"
    if not has_apple_chip:
        return Snapshot(readings=(reading,))
    memory = values.get("hw.memsize", "")
    machine = str(system.facts().get("machine") or "")
    name = brand if brand.startswith("Apple") else "Apple M-series"
    gpu = Gpu(
        name=name,
        maker=APPLE.id,
        memory_total_bytes=metal_bytes(int(memory)) if memory.isdecimal() else None,
    )
    stack = MakerStack(maker=APPLE.id, gpus=(gpu,), translated=machine == "x86_64")
    return Snapshot(makers=stack, readings=(reading,))
