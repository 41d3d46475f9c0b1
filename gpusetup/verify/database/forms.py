"""The forms of a call: lengths, kinds of numbers, options. They come round by turns."""

from __future__ import annotations

import math
import random
from typing import Any, List, NamedTuple, Tuple

from .calls import Call, replaced, tensors_of

LENGTHS: Tuple[Tuple[int, ...], ...] = (
    (),
    (255, 256, 257, 511, 513, 1000, 1024, 1025),
    (31, 33, 63, 64, 65, 100, 129),
    (2047, 2049, 4097, 5003, 8193),
    (7, 9, 15, 16, 17),
    (33_001, 66_001, 131_072, 262_147),
    (1, 2, 3, 5),
)
"""Lengths on both sides of what kernels are cut into; none: as the database has them."""
NUMBERS = ("", "offset", "ties", "", "special", "negative", "", "equal", "steps", "rows", "large")
LAYOUTS = ("", "transposed", "strided", "", "channels-last", "offset", "pitched", "front")
WAYS = ("gradient", "out", "thread", "again", "in place", "gradient", "one alike", "inference")


class Form(NamedTuple):
    """One form; a turn gives the same."""

    lengths: Tuple[int, ...]
    numbers: str
    layout: str
    way: str
    option: bool

    @property
    def learns(self) -> bool:
        """Gradients of odd numbers cancel: they are asked of usual ones."""
        return not self.numbers and self.lengths != LENGTHS[-1]


def form(turn: int) -> Form:
    """
    >>> form(1).way, form(1).numbers
    ('out', 'offset')
    """
    return Form(
        LENGTHS[turn % len(LENGTHS)],
        NUMBERS[turn % len(NUMBERS)],
        LAYOUTS[turn % len(LAYOUTS)] if turn // 8 % 2 else LAYOUTS[(turn // 3) % len(LAYOUTS)],
        WAYS[(turn + turn // 8) % len(WAYS)],
        turn % 5 == 3,
    )


class Question(NamedTuple):
    """One call of an entry in its form; its name and a seed give the same."""

    entry: Any
    dtype: str
    turn: int
    call: Call
    words: str
    form: Form

    @property
    def name(self) -> str:
        return f"{self.entry.name}/{self.turn}"


class Maker(NamedTuple):
    """What a form is made with; the same words make the same."""

    torch: Any
    chance: random.Random
    made: Any
    """A generator of torch."""


def _swapped(torch: Any, call: Call, pairs: List[Tuple[Any, Any]]) -> Call:
    known = {id(before): after for before, after in pairs}
    return replaced(torch, call, lambda x: known.get(id(x), x))


def is_plain(torch: Any, x: Any) -> bool:
    """Whether it may get other numbers and lengths."""
    return bool(x.layout == torch.strided and not x.is_nested and not x.is_quantized)


def numbered(maker: Maker, call: Call, kind: str) -> Call:
    """Other numbers, of all tensors of fractions or of one."""
    torch, chance = maker.torch, maker.chance
    given = [x for x in tensors_of(torch, (call.given, call.options)) if is_plain(torch, x)]
    given = [x for x in given if x.is_floating_point() and x.numel()]
    if not given:
        return call
    chosen = [chance.choice(given)] if chance.random() < 0.4 or kind == "special" else given
    pairs = [(x, _numbers(maker, x.detach(), kind).requires_grad_(x.requires_grad)) for x in chosen]
    return _swapped(torch, call, pairs)


def _numbers(maker: Maker, x: Any, kind: str) -> Any:
    torch, chance = maker.torch, maker.chance
    if kind == "offset":
        return x + chance.choice((8.0, 100.0))
    if kind == "ties":
        return (x * 2).round() / 2
    if kind == "negative":
        return -x.abs()
    if kind == "equal":
        return torch.full_like(x, float(x.reshape(-1)[0]))
    if kind == "large":
        return x * chance.choice((5.0, 30.0))
    if kind == "steps":
        count = torch.arange(x.numel(), dtype=torch.float64) % chance.choice((3, 17, 127))
        return (count.reshape(x.shape) - 1).to(x.dtype)
    y = x.contiguous().clone()
    if kind == "rows" and x.dim() > 1:
        y[0] *= 40.0
    if kind == "special":
        flat = y.reshape(-1)
        for value in (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 2.5):
            if chance.random() < 0.5:
                flat[chance.randrange(len(flat))] = value
    return y
