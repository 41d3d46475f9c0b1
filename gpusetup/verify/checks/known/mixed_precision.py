"""Mixed precision step by step: the formats that autocast computes in, and the steps of the
GradScaler.

All numbers are powers of two and small whole numbers, so each step is exact.
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
    """Check that autocast computes in the promised formats, and that the GradScaler's steps are
    exact."""
    questions = (formats_of_autocast, gradients_through_autocast, scales_that_grow, unscaled_steps)
    return ask_all(device, questions, "numbers that are exact in every format")


def low_formats(device: str) -> List[str]:
    """The 16-bit formats that autocast supports on the device."""
    # Before torch 2.3 autocast of a CPU knows bfloat16 alone.
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
        # A sum of squares may overflow in 16 bits.
        yield has_dtype(f"a loss {setting}", loss, torch.float32)
        # Where autocast is switched off, and after its end.
        yield has_dtype(f"a product outside {setting}", outside, torch.float32)
        yield has_dtype(f"a product behind {setting}", behind, torch.float32)
        # Each of 4 x 4 sums adds up 16 ones.
        yield exactly(f"numbers of a product {setting}", product, [16.0] * 16)


def has_dtype(label: str, tensor: Any, expected: Any) -> Part:
    """Whether a tensor has the dtype that autocast promises."""
    computed = tensor.dtype
    message = f"is made in {computed}, not in {expected}"
    return holds(label, computed == expected, message)


def gradients_through_autocast(device: str) -> Iterator[Part]:
    """Catches a weight, used twice and cast once under autocast, that only gets the gradient of one
    use."""
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
            # Two from the first use and one from the second, of each row.
            exact = [3.0 * rows] * weight.numel()
            yield exactly(label, weight.grad, exact)


# --- the scaler -----------------------------------------------------------------------------------


def has_scaler(device: str) -> bool:
    """Whether torch has a GradScaler for this device; for a CPU since torch 2.3."""
    return kind(device) != "cpu" or hasattr(torch.amp, "GradScaler")


GROWTH_INTERVAL = 8
"""Steps without an overflow, after which `scaler_of`'s scale grows."""


def scales_that_grow(device: str) -> Iterator[Part]:
    """Catches a loss scale that does not grow after its interval, or is not halved after an
    overflow."""
    if not has_scaler(device):
        return
    leaf = torch.zeros(17, device=device)
    descent = Descent([leaf])
    scaler = scaler_of(device, 64.0)
    # It makes its scale on the device only when it is asked for the first time.
    scaler.scale(torch.ones((), device=device))
    expected = 64.0
    sound_steps = 0
    # The scale grows twice in sound steps, which are counted anew after each overflow.
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
    """Compare one scaled step of parameters whose gradients are all 2, clipped so that each becomes
    1."""
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
        # A gradient of one, by a rate of one. clip_grad_norm_ adds 1e-6 to the norm.
        yield near(f"step of {size} clipped numbers", leaf, [-1.0] * size, Limit(1e-5))


def clipped_gradients(device: str) -> Iterator[Part]:
    """Gradients clipped to a largest value each, and scaled down by the largest of them."""
    leaf = tensor_of([3.0, -4.0], "float32", device).requires_grad_()
    leaf.grad = tensor_of([30.0, -0.5], "float32", device)
    torch.nn.utils.clip_grad_value_([leaf], 2.0)
    yield exactly("gradients clipped by value", leaf.grad, [2.0, -0.5])

    leaf.grad = tensor_of([3.0, -4.0], "float32", device)
    largest = torch.nn.utils.clip_grad_norm_([leaf], 2.0, norm_type=inf)
    yield exactly("the largest gradient", largest, [4.0])
    # Halved, so that the largest is 2. clip_grad_norm_ adds 1e-6 to the norm before it divides, so
    # the result is not exact.
    yield near("gradients clipped by the largest", leaf.grad, [1.5, -2.0], Limit(1e-5))
