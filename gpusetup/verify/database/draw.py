"""How a question gets its call. A question is one call of an operator, and `turn` is its running
number. The turn determines the call's form: its lengths, the kind of its numbers, their memory
layout, and the way to make the call."""

from __future__ import annotations

import random
from math import inf, nan
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import Call, replaced, tensors_of_call
from .ways import WAYS, WayOfQuestion, directly

LENGTHS: Tuple[Tuple[int, ...], ...] = (
    (),
    (255, 256, 257, 511, 513, 1000, 1024, 1025),
    (31, 33, 63, 64, 65, 100, 129),
    (2047, 2049, 4097, 5003, 8193),
    (7, 9, 15, 16, 17),
    (33_001, 66_001, 131_072, 262_147),
    (1, 2, 3, 5),
)
"""Lengths below and above the block sizes of kernels. A question draws from one of these rows; with
the empty row, the entry may use any lengths.

These lengths and kinds of numbers are used for the entries written here, and for elementwise
functions and reductions in torch's database. Other operators in the database would get unsuitable
arguments, and a healthy machine would fail.
"""
LONGEST_LENGTHS = 5
"""The index of the row with the longest lengths."""
NUMBERS = (
    *("", "special", "ties", "large", "negative", "special", "large"),
    *("equal", "steps", "far", "special", "large", ""),
)
LAYOUTS = ("", "transposed", "strided", "", "channels-last", "offset", "pitched", "front")
TURNS = ("gradient", "out", "thread", "again", "in place", "gradient", "in place", "inference")


class CallForm(NamedTuple):
    """The form of a call: which lengths and numbers it has, in which memory layout, and in which
    way it is made. The form depends only on the turn."""

    lengths: Tuple[int, ...]
    numbers: str
    layout: str
    way: str


