"""A small transformer, in float32 and bfloat16, trained; the same training twice."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict

import torch

from ..judging.refusals import has_bfloat16
from ..judging.tolerance import ROUNDOFF, agree, holds, judged, numbers, same, source
from ..values import SKIPPED, Outcome, asked
from .trials import capability_of, roundoff_of, sizes

WORDS, WIDTH, HEADS, LENGTH, BLOCKS = 97, 64, 4, 24, 2
Tensors = Dict[str, Any]
DEEP = 256.0
"""Some thirty operations one after the other, each a few roundings of sums of up to 256 terms."""


def parameters_of() -> Tensors:
    """A small transformer's parameters, in float32 on the CPU."""
    shapes = {"words": (WORDS, WIDTH), "places": (LENGTH, WIDTH), "head": (WORDS, WIDTH)}
    for block in range(BLOCKS):
        each = {"qkv": 3 * WIDTH, "out": WIDTH, "up": 4 * WIDTH}
        shapes.update({f"{block}.{name}": (rows, WIDTH) for name, rows in each.items()})
        shapes[f"{block}.down"] = (WIDTH, 4 * WIDTH)
        shapes.update({f"{block}.norm": (1, WIDTH), f"{block}.shift": (1, WIDTH)})
    return {
        name: numbers(torch, *shape, salt=70 + place) / sqrt(shape[1]) + name.endswith("norm")
        for place, (name, shape) in enumerate(shapes.items())
    }


def text() -> Any:
    return torch.randint(0, WORDS, (8, LENGTH), generator=source(torch, 69))


def loss_of(weights: Tensors, words: Any) -> Any:
    """The next-word loss of the transformer."""
    functional = torch.nn.functional
    x = functional.embedding(words, weights["words"]) + weights["places"]
    blind = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
    for block in range(BLOCKS):
        mine = {name[2:]: each for name, each in weights.items() if name[0] == str(block)}
        y = functional.layer_norm(x, (WIDTH,), mine["norm"][0], mine["shift"][0])
        joined = functional.linear(y, mine["qkv"]).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = joined.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / sqrt(WIDTH // HEADS)).masked_fill(blind, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + functional.linear(y, mine["out"])
        x = x + functional.linear(functional.gelu(functional.linear(x, mine["up"])), mine["down"])
    logits = functional.linear(x, weights["head"])
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def gradients(weights: Tensors, words: Any) -> Tensors:
    """The loss and the gradient of each parameter."""
    leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
    loss = loss_of(leaves, words)
    loss.backward()
    return {"loss": loss.detach(), **{name: leaf.grad for name, leaf in leaves.items()}}


def placed(weights: Tensors, to: Any) -> Tensors:
    return {name: each.to(to) for name, each in weights.items()}


def autograd(device: str) -> Outcome:
    """The loss and every gradient of a small transformer agree with float64 on the CPU."""
    return _as_in_float64(gradients, device, DEEP)


def language_model(device: str) -> Outcome:
    """The transformer is trained as in float64: two batches accumulated in each of four steps,
    clipped, with momentum."""
    return _as_in_float64(_trained, device, 8 * DEEP)


def _as_in_float64(run: Callable[..., Tensors], device: str, roundings: float) -> Outcome:
    weights, words = parameters_of(), text()
    exact = run(placed(weights, torch.float64), words)
    found = run(placed(weights, device), words.to(device))
    share = roundings * roundoff_of(device)
    parts = [agree(name, found[name], exact[name], share * sizes(exact[name])) for name in exact]
    return judged(parts, "float64 on the CPU")


def _trained(start: Tensors, words: Any) -> Tensors:
    """How far each parameter moved."""
    leaves = {name: each.detach().clone().requires_grad_() for name, each in start.items()}
    every = list(leaves.values())
    at_once = every[0].dtype == torch.float32  # the exact one goes from tensor to tensor
    optimizer = torch.optim.SGD(every, lr=0.5, momentum=0.9, foreach=at_once)
    for _ in range(4):
        optimizer.zero_grad()
        for batch in words.split(4):
            (loss_of(leaves, batch) / 2).backward()
        torch.nn.utils.clip_grad_norm_(every, 0.5)
        optimizer.step()
    return {name: leaf.detach() - start[name] for name, leaf in leaves.items()}


def amp_bfloat16(device: str) -> Outcome:
    """A transformer under bfloat16 autocast: what should be rounded is, weights stay float32,
    the gradients are those of float64 but for the rounding."""
    if not has_bfloat16(capability_of(device)):
        return Outcome(SKIPPED, "this GPU has no bfloat16: hardware from 8.0 on has it")
    weights, words = parameters_of(), text()
    exact = gradients(placed(weights, torch.float64), words)
    here = placed(weights, device)
    with torch.autocast(device_type=device.partition(":")[0], dtype=torch.bfloat16):
        product = torch.nn.functional.linear(here["words"], here["0.qkv"])
        found = gradients(here, words.to(device))
    parts = [holds("dtype of a product", product.dtype == torch.bfloat16, str(product.dtype))]
    for name, wanted in exact.items():
        parts.append(holds(f"dtype of {name}", found[name].dtype == torch.float32, "is rounded"))
        away = (found[name].cpu().double() - wanted).norm() / wanted.norm()
        parts.append(agree(name, away, torch.zeros(()), 16 * ROUNDOFF["bfloat16"]))
    return judged(parts, "float64, as far as bfloat16 reaches")


def determinism(device: str) -> Outcome:
    """The same seed twice gives the same bits, where torch promises it."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first, second, other = (_seeded(device, shift) for shift in (0, 0, 1))
    finally:
        torch.use_deterministic_algorithms(before)
    parts = [same(name, second[name], first[name]) for name in first]
    differ = not torch.equal(other["dropped"], first["dropped"])
    parts.append(holds("another seed", differ, "gives the same dropout"))
    hint = "results here cannot be reproduced: run it again, then suspect the memory of the device"
    return judged(parts, "the same run, every bit", hint)


def _seeded(device: str, shift: int) -> Tensors:
    """Convolution, dropout and a product: what came out, and the gradients."""
    functional = torch.nn.functional
    torch.manual_seed((asked().seed + shift) % 2**63)
    image = torch.randn(16, 3, 24, 24, device=device)
    shapes = ((8, 3, 3, 3), (8, 8 * 24 * 24))
    leaves = [torch.randn(shape, device=device).requires_grad_() for shape in shapes]
    seen = functional.conv2d(image, leaves[0], padding=1).relu()
    dropped = functional.dropout(seen, 0.5)
    loss = functional.linear(dropped.flatten(1), leaves[1]).square().mean()
    loss.backward()
    kept = {f"gradient {place}": leaf.grad for place, leaf in enumerate(leaves)}
    return {"dropped": dropped.detach(), "loss": loss.detach(), **kept}
