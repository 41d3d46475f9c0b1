"""The forms of a call: lengths, kinds of numbers, options. They come round by turns."""

from __future__ import annotations

import math
import random
import time
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from .calls import Call, exactly, fresh, in_float64, plain, replaced, tensors_of

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
SLOW_SECONDS = 0.05
MOST, LONG = 2**15, 2**19
"""The most numbers that one tensor gets, and in the two classes of the greatest lengths."""


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

    @property
    def most(self) -> int:
        return LONG if max(self.lengths, default=0) > 2**15 else MOST


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


def formed(maker: Maker, run: Any, call: Call, wanted: Form, dtype: str) -> Call:
    """The call in all that is wanted of it, or in as much as has an answer."""
    changes: List[Callable[[Call], Call]] = []
    if wanted.option:
        changes.append(lambda call: option(maker, call))
    if wanted.lengths:
        changes.append(lambda call: lengthened(maker, call, wanted.lengths, wanted.most))
        if maker.chance.random() < 0.5:
            other = maker.chance.choice(LENGTHS[1:5])
            changes.append(lambda call: lengthened(maker, call, other, wanted.most))
    if wanted.numbers:
        changes.append(lambda call: numbered(maker, call, wanted.numbers))
    whole = call
    for change in changes:
        whole = change(whole)
    if whole is call or is_legal(maker.torch, run, whole, wanted.most, dtype):
        return whole
    for change in changes:
        for _ in "ab":
            new = change(call)
            if new is not call and is_legal(maker.torch, run, new, wanted.most, dtype):
                call = new
                break
    return call


def is_legal(torch: Any, run: Any, call: Call, most: int, dtype: str) -> bool:
    """Whether the call has an answer in float64, soon, which is not all NaN."""
    if not is_small(torch, run, call, most):
        return False
    before, began = torch.get_rng_state(), time.process_time()
    try:
        with in_float64(torch), torch.no_grad():
            wide = fresh(torch, exactly(torch, call, dtype))
            found = plain(torch, run(*wide.given, **wide.options))
    except Exception:  # whatever it says, it is not asked
        return False
    if time.process_time() - began > SLOW_SECONDS or not torch.equal(before, torch.get_rng_state()):
        return False
    full = [x for x in found if x.numel()]
    return not full or any(bool((x == x).any()) for x in full)


def lengthened(maker: Maker, call: Call, lengths: Tuple[int, ...], most: int) -> Call:
    """One axis, and those that are tied to it by their length, gets another length."""
    torch, chance = maker.torch, maker.chance
    given = [x for x in tensors_of(torch, (call.given, call.options)) if is_plain(torch, x)]
    if len({x.dtype for x in given} & {torch.int32, torch.float32}) > 1:
        return call  # pivots, which kernels believe
    axes = [(i, d) for i, x in enumerate(given) for d in range(x.dim())]
    if not axes:
        return call
    i, d = chance.choice(axes)
    size, new = given[i].shape[d], chance.choice(lengths)
    tie = chance.choice(("one", "place", "end", "all", "all", "all"))
    tied = [(j, e) for j, e in axes if given[j].shape[e] == size]
    if any(given[j].dim() == 1 for j, _ in tied):
        tie = "all"  # kernels believe that there is one number for each
    if tie == "one":
        tied = [(i, d)]
    elif tie == "place":
        tied = [(j, e) for j, e in tied if e == d]
    elif tie == "end":
        tied = [(j, e) for j, e in tied if e - given[j].dim() == d - given[i].dim()]
    shapes = [list(x.shape) for x in given]
    for j, e in tied:
        shapes[j][e] = new
    places = any(x.dtype == torch.int64 for x in given)
    if any(math.prod(each) > most for each in shapes) or (places and new < size):
        return call
    touched = {j for j, _ in tied}
    return _swapped(
        torch,
        call,
        [
            (x, drawn(maker, x, shape))
            for j, (x, shape) in enumerate(zip(given, shapes))
            if j in touched
        ],
    )


def _swapped(torch: Any, call: Call, pairs: List[Tuple[Any, Any]]) -> Call:
    known = {id(before): after for before, after in pairs}
    return replaced(torch, call, lambda x: known.get(id(x), x))


def is_plain(torch: Any, x: Any) -> bool:
    """Whether it may get other numbers and lengths."""
    return bool(x.layout == torch.strided and not x.is_nested and not x.is_quantized)


def drawn(maker: Maker, x: Any, shape: List[int]) -> Any:
    """Numbers of the kind that `x` has, in another shape."""
    torch, count = maker.torch, math.prod(shape)
    flat = x.detach().reshape(-1)
    if not flat.numel():
        return torch.zeros(shape, dtype=x.dtype).requires_grad_(x.requires_grad)
    chosen = torch.randint(0, len(flat), (count,), generator=maker.made)
    if x.dtype == torch.int64 and x.dim() == 1 and bool((flat.diff() >= 0).all()):
        chosen = chosen.sort()[0]  # what is in order stays so
    y = flat[chosen]
    if y.is_floating_point() or y.is_complex():
        near = torch.rand(count, generator=maker.made) * 0.5 + 0.5
        y = (y * near.to(y.real.dtype)).to(x.dtype)
    return y.reshape(shape).requires_grad_(x.requires_grad)


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


def option(maker: Maker, call: Call) -> Call:
    """Another value of one option that is a number or a flag."""
    chance = maker.chance
    places: List[Tuple[Optional[int], str, Any]] = [
        *((i, "", v) for i, v in enumerate(call.given) if type(v) in (bool, int, float)),
        *((None, n, v) for n, v in call.options.items() if type(v) in (bool, int, float)),
    ]
    if not places or any(each is None for each in call.given):
        return call  # with a flag, kernels believe that what is None is there
    place, name, value = chance.choice(places)
    if type(value) is bool:
        value = not value
    elif type(value) is float:
        value = value * chance.choice((0.5, 2.0, -1.0, 0.3))
    else:
        value = chance.choice((value + 1, value - 1, -value, 0, 2 * value))
    if place is None:
        return call._replace(options={**call.options, name: value})
    given = list(call.given)
    given[place] = value
    return call._replace(given=tuple(given))


def is_small(torch: Any, run: Any, call: Call, most: int) -> bool:
    """Whether the answer is not too large, as the meta device tells."""
    if sum(x.numel() for x in tensors_of(torch, (call.given, call.options))) < 2048:
        return True

    def put(x: Any) -> Any:
        return x.detach().to("meta")

    try:
        meta = replaced(torch, call, put)
        with torch.no_grad():
            found = run(*meta.given, **meta.options)
    except Exception:  # what meta cannot say is not asked
        return False
    return bool(sum(x.numel() for x in tensors_of(torch, found)) <= 4 * most)
