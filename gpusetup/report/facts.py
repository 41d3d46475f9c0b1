"""What a reader of a text produces: facts, each with its source and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing
from gpusetup.model.machine import DeviceNode, Disk, Event, Gpu, GpuLink, Package, PciDevice

# How far a claim is trusted, from the least to the most.
GUESS = 0
"""A path's name, or a number in a sentence."""
HINT = 1
"""A remark of a person or of a program."""
USUAL = 2
"""What a program prints about something that is not its subject."""
SURE = 3
"""The output of the program that is asked for exactly this."""


class Claim(NamedTuple):
    """The value of a snapshot field according to one line of the text."""

    subject: str
    """A field of `report/fields.py`."""
    value: str | bool | int
    source: str
    trust: int = USUAL


class Gpus(NamedTuple):
    """A list of GPUs from one source."""

    gpus: tuple[Gpu, ...]
    source: str
    trust: int = USUAL


Fact = Claim | Gpus | GpuLink | Package | PciDevice | DeviceNode | Disk | Event | Failing
Facts = Iterator[Fact]
Reader = Callable[[Text], Facts]
