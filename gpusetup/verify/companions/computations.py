"""The smallest real computation of each companion, against torch in float64.

Each is given torch, the companion's module and the device.
"""

from __future__ import annotations

import math
from typing import Any, Callable

from ..values import asked
from .companion import HALF, Compared

Compute = Callable[[Any, Any, str], Compared]


def numbers(torch: Any, *shape: int) -> Any:
    """Normal random numbers on the CPU; others for each shape and seed."""
    source = torch.Generator().manual_seed((asked().seed + math.prod(shape)) % 2**63)
    return torch.randn(*shape, generator=source)


def torchvision(torch: Any, vision: Any, device: str) -> Compared:
    """Of two boxes that nearly cover each other nms keeps one."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]], device=device)
    kept = vision.ops.nms(boxes, torch.tensor([0.7, 0.9, 0.8], device=device), 0.5)
    return kept, torch.tensor([1, 2]), 0


def attends(call: Callable[..., Any], limit: float = HALF) -> Compute:
    """A causal attention in float16; `call` is given the module, q, k and v, each [1, 128, 4, 64]:
    batch, length, heads, width. Some answer a pair."""

    def compute(torch: Any, module: Any, device: str) -> Compared:
        heads = numbers(torch, 3, 1, 128, 4, 64).half()
        found = call(module, *heads.to(device))
        found = found[0] if isinstance(found, tuple) else found
        return found, exact_attention(torch, *heads), limit

    return compute


def exact_attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """The causal one in float64 on the CPU, of and in the layout batch, length, heads, width."""
    q, k, v = (each.detach().cpu().double().transpose(1, 2) for each in (q, k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones_like(scores).triu(1).bool()
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def bitsandbytes(torch: Any, bits: Any, device: str) -> Compared:
    """A product of 8-bit numbers is exact."""
    a, b = (numbers(torch, rows, 64).mul(40).clamp(-127, 127).to(torch.int8) for rows in (16, 32))
    found = bits.functional.int8_linear_matmul(a.to(device), b.to(device))
    return found, a.long() @ b.long().T, 0
