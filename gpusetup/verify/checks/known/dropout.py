"""Dropout by lane and by position, and random numbers that move on from call to call.

`chance` counts how many numbers fall where. Here each vector lane and each position is counted by
itself: a lane that is always kept is one number of 256, which no total shows.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, Iterator, List, Sequence

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, asked
from .answers import Limit, ask_all, exactly, flat_list, formats_on, near, roundoff

COUNT = 2**17
LANES = (3, 8, 32, 100, 256, 1000)
"""Widths of vectors, blocks and rows; every so many elements are counted together."""
DRAWS, POSITIONS = 256, 1027
"""How often the same positions are drawn."""
SIGMAS = 6.5
"""A sound generator is farther off once in ten thousand million counts."""
DROPPED = 0.3
"""No multiple of a small power of two: a share that is rounded to one is another one."""
SMALL_SIZES = (1, 2, 7, 15, 16, 17, 33, 1025)
"""Kernels draw fewer than 16 numbers one at a time, and more in vectors."""
SEED_LIMIT = 2**63


def dropout(device: str) -> Outcome:
    """Each lane and position is dropped as often as asked, and no draw repeats the one before."""
    torch.manual_seed((asked().seed + 271) % SEED_LIMIT)
    questions = (
        lanes,
        positions,
        gradients_through_dropout,
        whole_channels,
        nothing_and_everything,
        draws_that_move_on,
        states_that_are_kept,
    )
    return ask_all(device, questions, "how often each place must come")


def ones(device: str, name: str, *shape: int) -> Any:
    return torch.ones(shape, dtype=getattr(torch, name), device=device)


def kept_flags(computed: Any) -> List[bool]:
    return [value != 0 for value in flat_list(computed)]


def within_chance(label: str, count: int, draws: int) -> Part:
    """Whether so many of the draws were kept, as far as chance allows."""
    expected = draws * (1 - DROPPED)
    allowed = SIGMAS * sqrt(draws * DROPPED * (1 - DROPPED))
    message = f"{count} of {draws} are kept, about {expected:.0f} must be"
    return holds(label, abs(count - expected) <= allowed, message)


def lanes(device: str) -> Iterator[Part]:
    """Catches a lane of a vector or block that is always kept, or always dropped."""
    for name in formats_on(device):
        computed = torch.nn.functional.dropout(ones(device, name, COUNT), DROPPED)
        kept_values = [value for value in flat_list(computed) if value]
        exact = [1 / (1 - DROPPED)] * len(kept_values)
        limit = Limit(relative=4 * roundoff(name))
        yield near(f"dropout of {name}, what is kept", computed[computed != 0], exact, limit)
        yield within_chance(f"dropout of {name}", len(kept_values), COUNT)
        flags = kept_flags(computed)
        for width in LANES:
            for lane in range(width):
                of_lane = flags[lane::width]
                label = f"dropout of {name}, every {width}th from {lane}"
                yield within_chance(label, sum(of_lane), len(of_lane))


def positions(device: str) -> Iterator[Part]:
    """Catches a position that is kept in every draw, such as the last one of a row."""
    counts = [0] * POSITIONS
    inputs = ones(device, "float32", POSITIONS)
    for _ in range(DRAWS):
        for position, is_kept in enumerate(
            kept_flags(torch.nn.functional.dropout(inputs, DROPPED))
        ):
            if is_kept:
                counts[position] += 1
    for position, count in enumerate(counts):
        yield within_chance(f"dropout of position {position}", count, DRAWS)


def gradients_through_dropout(device: str) -> Iterator[Part]:
    """Catches a backward pass that drops other numbers than the forward pass, or scales them."""
    for name in formats_on(device):
        for length in (17, 1025, 8193):
            leaf = ones(device, name, length).requires_grad_()
            computed = torch.nn.functional.dropout(leaf, DROPPED)
            (gradient,) = torch.autograd.grad(computed, leaf, torch.ones_like(computed))
            label = f"gradient of dropout, {length} {name} numbers"
            yield exactly(label, gradient, flat_list(computed))


def whole_channels(device: str) -> Iterator[Part]:
    """Catches a dropout of channels that drops single pixels."""
    for name in ("float32", "float16"):
        computed = torch.nn.functional.dropout2d(ones(device, name, 64, 33, 3, 5), DROPPED)
        pixels = flat_list(computed)
        channels = [set(pixels[start : start + 15]) for start in range(0, len(pixels), 15)]
        mixed = sum(1 for values in channels if len(values) > 1)
        yield holds(f"dropout2d of {name}", not mixed, f"{mixed} channels are dropped in part")
        kept_values = sum(1 for values in channels if values != {0.0})
        yield within_chance(f"channels of dropout2d of {name}", kept_values, len(channels))


def nothing_and_everything(device: str) -> Iterator[Part]:
    """Catches a dropout of 0 or 1, or of a model in use, that draws nevertheless."""
    functional = torch.nn.functional
    for name in formats_on(device):
        inputs = ones(device, name, 1025)
        computed = functional.dropout(inputs, 0.0)
        yield exactly(f"dropout 0 of {name}", computed, [1.0] * 1025)
        computed = functional.dropout(inputs, 1.0)
        yield exactly(f"dropout 1 of {name}", computed, [0.0] * 1025)
        in_use = functional.dropout(inputs, 0.5, training=False)
        yield exactly(f"dropout in use of {name}", in_use, [1.0] * 1025)


# --- draws ----------------------------------------------------------------------------------------

Draw = Callable[[Any, Any], Any]
"""(an empty tensor, a generator or None) -> random numbers."""
DRAWERS: Dict[str, Draw] = {
    "uniform_": lambda x, made: x.uniform_(generator=made),
    "normal_": lambda x, made: x.normal_(generator=made),
    "exponential_": lambda x, made: x.exponential_(generator=made),
    "bernoulli_": lambda x, made: x.bernoulli_(0.5, generator=made),
    "random_": lambda x, made: x.random_(generator=made),
    "rand": lambda x, made: torch.rand(x.shape, generator=made, device=x.device),
    "randn": lambda x, made: torch.randn(x.shape, generator=made, device=x.device),
    "randint": lambda x, made: torch.randint(2**40, x.shape, generator=made, device=x.device),
}
CALLS = 40
"""So many numbers at least: even 40 flags come again once in a million million times."""


def draws_that_move_on(device: str) -> Iterator[Part]:
    """Catches a generator that stands still, for few numbers or many, its own or the usual one."""
    for method, draw in DRAWERS.items():
        for size in SMALL_SIZES:
            calls = max(2, CALLS // size + 1)
            empty = torch.zeros(size, device=device)
            own_generator = torch.Generator(device=device).manual_seed(asked().seed % SEED_LIMIT)
            for label, made in (
                (f"{method} of {size}", own_generator),
                (f"{method} of {size}, usual", None),
            ):
                first = joined(draw, empty, made, calls)
                second = joined(draw, empty, made, calls)
                yield holds(f"{label}, the next draws", first != second, "they come again")
                has_moved = any(row != first[0] for row in first)
                yield holds(f"{label}, single draws", has_moved, "each one is the same")


def joined(draw: Draw, empty: Any, made: Any, calls: int) -> List[Sequence[float]]:
    return [flat_list(draw(empty.clone(), made)) for _ in range(calls)]


def states_that_are_kept(device: str) -> Iterator[Part]:
    """Catches a state that does not bring the same numbers back, and two seeds that are alike."""
    for method, draw in DRAWERS.items():
        for size in (7, 1025):
            empty = torch.zeros(size, device=device)
            made = torch.Generator(device=device).manual_seed(7)
            joined(draw, empty, made, 3)
            state = made.get_state()
            first = joined(draw, empty, made, 12)
            made.set_state(state)
            again = joined(draw, empty, made, 12)
            label = f"{method} of {size}"
            yield holds(f"{label}, the same state", again == first, "gives other numbers")
            other = joined(draw, empty, made.manual_seed(8), 12)
            yield holds(f"{label}, another seed", other != first, "gives the same numbers")
