"""What a reader of a text produces: facts with their sources, some with how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing
from gpusetup.model.machine import DeviceNode, Event, Gpu, GpuLink, Package, PciDevice

CHARACTERS_READ = 400_000
"""Only this many characters of a text are read. A log of several megabytes would take minutes."""
SHOWN_CHARACTERS = 200
"""At most this many characters of a line are quoted as evidence."""
# The levels of trust in a claim, from the lowest to the highest.
GUESS = 0
"""Trust in a value taken from the name of a path or from a number in a sentence."""
HINT = 1
"""Trust in a value that a person or a program mentions in passing."""
USUAL = 2
"""Trust in a value that a program prints about something other than its own subject."""
SURE = 3
"""Trust in a value printed by the program whose purpose is to report it."""


class Claim(NamedTuple):
    """The value that a snapshot field has according to one place in the text."""

    subject: str
    """A part of the snapshot and its field: `torch.version`."""
    value: str | bool | int
    source: str
    trust: int = USUAL


class Gpus(NamedTuple):
    """A list of GPUs from one source."""

    gpus: tuple[Gpu, ...]
    source: str
    trust: int = USUAL


Fact = Claim | Gpus | GpuLink | Package | PciDevice | DeviceNode | Event | Failing
Facts = Iterator[Fact]
Reader = Callable[[Text], Facts]
