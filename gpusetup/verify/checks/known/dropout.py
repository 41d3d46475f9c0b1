"""Dropout, counted by vector lane and by position, and random generators, which must advance from
call to call.

The check `chance` counts over all numbers. Here each vector lane and each position is counted
separately, because one of 256 lanes that is always kept does not show in a total.
"""

from __future__ import annotations

from math import sqrt
from operator import eq
from typing import Any, Callable, Dict, Iterator, List, Sequence

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, asked
from .answers import Limit, ask_all, dtype_of, exactly, flat_list, formats_on, near, roundoff

COUNT = 2**17
"""The number of elements in each tensor whose lanes are counted."""
LANES = (3, 8, 32, 100, 256, 1000)
"""Possible widths of a kernel's vectors, blocks and rows. For each width, elements at the same
place in a vector (the same lane) are counted together."""
DRAWS, POSITIONS = 256, 1027
"""The number of random masks, and the number of positions in each."""
VECTOR_LENGTH = 16
"""The number of lanes in the widest vector; vectors of 2, 4 and 8 lanes repeat within it."""
DISTANCES = (1, 2, 3, 4, 8, 16)
"""Distances from a lane to another lane that may wrongly use the same random number. A lane at
distance 16 is the same lane of the next vector."""
SIGMAS = 6.5
"""The largest deviation allowed in a count, in standard deviations. A correct generator exceeds it
about once in ten billion counts."""
DROPPED = 0.3
"""The dropout rate. It is not a multiple of 1/2, 1/4 or 1/8, so a kernel that rounds it to such a
fraction drops a different share."""
SMALL_SIZES = (1, 2, 7, 15, 16, 17, 33, 1025)
"""Sizes of small draws. Kernels draw fewer than 16 numbers one by one, and more of them in vectors.
"""
SEED_LIMIT = 2**63
"""Torch's seeds are signed 64-bit numbers."""


def dropout(device: str) -> Outcome:
    """Check that dropout drops each lane and position at the requested rate, and that no random
    draw repeats the previous one."""
    torch.manual_seed((asked().seed + 271) % SEED_LIMIT)
    questions = (
        lanes,
        independent_lanes,
        positions,
        gradients_through_dropout,
        whole_channels,
        nothing_and_everything,
        draws_that_move_on,
        states_that_are_kept,
    )
    return ask_all(device, questions, "how often each place must come")


def ones(device: str, dtype_name: str, *shape: int) -> Any:
    return torch.ones(shape, dtype=dtype_of(dtype_name), device=device)


def kept_flags(computed: Any) -> List[bool]:
    """Returns a flag for each element: whether dropout kept it, that is, whether it is not zero."""
    return [value != 0 for value in flat_list(computed)]


def within_chance(label: str, count: int, draws: int) -> Part:
    """Check that the number of kept elements is plausible for this many random draws."""
    expected = draws * (1 - DROPPED)
    message = f"{count} of {draws} are kept, about {expected:.0f} must be"
    return holds(label, is_likely(count, draws, 1 - DROPPED), message)


def is_likely(count: int, draws: int, probability: float) -> bool:
    """Whether an event with this probability can plausibly occur `count` times in `draws` draws."""
    expected = draws * probability
    # The variance of a binomial distribution.
    variance = draws * probability * (1 - probability)
    allowed = SIGMAS * sqrt(variance)
    return abs(count - expected) <= allowed


def lanes(device: str) -> Iterator[Part]:
    """Catches a lane of a vector or block that is always kept or always dropped."""
    for dtype_name in formats_on(device):
        computed = torch.nn.functional.dropout(ones(device, dtype_name, COUNT), DROPPED)
        flags = kept_flags(computed)
        kept_count = sum(flags)
        # Dropout scales up the numbers that it keeps, so that the mean stays the same.
        exact = [1 / (1 - DROPPED)] * kept_count
        kept_values = computed[computed != 0]
        limit = Limit(relative=4 * roundoff(dtype_name))
        yield near(f"dropout of {dtype_name}, what is kept", kept_values, exact, limit)
        yield within_chance(f"dropout of {dtype_name}", kept_count, COUNT)
        for width in LANES:
            for lane in range(width):
                lane_flags = flags[lane::width]
                label = f"dropout of {dtype_name}, every {width}th from {lane}"
                yield within_chance(label, sum(lane_flags), len(lane_flags))


