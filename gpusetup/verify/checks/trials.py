"""A function on the device, with its gradients, held to its definition in float64 on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, Callable, Iterator, Sequence, Tuple

import torch

from ..judging.precision import UNIT_ROUNDOFF, matmul_limit, read_precision
from ..judging.tolerance import Part, agree, numbers

ALGORITHMS = 4.0
"""Winograd's transformations lose more than a plain sum; 4 covers those that libraries choose."""


@dataclass
class Trial:
    """What is computed, and what it must be."""

    label: str
    run: Callable[..., Any]
    definition: Callable[..., Any]
    """Written with other operators than the one that is tried."""
    inputs: Sequence[Any]
    """On the CPU. Those that are fractions have gradients."""
    share: float
    """The error allowed, relative to an element and to the root mean square of its tensor."""

    @cached_property
    def exact(self) -> Tuple[Any, ...]:
        """The answer and the gradients by the definition in float64."""
        return differentiated(self.definition, [_widened(x) for x in self.inputs])


def compared(trial: Trial, device: str, way: str = "") -> Iterator[Part]:
    """The answer, and the gradient by each input."""
    found = differentiated(trial.run, [x.to(device) for x in trial.inputs])
    for place, (here, wanted) in enumerate(zip(found, trial.exact)):
        label = trial.label + way + (f", gradient {place}" if place else "")
        yield agree(label, here, wanted, trial.share * sizes(wanted))


def differentiated(run: Callable[..., Any], inputs: Sequence[Any]) -> Tuple[Any, ...]:
    """The answer of a function, and its gradient by each input that is a fraction."""
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    found = run(*leaves)
    upstream = torch.ones_like(found) if not found.dim() else _weights(found)
    found.backward(upstream)
    return (found.detach(), *(leaf.grad for leaf in leaves if leaf.requires_grad))


def _widened(x: Any) -> Any:
    return x.double() if x.is_floating_point() else x


def _weights(found: Any) -> Any:
    """Numbers that every format holds exactly, other ones for each element of a row."""
    made = numbers(torch, *found.shape, salt=990).bfloat16().to(torch.float16)
    return made.to(found.dtype).to(found.device)


def sizes(wanted: Any) -> Any:
    """Of elements that are sums of larger terms: at least the root mean square of their tensor."""
    return wanted.abs() + wanted.square().mean().sqrt()


def share_of_sums(precision: str, inner: int) -> float:
    """The error allowed of sums of `inner` products, relative to the sums."""
    return ALGORITHMS * matmul_limit(precision, inner) * sqrt(inner)


def capability_of(device: str) -> Any:
    """The compute capability of a GPU, (major, minor); None for the CPU."""
    if not device.startswith("cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


def precision_of(device: str) -> str:
    """The name of what float32 products are computed in here: `ieee`, `tf32`, `bf16`."""
    return read_precision(torch, device, capability_of(device)).name


def roundoff_of(device: str) -> float:
    return UNIT_ROUNDOFF[precision_of(device)]
