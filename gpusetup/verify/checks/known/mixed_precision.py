"""Mixed precision: the formats that autocast computes in, and the steps of the GradScaler.

The numbers are powers of two and small whole numbers, so most results are exact.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any, Iterator, List, Tuple

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, kind
from ..training import Descent, scaler_of
from .answers import Limit, ask_all, dtype_of, exactly, formats_on, near, roundoff, tensor_of


def mixed_precision(device: str) -> Outcome:
    """Check that autocast computes in the documented formats, and that the GradScaler's steps are
    right."""
    questions = (formats_of_autocast, gradients_through_autocast, scales_that_grow, unscaled_steps)
    return ask_all(device, questions, "numbers that are exact in every format")


def low_formats(device: str) -> List[str]:
    """The 16-bit formats that autocast supports on the device."""
    # Before torch 2.3, autocast on a CPU supports only bfloat16.
    candidates = ["bfloat16", "float16"] if has_scaler(device) else ["bfloat16"]
    offered_names = formats_on(device)
    return [dtype_name for dtype_name in candidates if dtype_name in offered_names]


def formats_of_autocast(device: str) -> Iterator[Part]:
    """Catches a product that stays in float32 under autocast, and a loss that is computed in 16
    bits."""
    for low_name in low_formats(device):
        low = dtype_of(low_name)
        inputs = torch.ones(4, 16, device=device)
        columns = inputs.t()
        with torch.autocast(kind(device), dtype=low):
            product = inputs @ columns
            linear = torch.nn.functional.linear(inputs, inputs)
            batch = torch.bmm(inputs[None], columns[None])
            loss = torch.nn.functional.mse_loss(product, product * 2)
            with torch.autocast(kind(device), enabled=False):
                outside = inputs @ columns
        behind = inputs @ columns

        setting = f"under autocast to {low_name}"
        yield has_dtype(f"a product {setting}", product, low)
        yield has_dtype(f"a linear layer {setting}", linear, low)
        yield has_dtype(f"a batch of products {setting}", batch, low)
        # autocast computes losses in float32, because a sum of squares may overflow in 16 bits.
        yield has_dtype(f"a loss {setting}", loss, torch.float32)
        # One product was computed where autocast is disabled, and one after the `with` block.
        yield has_dtype(f"a product outside {setting}", outside, torch.float32)
        yield has_dtype(f"a product behind {setting}", behind, torch.float32)
        # Each of the 4 x 4 sums adds up 16 ones.
        yield exactly(f"numbers of a product {setting}", product, [16.0] * 16)


def has_dtype(label: str, tensor: Any, expected: Any) -> Part:
    """Check that a tensor has the expected dtype."""
    computed = tensor.dtype
    message = f"is made in {computed}, not in {expected}"
    return holds(label, computed == expected, message)


def gradients_through_autocast(device: str) -> Iterator[Part]:
    """Catches a weight that is used twice under autocast but gets the gradient of only one use.
    Autocast casts it once for both."""
    linear = torch.nn.functional.linear
    for low_name in low_formats(device):
        for rows in (3, 65):
            weight = torch.ones(5, 17, device=device, requires_grad=True)
            inputs = torch.full((rows, 17), 2.0, device=device)
            with torch.autocast(kind(device), dtype=dtype_of(low_name)):
                first_use = linear(inputs, weight)
                second_use = linear(inputs * 0.5, weight)
            total = first_use.float().sum() + second_use.float().sum()
            total.backward()

            label = f"gradient of a shared weight, {rows} rows, autocast to {low_name}"
            is_float32 = weight.grad.dtype == torch.float32
            yield holds(f"{label}, format", is_float32, "is not float32")
            # For each row, the first use adds a gradient of 2 and the second use adds 1.
            exact = [3.0 * rows] * weight.numel()
            yield exactly(label, weight.grad, exact)


# --- the scaler -----------------------------------------------------------------------------------


def has_scaler(device: str) -> bool:
    """Whether torch has a GradScaler for this device (for a CPU since torch 2.3)."""
    return kind(device) != "cpu" or hasattr(torch.amp, "GradScaler")


GROWTH_INTERVAL = 8
"""The number of steps without an overflow after which the scaler from `scaler_of` doubles its
scale."""


def scales_that_grow(device: str) -> Iterator[Part]:
    """Catches a loss scale that does not grow after its interval, or is not halved after an
    overflow."""
    if not has_scaler(device):
        return
    leaf = torch.zeros(17, device=device)
    descent = Descent([leaf])
    scaler = scaler_of(device, 64.0)
    # The scaler creates its scale tensor only when `scale` is called for the first time.
    scaler.scale(torch.ones((), device=device))
    expected = 64.0
    sound_steps = 0
    # The scale doubles after every interval without an overflow, and each overflow restarts the
    # count.
    for number in range(30):
        has_overflow = number in (3, 20)
        gradient = inf if has_overflow else 1.0
        leaf.grad = torch.full_like(leaf, gradient)
        scaler.step(descent)
        scaler.update()
        if has_overflow:
            expected /= 2
            sound_steps = 0
        else:
            sound_steps += 1
        if sound_steps == GROWTH_INTERVAL:
            expected *= 2
            sound_steps = 0
        scale = scaler.get_scale()
        message = f"is {scale:g}, must be {expected:g}"
        yield holds(f"the scale after step {number}", scale == expected, message)
    saved_scale = scaler.state_dict()["scale"]
    yield holds("the scale in the state", saved_scale == expected, f"is {saved_scale:g}")


def unscaled_steps(device: str) -> Iterator[Part]:
    """Catches gradients that are unscaled twice, or not at all, before they are clipped."""
    if not has_scaler(device):
        return
    for sizes in ((1, 33), (1025, 7)):
        yield from clipped_step(sizes, device)
    yield from clipped_gradients(device)


def clipped_step(sizes: Tuple[int, ...], device: str) -> Iterator[Part]:
    """Compare one scaled step of parameters whose gradients are all 2, after clipping them to 1."""
    scale = 256.0
    leaves = [torch.zeros(size, device=device, requires_grad=True) for size in sizes]
    descent = Descent(leaves)
    scaler = scaler_of(device, scale)
    loss = sum((2 * leaf).sum() for leaf in leaves)
    scaler.scale(loss).backward()
    for leaf in leaves:
        size = len(leaf)
        yield exactly(f"scaled gradient of {size}", leaf.grad, [2 * scale] * size)
    scaler.unscale_(descent)
    for leaf in leaves:
        size = len(leaf)
        yield exactly(f"unscaled gradient of {size}", leaf.grad, [2.0] * size)

    norm = 2 * sqrt(sum(sizes))
    computed = torch.nn.utils.clip_grad_norm_(leaves, norm / 2)
    norm_limit = Limit(256 * roundoff("float32"))
    yield near(f"norm of gradients of {sizes}", computed, [norm], norm_limit)
    scaler.step(descent)
    scaler.update()
    for leaf in leaves:
        size = len(leaf)
        # The gradient and the learning rate are both 1. The result is not exact, because
        # clip_grad_norm_ adds 1e-6 to the norm.
        yield near(f"step of {size} clipped numbers", leaf, [-1.0] * size, Limit(1e-5))


def clipped_gradients(device: str) -> Iterator[Part]:
    """Compare gradients clipped by value, and gradients clipped by their maximum norm."""
    leaf = tensor_of([3.0, -4.0], "float32", device).requires_grad_()
    leaf.grad = tensor_of([30.0, -0.5], "float32", device)
    torch.nn.utils.clip_grad_value_([leaf], 2.0)
    yield exactly("gradients clipped by value", leaf.grad, [2.0, -0.5])

    leaf.grad = tensor_of([3.0, -4.0], "float32", device)
    largest = torch.nn.utils.clip_grad_norm_([leaf], 2.0, norm_type=inf)
    yield exactly("the largest gradient", largest, [4.0])
    # The gradients are halved, so that the largest is 2. The result is not exact, because
    # clip_grad_norm_ adds 1e-6 to the norm before it divides.
    yield near("gradients clipped by the largest", leaf.grad, [1.5, -2.0], Limit(1e-5))