def independent_lanes(device: str) -> Iterator[Part]:
    """Catches a lane that repeats another lane's mask. Counting single lanes does not show that,
    because each is dropped at the right rate."""
    for dtype_name in formats_on(device):
        computed = torch.nn.functional.dropout(ones(device, dtype_name, COUNT), DROPPED)
        flags = kept_flags(computed)
        for lane in range(VECTOR_LENGTH):
            for distance in DISTANCES:
                other = lane + distance
                lane_flags = flags[lane::VECTOR_LENGTH]
                other_flags = flags[other::VECTOR_LENGTH]
                label = f"dropout of {dtype_name}, lanes {lane} and {other}"
                yield agree_by_chance(label, lane_flags, other_flags)


def agree_by_chance(label: str, lane: List[bool], other_lane: List[bool]) -> Part:
    """Check that two lanes agree (both kept or both dropped) only as often as independent lanes
    do."""
    # The last vector may end before the other lane, so the lanes can differ in length.
    pairs = min(len(lane), len(other_lane))
    equal_count = sum(map(eq, lane, other_lane))
    # The probability that both are kept or both are dropped.
    probability = (1 - DROPPED) ** 2 + DROPPED**2
    expected = pairs * probability
    message = f"{equal_count} of {pairs} pairs are equal, about {expected:.0f} must be"
    return holds(label, is_likely(equal_count, pairs, probability), message)


def positions(device: str) -> Iterator[Part]:
    """Catches a position that is kept or dropped too often, for example the last element of a row
    that is kept in every draw."""
    counts = [0] * POSITIONS
    inputs = ones(device, "float32", POSITIONS)
    for _ in range(DRAWS):
        computed = torch.nn.functional.dropout(inputs, DROPPED)
        for position, is_kept in enumerate(kept_flags(computed)):
            if is_kept:
                counts[position] += 1
    for position, count in enumerate(counts):
        yield within_chance(f"dropout of position {position}", count, DRAWS)


def gradients_through_dropout(device: str) -> Iterator[Part]:
    """Catches a backward pass that drops or scales elements differently from the forward pass."""
    for dtype_name in formats_on(device):
        for length in (17, 1025, 8193):
            leaf = ones(device, dtype_name, length).requires_grad_()
            outputs = torch.nn.functional.dropout(leaf, DROPPED)
            (gradient,) = torch.autograd.grad(outputs, leaf, torch.ones_like(outputs))
            # The inputs are ones, so the outputs are the factors that the gradient must have.
            exact = flat_list(outputs)
            label = f"gradient of dropout, {length} {dtype_name} numbers"
            yield exactly(label, gradient, exact)


def whole_channels(device: str) -> Iterator[Part]:
    """Catches a channel dropout (dropout2d) that drops single pixels instead of whole channels."""
    height, width = 3, 5
    channel_size = height * width
    for dtype_name in ("float32", "float16"):
        images = ones(device, dtype_name, 64, 33, height, width)
        pixels = kept_flags(torch.nn.functional.dropout2d(images, DROPPED))
        mixed_count = 0
        kept_count = 0
        channel_starts = range(0, len(pixels), channel_size)
        for start in channel_starts:
            channel = pixels[start : start + channel_size]
            if any(channel):
                kept_count += 1
                if not all(channel):
                    mixed_count += 1
        message = f"{mixed_count} channels are dropped in part"
        yield holds(f"dropout2d of {dtype_name}", not mixed_count, message)
        label = f"channels of dropout2d of {dtype_name}"
        yield within_chance(label, kept_count, len(channel_starts))


