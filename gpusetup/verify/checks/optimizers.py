"""Known steps of optimizers: every form of each beside the plain form in float64 on the CPU."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import torch

from ..judging.answers import checked_against, closely, normal
from ..judging.refusals import lacks_form, refuses
from ..judging.tolerance import Comparison

OPTIMIZERS: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
)
FORMS = ("foreach", "fused")
SIZES = (1, 33, 1025, 70_003)
"""Sizes of the parameters: one number, a tail behind a vector, and more than a kernel's chunk."""
STEPS = 4
STEP_ROUNDINGS = 256
"""Each step rounds a few times, and a root of a mean near zero divides by little."""


def every_form(device: str) -> Iterator[Comparison]:
    """Each form of an optimizer moves parameters as its plain form does in float64."""
    for name, options in OPTIMIZERS:
        known = parameters_after_steps(name, {**options, "foreach": False}, "cpu", torch.float64)
        for form in ("plain", *FORMS):
            chosen = {"foreach": False} if form == "plain" else {form: True}
            try:
                found = parameters_after_steps(name, {**options, **chosen}, device, torch.float32)
            except Exception as problem:
                if not (lacks_form(problem) or refuses(problem)):
                    raise
                continue
            # All sizes together: a single number may end near zero, where the rounding of its start
            # is large beside it.
            moved, right = torch.cat(found), torch.cat(known)
            yield closely(f"{form} {name}", moved, right, STEP_ROUNDINGS, "float32")


optimizer_steps = checked_against("the plain form in float64 on the CPU", every_form)


def parameters_after_steps(
    name: str, options: Dict[str, Any], device: str, dtype: Any
) -> List[Any]:
    """The parameters after some steps with the same gradients on every device."""
    parameters = []
    for size in SIZES:
        start = normal("cpu", size, salt=f"start {size}")
        parameters.append(start.to(device, dtype).requires_grad_())
    optimizer = getattr(torch.optim, name)(parameters, **options)
    for step in range(STEPS):
        for size, parameter in zip(SIZES, parameters):
            gradient = normal("cpu", size, salt=f"gradient {size} {step}")
            # No gradient is near zero, where Adam divides rounding errors by little.
            gradient += 0.1 * gradient.sign()
            parameter.grad = gradient.to(device, dtype)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]
