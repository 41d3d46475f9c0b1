"""The forms of a call: lengths, kinds of numbers, layouts, ways. They come round by turns."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

from .calls import Call

LENGTHS: Tuple[Tuple[int, ...], ...] = (
    (),
    (255, 256, 257, 511, 513, 1000, 1024, 1025),
    (31, 33, 63, 64, 65, 100, 129),
    (2047, 2049, 4097, 5003, 8193),
    (7, 9, 15, 16, 17),
    (33_001, 66_001, 131_072, 262_147),
    (1, 2, 3, 5),
)
"""Lengths on both sides of what kernels are cut into; none: any. Our own entries vary them and the
numbers; so do those of torch's database that it calls functions of single numbers or reductions.
Others are soon asked for what they are not made for, and a sound machine is called wrong."""
NUMBERS = (
    *("", "special", "ties", "large", "negative", "special", "large"),
    *("equal", "steps", "far", "special", "large", ""),
)
LAYOUTS = ("", "transposed", "strided", "", "channels-last", "offset", "pitched", "front")
WAYS = ("gradient", "out", "thread", "again", "in place", "gradient", "in place", "inference")


class Form(NamedTuple):
    """One form; a turn gives the same."""

    lengths: Tuple[int, ...]
    numbers: str
    layout: str
    way: str


def form(turn: int) -> Form:
    """
    >>> form(1).way, form(1).layout
    ('out', '')
    """
    return Form(
        LENGTHS[turn % len(LENGTHS)],
        # Among so many like numbers no error would be seen.
        "large" if turn % (2 * len(LENGTHS)) == 5 else NUMBERS[turn % len(NUMBERS)],
        LAYOUTS[turn % len(LAYOUTS)] if turn // 8 % 2 else LAYOUTS[(turn // 3) % len(LAYOUTS)],
        WAYS[(turn + turn // 8) % len(WAYS)],
    )


class Question(NamedTuple):
    """One call of an entry in its form; its name and a seed give the same."""

    entry: Any
    dtype: str
    turn: int
    call: Call
    words: str
    form: Form
