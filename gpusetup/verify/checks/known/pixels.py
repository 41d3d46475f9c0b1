"""Images of small whole numbers, and the positions of their pixels in memory."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Iterator, List, NamedTuple, Tuple

from .answers import dice

Shape = Tuple[int, int, int, int]
"""Images, channels, rows and columns."""


def numbers_of(shape: Shape, salt: str) -> List[int]:
    """Random whole numbers from -1 to 2. The last number is never zero."""
    chance = dice(f"image {shape} {salt}")
    numbers: List[int] = []
    for _ in range(prod(shape)):
        # Many zeros keep the sums small.
        number = chance.choice((-1, 0, 0, 1, 2))
        numbers.append(number)
    # If a kernel leaves out the last element, its sums are wrong.
    numbers[-1] = 2
    return numbers


class Pixel(NamedTuple):
    """The index of one element in a batch of images. In a convolution's weight, `image` is the
    number of the filter."""

    image: int
    channel: int
    row: int
    column: int

    def position_in(self, shape: Shape) -> int:
        """The position of this element in memory, counted in elements."""
        _, channels, height, width = shape
        planes_before = self.image * channels + self.channel
        lines_before = planes_before * height + self.row
        return lines_before * width + self.column


def pixels_of(shape: Shape) -> Iterator[Pixel]:
    """Yields the index of every element, in memory order."""
    for index in product(*map(range, shape)):
        yield Pixel(*index)
