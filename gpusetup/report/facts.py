"""What a reader of a text gives: facts, each with its source and how far it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing
from gpusetup.model.machine import DeviceNode, Disk, Event, Gpu, GpuLink, Package, PciDevice

GUESS, HINT, USUAL, SURE = range(4)
"""How far a source is trusted about a field: a path's name, a remark, a program's word, and the
word of the program that is asked for exactly that."""


class Claim(NamedTuple):
    """A field of the snapshot, `torch.version`, and what one place of the text says of it."""

    subject: str
    value: str | bool | int
    source: str
    trust: int = USUAL


class Gpus(NamedTuple):
    """One list of GPUs."""

    gpus: tuple[Gpu, ...]
    source: str
    trust: int = USUAL


Fact = Claim | Gpus | GpuLink | Package | PciDevice | DeviceNode | Disk | Event | Failing
Facts = Iterator[Fact]
Reader = Callable[[Text], Facts]