def nothing_and_everything(device: str) -> Iterator[Part]:
    """Catches dropout that still drops at random if the rate is 0 or 1, or with
    `training=False`."""
    functional = torch.nn.functional
    length = 1025
    untouched = [1.0] * length
    nothing = [0.0] * length
    for dtype_name in formats_on(device):
        inputs = ones(device, dtype_name, length)
        computed = functional.dropout(inputs, 0.0)
        yield exactly(f"dropout 0 of {dtype_name}", computed, untouched)
        # With rate 1, the scale of kept elements would be 1 / 0.
        computed = functional.dropout(inputs, 1.0)
        yield exactly(f"dropout 1 of {dtype_name}", computed, nothing)
        computed = functional.dropout(inputs, 0.5, training=False)
        yield exactly(f"dropout in use of {dtype_name}", computed, untouched)


# --- draws ----------------------------------------------------------------------------------------

Draw = Callable[[Any, Any], Any]
"""Takes a tensor to fill and a generator (or None), and returns random numbers."""
DRAWERS: Dict[str, Draw] = {
    "uniform_": lambda x, source: x.uniform_(generator=source),
    "normal_": lambda x, source: x.normal_(generator=source),
    "exponential_": lambda x, source: x.exponential_(generator=source),
    "bernoulli_": lambda x, source: x.bernoulli_(0.5, generator=source),
    "random_": lambda x, source: x.random_(generator=source),
    "rand": lambda x, source: torch.rand(x.shape, generator=source, device=x.device),
    "randn": lambda x, source: torch.randn(x.shape, generator=source, device=x.device),
    "randint": lambda x, source: torch.randint(2**40, x.shape, generator=source, device=x.device),
}
LEAST_NUMBERS = 40
"""The fewest numbers that are compared. Even 40 random flags are equal only once in 2**40 times."""


def draws_that_move_on(device: str) -> Iterator[Part]:
    """Catches a random generator that does not advance after small or large draws. Tests a new
    generator and the default one."""
    for method, draw in DRAWERS.items():
        for size in SMALL_SIZES:
            empty = torch.zeros(size, device=device)
            label = f"{method} of {size}"
            generator = torch.Generator(device=device)
            generator.manual_seed(asked().seed % SEED_LIMIT)
            yield from moves_on(label, draw, empty, generator)
            # Without a generator, torch uses the device's default generator.
            yield from moves_on(f"{label}, usual", draw, empty, None)


def moves_on(label: str, draw: Draw, empty: Any, generator: Any) -> Iterator[Part]:
    """Check that two series of draws differ, and that the draws within a series are not all
    equal."""
    enough_calls = LEAST_NUMBERS // len(empty) + 1
    # Make at least two calls, so that they can be compared with each other.
    calls = max(2, enough_calls)
    first = drawn(draw, empty, generator, calls)
    second = drawn(draw, empty, generator, calls)
    differ = first != second
    yield holds(f"{label}, the next draws", differ, "they come again")
    # If the generator does not advance, each call returns the same numbers.
    has_moved = first.count(first[0]) < len(first)
    yield holds(f"{label}, single draws", has_moved, "each one is the same")


def drawn(draw: Draw, empty: Any, generator: Any, calls: int) -> List[Sequence[float]]:
    """The numbers that each call draws, one list per call."""
    rows: List[Sequence[float]] = []
    for _ in range(calls):
        numbers = draw(empty.clone(), generator)
        rows.append(flat_list(numbers))
    return rows


def states_that_are_kept(device: str) -> Iterator[Part]:
    """Catches a generator that gives different numbers after its state is restored, or the same
    numbers for two seeds."""
    for method, draw in DRAWERS.items():
        for size in (7, 1025):
            empty = torch.zeros(size, device=device)
            generator = torch.Generator(device=device).manual_seed(7)
            # Save the state after a few draws, when a kernel may have unused random numbers left.
            drawn(draw, empty, generator, 3)
            state = generator.get_state()
            first = drawn(draw, empty, generator, 12)
            generator.set_state(state)
            again = drawn(draw, empty, generator, 12)
            label = f"{method} of {size}"
            yield holds(f"{label}, the same state", again == first, "gives other numbers")
            of_other_seed = drawn(draw, empty, generator.manual_seed(8), 12)
            differs = of_other_seed != first
            yield holds(f"{label}, another seed", differs, "gives the same numbers")
