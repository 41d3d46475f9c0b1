"""Mixed precision: a few steps under autocast, and a scaler of gradients that notices overflows."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import torch

from ..judging.tolerance import Part, holds, judged, numbers, same, source
from ..values import PASSED, SKIPPED, Outcome

STEPS, RATE = 12, 0.3
LOSS_LEFT = 0.5
"""The share of the first loss that may be left after STEPS. A sound training leaves a quarter."""
LEFT = "of the first loss"
FIRST_SCALE = 2.0**10
"""Large enough to be a test of scaling, small enough that nothing overflows in float16 here."""
TOO_LARGE = 2.0**40
"""A scale at which every float16 gradient overflows: 65504 is its greatest number."""


class Descent:
    """Plain gradient descent, as a GradScaler sees an optimizer.

    Not `torch.optim.SGD`: to construct one imports torch's compiler, which takes as long as torch.
    """

    def __init__(self, parameters: List[Any]) -> None:
        self.param_groups: List[Dict[str, Any]] = [{"params": parameters}]

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.add_(parameter.grad, alpha=-RATE)


def trained(device: str, low: Any, scaler: Any, steps: int) -> Tuple[List[float], str]:
    """The losses of a net of two layers, under autocast, with a scaler or None; and the format in
    which autocast really multiplied. The same numbers everywhere."""
    made = source(torch, 1)
    inputs = torch.randn(128, 32, generator=made)
    targets = torch.tanh(inputs @ torch.randn(32, 8, generator=made) / 4).to(device)
    shapes = ((32, 64), (64,), (64, 8), (8,))
    starts = [torch.randn(*shape, generator=made) / 6 for shape in shapes]
    leaves = [each.clone().to(device).requires_grad_() for each in starts]
    descent, inputs, losses = Descent(leaves), inputs.to(device), []
    for _ in range(steps):
        for leaf in leaves:
            leaf.grad = None
        with torch.autocast(device_type=device.partition(":")[0], dtype=low):
            seen = torch.relu(torch.addmm(leaves[1], inputs, leaves[0]))
            guess = torch.addmm(leaves[3], seen, leaves[2])
        loss = ((guess.float() - targets) ** 2).mean()
        losses.append(float(loss.item()))
        if scaler is None:
            loss.backward()
            descent.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(descent)
            scaler.update()
    still = any(leaf.cpu().equal(start) for leaf, start in zip(leaves, starts))
    return losses, f"{guess.dtype}" + (", and a parameter did not move" if still else "")


def scaler_of(device: str, scale: float) -> Any:
    """`torch.amp.GradScaler` from torch 2.3 on, before that the one of `torch.cuda.amp`."""
    options = {"init_scale": scale, "growth_interval": 8}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.partition(":")[0], **options)
    return torch.cuda.amp.GradScaler(**options)


def amp(device: str) -> Outcome:
    """A few steps of mixed-precision training lower the loss: float16 with a scaler on GPUs,
    bfloat16 on the CPU."""
    on_gpu = device.startswith("cuda")
    low = torch.float16 if on_gpu else torch.bfloat16
    scaler = scaler_of(device, FIRST_SCALE) if on_gpu else None
    losses, told = trained(device, low, scaler, STEPS)
    parts = [holds("autocast", told == f"{low}", f"multiplied in {told}, not in {low}")]
    if scaler:
        parts.append(holds("the scale", scaler.get_scale() >= FIRST_SCALE, "backed off"))
    return _fallen(parts, losses, f"{STEPS} steps in {str(low)[6:]}, the loss falls")


def _fallen(parts: List[Part], losses: List[float], detail: str) -> Outcome:
    """A failure as it is; else what was done, and how much of the loss is left."""
    left = losses[-1] / losses[0]
    outcome = judged([*parts, holds("the loss", left < LOSS_LEFT, f"{left:.2f} of it is left")], "")
    return outcome if outcome.status != PASSED else Outcome(PASSED, detail, left, LOSS_LEFT, LEFT)


def grad_scaler(device: str) -> Outcome:
    """float16 with a GradScaler: overflows are noticed, their steps left out, the scale backs off,
    and training goes on."""
    if not device.startswith("cuda") and not hasattr(torch.amp, "GradScaler"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has a GradScaler for GPUs only")
    scaler = scaler_of(device, TOO_LARGE)
    losses, _ = trained(device, torch.float16, scaler, 45)
    detail = f"from a scale of {TOO_LARGE:g} it backed off to {scaler.get_scale():g}"
    backed = holds("the scale", scaler.get_scale() < 2.0**30, f"{scaler.get_scale():g}")
    return _fallen([backed, *_one_spoilt(device)], losses, f"{detail}, then the loss falls")


SPOILT = (1, 7, 33, 1031, 65_543)
"""Sizes of gradients of which one number is spoilt: none is a multiple of a vector."""


def _one_spoilt(device: str) -> Iterator[Part]:
    """One infinity or NaN, in any place of any gradient, is noticed; without one none is, and each
    gradient comes back from its scale."""
    exact = [numbers(torch, size, salt=60 + place) for place, size in enumerate(SPOILT)]
    leaves = [torch.zeros(size, device=device) for size in SPOILT]
    scaler, descent = scaler_of(device, 8.0), Descent(leaves)
    scaler.scale(torch.ones((), device=device))
    ends = [(place, at) for place, size in enumerate(SPOILT) for at in {0, size // 2, size - 1}]
    wheres: Tuple[Any, ...] = (None, *ends)
    for turn, where in enumerate(wheres):
        before = scaler.get_scale()
        for leaf, grad in zip(leaves, exact):
            leaf.grad = grad.to(device) * before
        if where:
            leaves[where[0]].grad[where[1]] = float("inf" if turn % 2 else "nan")
        scaler.step(descent)
        scaler.update()
        good = scaler.get_scale() == (before / 2 if where else before)
        yield holds(f"one number at {where}", good, f"the scale is {scaler.get_scale():g}")
    yield from (same("one step of all", leaf, -RATE * grad) for leaf, grad in zip(leaves, exact))