def form(turn: int) -> CallForm:
    """Returns the form of the call in this turn.

    >>> form(1).way, form(1).layout
    ('out', '')
    """
    numbers = NUMBERS[turn % len(NUMBERS)]
    # Every second time, the longest tensors get large numbers at both ends. Otherwise an error
    # would not show among so many similar numbers.
    if turn % (2 * len(LENGTHS)) == LONGEST_LENGTHS:
        numbers = "large"
    # In half of the turns the layout changes with every turn, in the other half it changes with
    # every third turn, so that each layout occurs with each length and each way to call.
    is_fast_half = turn // 8 % 2
    layout_turn = turn if is_fast_half else turn // 3
    layout = LAYOUTS[layout_turn % len(LAYOUTS)]
    # Numbers far from zero are tested only in the default layout, because in other layouts the
    # error of torch's sums is larger than the differences between the numbers.
    if numbers == "far":
        layout = ""
    lengths = LENGTHS[turn % len(LENGTHS)]
    way = TURNS[(turn + turn // 8) % len(TURNS)]
    return CallForm(lengths, numbers, layout, way)


class OperatorQuestion(NamedTuple):
    """One call of an entry in one form. Entry, seed and turn determine it."""

    entry: Any
    dtype: str
    turn: int
    call: Call
    words: str
    """The text that seeds all random numbers of the question."""
    form: CallForm


FLOATS = ("float32", "bfloat16", "float32", "float16")
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
MOST = 2**17
"""The largest number of elements in a tensor."""
ODD_SIZES = (64, 65, 130)
"""Additional lengths for further axes: the width of a kernel's tile (64), one more, and two more
than two tiles."""


def up_to(most: int, lengths: Tuple[int, ...]) -> List[int]:
    """Returns the lengths that are at most `most`."""
    return [length for length in lengths if length <= most]


class Draw:
    """The random source with which an entry draws its arguments in one turn."""

    def __init__(self, torch: Any, name: str, seed: int, turn: int) -> None:
        self.torch = torch
        self.turn = turn
        self.form = form(turn)
        self.lengths = self.form.lengths
        self.words = f"{seed}:{name}:{turn}"
        self.chance = random.Random(self.words)
        self.choice = self.chance.choice
        # torch's generator is seeded from the same text.
        seed_of_torch = self.chance.getrandbits(62)
        self.generator = torch.Generator().manual_seed(seed_of_torch)

    def question(self, entry: Any, dtype: str, call: Call) -> OperatorQuestion:
        """Returns the question for an entry in this turn."""
        return OperatorQuestion(
            entry=entry,
            dtype=dtype,
            turn=self.turn,
            call=call,
            words=self.words,
            form=self.form,
        )

    def length(self, most: int = MOST) -> int:
        """Returns a random length from the question's lengths, or from the default lengths if none
        is at most `most`."""
        lengths = up_to(most, self.lengths)
        if not lengths:
            lengths = up_to(most, LENGTHS[1] + SMALL)
        return int(self.choice(lengths))

    def shape(self, count: int, most: int = MOST) -> List[int]:
        """Returns a shape with `count` axes in random order. One axis has a length of the question,
        and the others are short."""
        lengths = [self.length(most)]
        while len(lengths) < count:
            # Keep the number of elements below the limit.
            most //= lengths[-1]
            short_lengths = up_to(most, SMALL + ODD_SIZES) or [1]
            lengths.append(self.choice(short_lengths))
        self.chance.shuffle(lengths)
        return lengths

    def normal(self, *shape: int) -> Any:
        """Returns normally distributed random numbers in this shape, in float32."""
        return self.torch.randn(shape, generator=self.generator)

    def whole(self, low: int, high: int, *shape: int) -> Any:
        """Returns random whole numbers from `low` up to, but not including, `high`."""
        return self.torch.randint(low, high, shape, generator=self.generator)

    def flag(self) -> bool:
        """Returns True or False with equal probability."""
        return self.chance.random() < 0.5


class Own(NamedTuple):
    """An entry written for gpusetup. `compared` treats it like an entry in torch's database."""

    name: str
    draw: Callable[[Draw], Tuple[Tuple[Any, ...], Dict[str, Any]]]
    """Draws the arguments and options of a call, in float32."""
    run: Callable[..., Any]
    dtypes: Tuple[str, ...] = FLOATS
    once: bool = False
    """Whether the operator computes 16-bit numbers in float32 and rounds only at the end."""
    by_threads: bool = False
    """Whether each CPU thread rounds its part, so that the result is rounded more than once."""
    learns: bool = True

    @property
    def often(self) -> int:
        """A factor for the number of questions that the entry gets. It is 6, because programs use
        these operations most."""
        return 6

    @property
    def rarity(self) -> int:
        """The rarity of the entry. It is 0, so that these entries are tested first."""
        return 0

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """Returns the question of this turn, with its call in the form of the turn."""
        # The formats shift, so that after some turns each format occurs with each form.
        dtype = self.dtypes[(turn + turn // 4) % len(self.dtypes)]
        draw = Draw(torch, self.name, seed, turn)
        args, options = self.draw(draw)
        working_format = getattr(torch, dtype)

        def to_working_format(x: Any) -> Any:
            is_fraction = x.dtype == torch.float32
            return x.to(working_format) if is_fraction else x

        call = Call(args, options, lambda x: x)
        # Integer arguments are already drawn in their format.
        if working_format.is_floating_point:
            call = replaced(torch, call, to_working_format)
        # Convolutions and norms of images have separate kernels for channels-last.
        takes_images = any(x.dim() == 4 for x in args if hasattr(x, "dim"))
        if turn % 2 and takes_images and draw.form.numbers != "far":
            draw.form = draw.form._replace(layout="channels-last")
        kind = self.kind_of_numbers(draw, device, dtype)
        call = numbered(draw, call, kind, dtype)
        learns = self.learns and not kind and working_format.is_floating_point
        # In torch 2.13.0 on a CPU, convolutions leave parts of such a gradient uninitialized.
        if draw.form.layout == "channels-last" and dtype != "float32":
            learns = False

        def let_learn(x: Any) -> Any:
            has_gradient = learns and x.is_floating_point()
            return x.requires_grad_(has_gradient)

        return draw.question(self, dtype, replaced(torch, call, let_learn))

    def kind_of_numbers(self, draw: Draw, device: str, dtype: str) -> str:
        """Returns the kind of numbers in the question's form, or an empty string (normal random
        numbers) if this entry cannot be judged with that kind."""
        kind = draw.form.numbers
        # float16 would overflow, and layers may return anything for NaN and infinity.
        if dtype == "float16" or kind == "special":
            return ""
        # Far from zero, products lose all digits of the differences between the numbers, and so may
        # cuDNN's batch norm.
        is_norm = "norm" in self.name
        keeps_spread = is_norm and (device == "cpu" or "batch" not in self.name)
        if kind == "far" and not keeps_spread:
            return ""
        return kind

    def other_ways(self, question: OperatorQuestion) -> Iterator[WayOfQuestion]:
        """Yields the way and layout of the question's form, if they differ from a direct call."""
        form = question.form
        way = WAYS.get(form.way, directly)
        learns = form.way in ("gradient", "out")
        if way is not directly:
            yield WayOfQuestion(form.way, way, form.layout, learns)
        elif form.layout:
            yield WayOfQuestion("", directly, form.layout, learns)


def numbered(draw: Draw, call: Call, kind: str, dtype: str) -> Call:
    """Returns the call with numbers of this kind in all tensors of the format, or in one of them.

    If `kind` is empty, the call stays unchanged.
    """
    torch = draw.torch
    working_format = getattr(torch, dtype)

    def has_numbers(x: Any) -> bool:
        if x.dtype != working_format:
            return False
        return bool(x.numel())

    candidates = [x for x in tensors_of_call(torch, call) if has_numbers(x)]
    if not candidates or not kind:
        return call
    chosen_id = None
    # In about two of five calls, only one tensor changes.
    if draw.chance.random() < 0.4:
        chosen_id = id(draw.choice(candidates))

    def change(x: Any) -> Any:
        is_chosen = chosen_id is None or id(x) == chosen_id
        if has_numbers(x) and is_chosen:
            return numbers_of_kind(draw, x.detach(), kind)
        return x

    return replaced(torch, call, change)


ZEROS_AND_TIES = (0.0, -0.0, 0.5, 2.5, -1.5)
"""Both zeros, and numbers halfway between two whole numbers."""
SPECIAL = (nan, inf, -inf, *ZEROS_AND_TIES)


def numbers_of_kind(draw: Draw, x: Any, kind: str) -> Any:
    """Returns the tensor with some or all of its numbers replaced with numbers of this kind."""
    torch = draw.torch
    if not x.is_floating_point():
        # Whole numbers have only one special kind: numbers of all sizes.
        if kind == "large" and not x.is_complex():
            return whole_numbers_of_any_size(draw, x)
        return x
    if kind == "ties":
        # Round to multiples of 1/2, which are whole or halfway between two whole numbers.
        return (x * 2).round() / 2
    if kind == "equal":
        first_number = float(x.reshape(-1)[0])
        return torch.full_like(x, first_number)
    if kind == "far":
        # At this distance, the rounding error of a mean of squares is larger than the variance.
        distance = 2 * torch.finfo(x.dtype).eps ** -0.5
        return x + distance
    if kind == "negative":
        return -x.abs()
    if kind == "steps":
        period = draw.choice((3, 17, 127))
        counted = torch.arange(x.numel(), dtype=torch.float64)
        steps = counted % period - 1
        return steps.reshape(x.shape).to(x.dtype)
    # Copy the tensor, because an expanded tensor cannot be written to.
    y = x.contiguous().clone()
    flat = y.view(-1)
    if kind == "large":
        # Only the first and the last number are large, because more of them could overflow the
        # format.
        flat[:: max(1, y.numel() - 1)] = 16.0
        return y
    values = SPECIAL if kind == "special" else ZEROS_AND_TIES
    for value in values:
        element = draw.chance.randrange(y.numel())
        flat[element] = value
    return y


def whole_numbers_of_any_size(draw: Draw, x: Any) -> Any:
    """Returns random whole numbers of all sizes that the format holds. In int64 they stay below
    2**51, so that float64 holds them."""
    format = draw.torch.iinfo(x.dtype)
    # float64 holds every whole number up to 2**53.
    bits = min(format.bits, 52)
    most = 2 ** (bits - 1)
    # The lowest number of a format (such as -128 in int8) has no positive counterpart, so start
    # above it.
    low = 0 if x.dtype == draw.torch.uint8 else 1 - most
    numbers = draw.whole(low, most, *x.shape)
    dropped_bits = draw.whole(0, bits, *x.shape)
    return (numbers >> dropped_bits).to(x.dtype)


def smaller_numbers(draw: Draw, x: Any) -> Any:
    """Returns `x` with each number reduced by a random part of up to a third, so that equal numbers
    become different."""
    torch = draw.torch
    # torch's database replaces zeros in divisors with the smallest number. Quotients by that number
    # are too large to compare, so replace it with 1.
    least = torch.finfo(x.dtype).tiny
    x = x.masked_fill(x.abs() == least, 1.0)
    share = torch.rand(tuple(x.shape), generator=draw.generator) / 3
    factor = (1 - share).to(x.dtype)
    return x * factor


def grown(draw: Draw, call: Call, most: int) -> Call:
    """Returns the call with a new length for one axis of its tensors. The axis is counted from the
    last one.

    The new numbers are drawn from the old ones and reduced by up to a third.
    """
    torch = draw.torch
    tensors = tensors_of_call(torch, call)
    axes = set()
    for x in tensors:
        for place, length in enumerate(x.shape):
            if length > 1:
                axes.add((length, place - x.dim()))
    # Some forms do not change the lengths.
    if not axes or not draw.lengths or not all(x.numel() for x in tensors):
        return call
    old_length, axis = draw.choice(sorted(axes))
    most_elements = max(x.numel() for x in tensors)
    new_length = draw.length(most * old_length // most_elements)
    picks = draw.whole(0, old_length, new_length)

    def grow(x: Any) -> Any:
        has_axis = x.dim() >= -axis and x.shape[axis] == old_length
        if not has_axis or x.layout != torch.strided:
            return x
        y = x.detach().index_select(axis, picks)
        if y.is_floating_point() or y.is_complex():
            y = smaller_numbers(draw, y)
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, grow)
