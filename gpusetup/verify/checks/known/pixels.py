"""Images of small whole numbers, and where their pixels lie in memory."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Iterator, List, NamedTuple, Tuple

from .answers import dice

Shape = Tuple[int, int, int, int]
"""Images, channels, rows and columns."""


def numbers_of(shape: Shape, salt: str) -> List[int]:
    """Small whole numbers, the last one never zero."""
    chance = dice(f"image {shape} {salt}")
    numbers: List[int] = []
    for _ in range(prod(shape)):
        # As many zeros as other numbers keep the sums small.
        number = chance.choice((-1, 0, 0, 1, 2))
        numbers.append(number)
    # A kernel that leaves out the last element gives other sums.
    numbers[-1] = 2
    return numbers


class Pixel(NamedTuple):
    """The index of an element of images, or of a weight: there an image is a filter."""

    image: int
    channel: int
    row: int
    column: int

    def position_in(self, shape: Shape) -> int:
        """Where this element lies in memory, counted in elements."""
        _, channels, height, width = shape
        planes_before = self.image * channels + self.channel
        lines_before = planes_before * height + self.row
        return lines_before * width + self.column


def pixels_of(shape: Shape) -> Iterator[Pixel]:
    """Every element, in the order of memory."""
    for index in product(*map(range, shape)):
        yield Pixel(*index)
