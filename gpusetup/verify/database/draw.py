"""The forms of a call (lengths, kinds of numbers, layouts, ways), which come round by turns, and
what an entry draws its calls with."""

from __future__ import annotations

import random
from math import inf, nan
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import Call, replaced, tensors_of
from .ways import WAYS, Way, directly

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
TURNS = ("gradient", "out", "thread", "again", "in place", "gradient", "in place", "inference")


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
    # Among so many like numbers no error would be seen.
    numbers = "large" if turn % (2 * len(LENGTHS)) == 5 else NUMBERS[turn % len(NUMBERS)]
    layout = LAYOUTS[(turn if turn // 8 % 2 else turn // 3) % len(LAYOUTS)]
    return Form(
        LENGTHS[turn % len(LENGTHS)],
        numbers,
        "" if numbers == "far" else layout,  # in others, torch's sums lose more than the spread
        TURNS[(turn + turn // 8) % len(TURNS)],
    )


class OperatorQuestion(NamedTuple):
    """One call of an entry in its form; its name and a seed give the same."""

    entry: Any
    dtype: str
    turn: int
    call: Call
    words: str
    form: Form


FLOATS = ("float32", "bfloat16", "float32", "float16")
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
MOST = 2**17
"""The most numbers of one tensor."""


class Draw:
    """What an entry draws the call of one turn with."""

    def __init__(self, torch: Any, name: str, seed: int, turn: int) -> None:
        self.torch, self.turn, self.form = torch, turn, form(turn)
        self.words = f"{seed}:{name}:{turn}"
        self.lengths = self.form.lengths
        self.chance = random.Random(self.words)
        self.choice = self.chance.choice
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62))

    def question(self, entry: Any, dtype: str, call: Call) -> OperatorQuestion:
        return OperatorQuestion(entry, dtype, self.turn, call, self.words, self.form)

    def length(self, most: int = MOST) -> int:
        """A length of the question's class, if it is not too long."""
        return int(
            self.choice(
                [n for n in self.lengths if n <= most]
                or [n for n in LENGTHS[1] + SMALL if n <= most]
            )
        )

    def shape(self, count: int, most: int = MOST) -> List[int]:
        """One length of the class, others small, in any order."""
        found = [self.length(most)]
        while len(found) < count:
            most //= found[-1]
            found.append(self.choice([n for n in (*SMALL, 64, 65, 130) if n <= most] or [1]))
        self.chance.shuffle(found)
        return found

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(shape, generator=self.made)

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return self.torch.randint(low, high, shape, generator=self.made)

    def flag(self) -> bool:
        return self.chance.random() < 0.5


class Own(NamedTuple):
    """An entry; the shape of what `compared` takes."""

    name: str
    draw: Callable[[Draw], Tuple[Tuple[Any, ...], Dict[str, Any]]]
    """What it is called with, in float32."""
    run: Callable[..., Any]
    dtypes: Tuple[str, ...] = FLOATS
    once: bool = False
    """Whether half precision is rounded once, all else being done in float32."""
    by_threads: bool = False
    """Whether each thread of a CPU rounds its share, so that several round more than once."""
    learns: bool = True

    @property
    def often(self) -> int:
        """Programs compute these most."""
        return 6

    @property
    def rarity(self) -> int:
        """They are asked first."""
        return 0

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        dtype = self.dtypes[(turn + turn // 4) % len(self.dtypes)]
        draw = Draw(torch, self.name, seed, turn)
        given, options = self.draw(draw)
        low = getattr(torch, dtype)

        def lowered(x: Any) -> Any:
            return x.to(low) if x.dtype == torch.float32 and low.is_floating_point else x

        call = replaced(torch, Call(given, options, lambda x: x), lowered)
        images = any(x.dim() == 4 for x in given if hasattr(x, "dim"))
        if turn % 2 and images and draw.form.numbers != "far":
            draw.form = draw.form._replace(layout="channels-last")
        kind = draw.form.numbers if dtype != "float16" and draw.form.numbers != "special" else ""
        asks_far = "norm" in self.name and (device == "cpu" or "batch" not in self.name)
        if kind == "far" and not asks_far:  # weights lose every digit; cuDNN may lose the spread
            kind = ""
        call = numbered(draw, call, kind, dtype)
        learns = self.learns and not kind and low.is_floating_point
        if draw.form.layout == "channels-last" and dtype != "float32":
            learns = False  # convolutions leave parts of such a gradient unwritten (2.13.0, CPU)

        def learning(x: Any) -> Any:
            return x.requires_grad_(learns and x.is_floating_point())

        return draw.question(self, dtype, replaced(torch, call, learning))

    def other_ways(self, asked: OperatorQuestion) -> Iterator[Tuple[str, Way, str, bool]]:
        form = asked.form
        way = WAYS.get(form.way, directly)
        if way is not directly or form.layout:
            label = form.way if way is not directly else ""
            yield label, way, form.layout, form.way in ("gradient", "out")


def numbered(draw: Draw, call: Call, kind: str, dtype: str) -> Call:
    """Other numbers of that kind, of all tensors of that format or of one."""
    low = getattr(draw.torch, dtype)
    given = tensors_of(draw.torch, (call.given, call.options))
    given = [x for x in given if x.dtype == low and x.numel()]
    if not given or not kind:
        return call
    one = id(draw.choice(given)) if draw.chance.random() < 0.4 else None

    def changed(x: Any) -> Any:
        chosen = x.dtype == low and x.numel() and one in (None, id(x))
        return _numbers(draw, x.detach(), kind) if chosen else x

    return replaced(draw.torch, call, changed)


ZEROS_AND_TIES = (0.0, -0.0, 0.5, 2.5, -1.5)
SPECIAL = (nan, inf, -inf, *ZEROS_AND_TIES)


def _numbers(draw: Draw, x: Any, kind: str) -> Any:
    torch = draw.torch
    if not x.is_floating_point():
        return x if x.is_complex() or kind != "large" else _any_size(draw, x)
    if kind == "ties":
        return (x * 2).round() / 2
    if kind == "equal":
        return torch.full_like(x, float(x.reshape(-1)[0]))
    if kind == "far":  # the roundoff of a mean of squares is then more than the spread
        return x + 2 * torch.finfo(x.dtype).eps ** -0.5
    if kind == "negative":
        return -x.abs()
    if kind == "steps":
        count = torch.arange(x.numel(), dtype=torch.float64) % draw.choice((3, 17, 127))
        return (count.reshape(x.shape) - 1).to(x.dtype)
    y = x.contiguous().clone()
    if kind == "large":  # the first and the last decide; more would leave the range
        y.view(-1)[:: max(1, y.numel() - 1)] = 16.0
        return y
    for value in SPECIAL if kind == "special" else ZEROS_AND_TIES:
        y.view(-1)[draw.chance.randrange(y.numel())] = value
    return y


def _any_size(draw: Draw, x: Any) -> Any:
    """Whole numbers of up to all bits; of int64, up to those that float64 holds."""
    bits = min(draw.torch.iinfo(x.dtype).bits, 52)
    most = 2 ** (bits - 1)
    low = 0 if x.dtype == draw.torch.uint8 else 1 - most  # -most is its own negative
    drawn = draw.whole(low, most, *x.shape) >> draw.whole(0, bits, *x.shape)
    return drawn.to(x.dtype)


def grown(draw: Draw, call: Call, most: int) -> Call:
    """One axis of each tensor, counted from the last, gets another length; the numbers are some of
    those that were there, made smaller by up to a third."""
    torch = draw.torch
    given = tensors_of(torch, (call.given, call.options))
    axes = sorted({(n, place - x.dim()) for x in given for place, n in enumerate(x.shape) if n > 1})
    if not axes or not draw.lengths or not all(x.numel() for x in given):
        return call
    old, place = draw.choice(axes)
    new = draw.length(most * old // max(x.numel() for x in given))
    picks = draw.whole(0, old, new)

    def longer(x: Any) -> Any:
        if x.dim() < -place or x.shape[place] != old or x.layout != torch.strided:
            return x
        y = x.detach().index_select(place, picks)
        if y.is_floating_point() or y.is_complex():
            # The database's divisors have the least number for zero; its quotients have no end.
            y = y.masked_fill(y.abs() == torch.finfo(y.dtype).tiny, 1.0)
            y = y * (1 - torch.rand(tuple(y.shape), generator=draw.made) / 3).to(y.dtype)
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, longer)
