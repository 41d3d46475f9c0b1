"""The smallest real computation of each companion, against torch in float64.

Each is given torch, the companion's module and the device.
"""

from __future__ import annotations

import math
from typing import Any, Callable

from ..values import asked
from .companion import HALF, CannotHere, Compared

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


PRODUCT_MODEL = (
    b"\x08\x08"  # the version of the form
    b":[\n\x11\n\x01a\n\x01b\x12\x01c\x22\x06MatMul\x12\x07product"  # c = MatMul(a, b)
    b"Z\x13\n\x01a\x12\x0e\n\x0c\x08\x01\x12\x08\n\x02\x08\x30\n\x02\x08\x40"  # a: float [48, 64]
    b"Z\x13\n\x01b\x12\x0e\n\x0c\x08\x01\x12\x08\n\x02\x08\x40\n\x02\x08\x20"  # b: float [64, 32]
    b"b\x13\n\x01c\x12\x0e\n\x0c\x08\x01\x12\x08\n\x02\x08\x30\n\x02\x08\x20"  # c: float [48, 32]
    b"B\x02\x10\x0d"  # of operator set 13
)
"""An ONNX model in protobuf's encoding (onnx.proto of ONNX 1.14)."""


def onnxruntime(torch: Any, ort: Any, device: str) -> Compared:
    """A product by a session that really runs on the device: it falls back in silence."""
    name, _, index = device.partition(":")
    wanted = f"{name.upper()}ExecutionProvider"
    if wanted not in ort.get_available_providers():
        raise CannotHere("this is its build for the CPU; onnxruntime-gpu has the GPU's")
    options = {"device_id": int(index)} if index else {}
    session = ort.InferenceSession(PRODUCT_MODEL, providers=[(wanted, options)])
    used = session.get_providers()[0]
    if used != wanted:
        raise RuntimeError(f"it fell back to {used}: its CUDA libraries do not load")
    a, b = numbers(torch, 48, 64), numbers(torch, 64, 32)
    found = session.run(None, {"a": a.numpy(), "b": b.numpy()})[0]
    # Its products are TF32 on a GPU.
    return torch.from_numpy(found), a.double() @ b.double(), 0.1 if index else 1e-3


def bitsandbytes(torch: Any, bits: Any, device: str) -> Compared:
    """A product of 8-bit numbers is exact."""
    a, b = (numbers(torch, rows, 64).mul(40).clamp(-127, 127).to(torch.int8) for rows in (16, 32))
    found = bits.functional.int8_linear_matmul(a.to(device), b.to(device))
    return found, a.long() @ b.long().T, 0
