"""Mixed precision step by step: which format autocast computes in, and what the scaler does.

All numbers are powers of two and small whole numbers, so each step is exact.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any, Dict, Iterator, List, Tuple

import torch

from ...judging.tolerance import Part, holds
from ...values import Outcome, kind
from ..training import Descent, scaler_of
from .answers import Limit, ask_all, exactly, formats_on, near, roundoff, tensor_of


def mixed_precision(device: str) -> Outcome:
    """Autocast computes in the formats that it names, and the scaler's steps are exact."""
    questions = (formats_of_autocast, gradients_through_autocast, scales_that_grow, unscaled_steps)
    return ask_all(device, questions, "numbers that are exact in every format")


def low_formats(device: str) -> List[str]:
    """The formats that autocast offers on a device."""
    names: List[str] = [name for name in ("bfloat16", "float16") if name in formats_on(device)]
    # Before torch 2.3 autocast of a CPU knows bfloat16 alone.
    if kind(device) == "cpu" and not hasattr(torch.amp, "GradScaler"):
        return [name for name in names if name == "bfloat16"]
    return names


def formats_of_autocast(device: str) -> Iterator[Part]:
    """Catches a product that stays in float32, and a loss or norm that is made in 16 bits."""
    for name in low_formats(device):
        low = getattr(torch, name)
        inputs = torch.ones(4, 16, device=device)
        with torch.autocast(kind(device), dtype=low):
            product = inputs @ inputs.t()
            computed: Dict[str, Tuple[Any, Any]] = {
                "a product": (product, low),
                "a linear layer": (torch.nn.functional.linear(inputs, inputs), low),
                "a batch of products": (torch.bmm(inputs[None], inputs.t()[None]), low),
                "a loss": (torch.nn.functional.mse_loss(product, product * 2), torch.float32),
            }
            with torch.autocast(kind(device), enabled=False):
                computed["a product outside"] = (inputs @ inputs.t(), torch.float32)
        computed["a product behind"] = (inputs @ inputs.t(), torch.float32)
        for label, (tensor, expected) in computed.items():
            message = f"is made in {tensor.dtype}, not in {expected}"
            yield holds(f"{label} under autocast to {name}", tensor.dtype == expected, message)
        yield exactly(f"numbers of a product under autocast to {name}", product, [16.0] * 16)


def gradients_through_autocast(device: str) -> Iterator[Part]:
    """Catches a weight that is cast once and then learns from one of its two uses alone."""
    for name in low_formats(device):
        for rows in (3, 65):
            weight = torch.ones(5, 17, device=device, requires_grad=True)
            inputs = torch.full((rows, 17), 2.0, device=device)
            with torch.autocast(kind(device), dtype=getattr(torch, name)):
                first = torch.nn.functional.linear(inputs, weight)
                second = torch.nn.functional.linear(inputs * 0.5, weight)
            (first.float().sum() + second.float().sum()).backward()
            label = f"gradient of a shared weight, {rows} rows, autocast to {name}"
            yield holds(f"{label}, format", weight.grad.dtype == torch.float32, "is not float32")
            # Two from the first use and one from the second, of each row.
            yield exactly(label, weight.grad, [3.0 * rows] * (5 * 17))


def has_scaler(device: str) -> bool:
    return kind(device) != "cpu" or hasattr(torch.amp, "GradScaler")


def scales_that_grow(device: str) -> Iterator[Part]:
    """Catches a scale that does not grow after its interval, or that an overflow leaves alone."""
    if not has_scaler(device):
        return
    leaf = torch.zeros(17, device=device)
    scaler, descent = scaler_of(device, 64.0), Descent([leaf])
    expected = 64.0
    sound_steps = 0
    scaler.scale(torch.ones((), device=device))
    # The growth interval is 8: twice in sound steps, and counted anew after each overflow.
    for number in range(30):
        is_spoilt = number in (3, 20)
        leaf.grad = torch.full((17,), inf if is_spoilt else 1.0, device=device)
        scaler.step(descent)
        scaler.update()
        sound_steps = 0 if is_spoilt else sound_steps + 1
        if is_spoilt:
            expected /= 2
        elif sound_steps == 8:
            expected, sound_steps = expected * 2, 0
        message = f"is {scaler.get_scale():g}, must be {expected:g}"
        yield holds(f"the scale after step {number}", scaler.get_scale() == expected, message)
    state = scaler.state_dict()
    yield holds("the scale in the state", state["scale"] == expected, f"is {state['scale']:g}")


def unscaled_steps(device: str) -> Iterator[Part]:
    """Catches gradients that are unscaled twice or never before they are clipped."""
    if not has_scaler(device):
        return
    for sizes in ((1, 33), (1025, 7)):
        leaves = [torch.zeros(size, device=device, requires_grad=True) for size in sizes]
        scaler, descent = scaler_of(device, 256.0), Descent(leaves)
        loss = sum((2 * leaf).sum() for leaf in leaves)
        scaler.scale(loss).backward()
        for leaf in leaves:
            yield exactly(f"scaled gradient of {len(leaf)}", leaf.grad, [512.0] * len(leaf))
        scaler.unscale_(descent)
        for leaf in leaves:
            yield exactly(f"unscaled gradient of {len(leaf)}", leaf.grad, [2.0] * len(leaf))
        norm = 2 * sqrt(sum(sizes))
        computed = torch.nn.utils.clip_grad_norm_(leaves, norm / 2)
        limit = Limit(256 * roundoff("float32"))
        yield near(f"norm of gradients of {sizes}", computed, [norm], limit)
        scaler.step(descent)
        scaler.update()
        for leaf in leaves:
            # Clipped to one, by a rate of one. clip_grad_norm_ adds 1e-6 to the norm.
            rough = Limit(1e-5)
            label = f"step of {len(leaf)} clipped numbers"
            yield near(label, leaf, [-1.0] * len(leaf), rough)
        learned = tensor_of([3.0, -4.0], "float32", device).requires_grad_()
        learned.grad = tensor_of([30.0, -0.5], "float32", device)
        torch.nn.utils.clip_grad_value_([learned], 2.0)
        yield exactly("gradients clipped by value", learned.grad, [2.0, -0.5])
        learned.grad = tensor_of([3.0, -4.0], "float32", device)
        largest = torch.nn.utils.clip_grad_norm_([learned], 2.0, norm_type=inf)
        yield exactly("the largest gradient", largest, [4.0])
        yield near("gradients clipped by the largest", learned.grad, [1.5, -2.0], Limit(1e-5))
