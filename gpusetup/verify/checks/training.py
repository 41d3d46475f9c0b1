"""Training: a small transformer's gradients, optimizers, mixed precision, the same result twice."""

from __future__ import annotations

import contextlib
from math import sqrt
from typing import Any, Dict, Iterator, List, Tuple

from ..judging.precision import UNIT_ROUNDOFF, read_precision
from ..judging.refusals import has_bfloat16
from ..judging.tolerance import ROUNDOFF, Part, agree, holds, judged, numbers, same, source
from ..values import PASSED, SKIPPED, Outcome, asked
from .computing import RATE, Descent, capability_of, forward, task

WORDS, WIDTH, HEADS, LENGTH, BLOCKS = 97, 64, 4, 24, 2


def parameters_of(torch: Any) -> Dict[str, Any]:
    """A small transformer's parameters, in float64 on the CPU."""
    shapes = {"words": (WORDS, WIDTH), "places": (LENGTH, WIDTH), "head": (WORDS, WIDTH)}
    for block in range(BLOCKS):
        shapes[f"{block}.qkv"] = (3 * WIDTH, WIDTH)
        shapes[f"{block}.out"] = (WIDTH, WIDTH)
        shapes[f"{block}.up"] = (4 * WIDTH, WIDTH)
        shapes[f"{block}.down"] = (WIDTH, 4 * WIDTH)
    made = {
        name: numbers(torch, *shape, salt=70 + place).double() / sqrt(shape[1])
        for place, (name, shape) in enumerate(shapes.items())
    }
    for block in range(BLOCKS):
        made[f"{block}.norm"] = torch.ones(WIDTH).double()
        made[f"{block}.shift"] = torch.zeros(WIDTH).double()
    return made


def loss_of(torch: Any, weights: Dict[str, Any], words: Any) -> Any:
    """The next-word loss of the transformer."""
    functional = torch.nn.functional
    x = weights["words"][words] + weights["places"]
    for block in range(BLOCKS):
        part = {
            name.partition(".")[2]: each
            for name, each in weights.items()
            if name.startswith(f"{block}.")
        }
        y = functional.layer_norm(x, (WIDTH,), part["norm"], part["shift"])
        q, k, v = _split(functional.linear(y, part["qkv"]))
        blind = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) / sqrt(WIDTH // HEADS)).masked_fill(blind, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + functional.linear(y, part["out"])
        x = x + functional.linear(functional.gelu(functional.linear(x, part["up"])), part["down"])
    logits = functional.linear(x, weights["head"])
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def _split(joined: Any) -> Iterator[Any]:
    """(batch, length, 3 * width) -> three of (batch, heads, length, width / heads)."""
    batch, length, _ = joined.shape
    return (
        part.reshape(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
        for part in joined.split(WIDTH, dim=-1)
    )


def gradients(torch: Any, weights: Dict[str, Any], words: Any) -> Tuple[Any, Dict[str, Any]]:
    leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
    loss = loss_of(torch, leaves, words)
    loss.backward()
    return loss.detach(), {name: leaf.grad for name, leaf in leaves.items()}


def autograd(device: str) -> Outcome:
    """The loss and every gradient of a small transformer agree with float64 on the CPU."""
    import torch

    weights = parameters_of(torch)
    words = torch.randint(0, WORDS, (8, LENGTH), generator=source(torch, 69))
    here = {name: each.float().to(device) for name, each in weights.items()}
    rounded = {name: each.float().double() for name, each in weights.items()}
    loss, exact = gradients(torch, rounded, words)
    found_loss, found = gradients(torch, here, words.to(device))
    name = read_precision(torch, device, capability_of(torch, device)).name
    share = UNIT_ROUNDOFF[name] * DEEP
    parts = [agree("loss", found_loss, loss, share * float(loss))]
    for key, wanted in exact.items():
        size = float(wanted.square().mean().sqrt())
        parts.append(agree(f"gradient of {key}", found[key], wanted, share * (wanted.abs() + size)))
    return judged(parts, f"float64 as {name}")


DEEP = 256.0
"""Some thirty operations one after the other, each a few roundings of sums of up to 256 terms."""


TOO_LARGE = 2.0**40
"""A scale at which every float16 gradient overflows: 65504 is its greatest number."""


def grad_scaler(device: str) -> Outcome:
    """float16 with a GradScaler: an overflow is noticed, the step is left out, the scale backs
    off, training goes on, and the scale grows again."""
    import torch

    if not device.startswith("cuda") and not hasattr(torch.amp, "GradScaler"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has a GradScaler for GPUs only")
    inputs, targets, leaves = task(torch, device)
    scaler = _scaler(torch, device)
    descent = Descent(leaves, RATE)
    parts: List[Part] = []
    losses: List[float] = []
    for _ in range(45):
        before = [leaf.detach().clone() for leaf in leaves]
        scale = float(scaler.get_scale())
        losses.append(_scaled_step(torch, device, (inputs, targets), descent, scaler))
        overflown = not all(bool(torch.isfinite(leaf.grad).all()) for leaf in leaves)
        moved = not all(map(torch.equal, before, leaves))
        after = float(scaler.get_scale())
        parts.append(_one_step(overflown, moved, scale, after))
    backed = sum(1 for part in parts if part.label == OVERFLOWN)
    parts.append(holds("overflow", 0 < backed < 40, f"{backed} of 45 steps overflowed"))
    left = losses[-1] / losses[0]
    parts.append(holds("training goes on", left < 0.5, f"{left:.2f} of the first loss is left"))
    parts += _one_spoilt(torch, device)
    outcome = judged(parts, "")
    if outcome.status != PASSED:
        return outcome
    detail = f"{backed} steps of 45 overflowed and were left out, then the loss falls"
    return Outcome(PASSED, detail, left, 0.5, "of the first loss")


OVERFLOWN = "a step that overflows"


def _one_step(overflown: bool, moved: bool, before: float, after: float) -> Part:
    """What must hold of one step: left out and backed off, or taken."""
    if overflown:
        good = not moved and after == before / 2
        told = f"the parameters {'moved' if moved else 'stayed'}, the scale went to {after:g}"
        return holds(OVERFLOWN, good, f"{told} from {before:g}")
    good = moved and after in (before, before * 2)
    return holds("a sound step", good, f"not taken, or the scale went from {before:g} to {after:g}")


SPOILT = (1, 7, 33, 1031, 65_543)
"""Sizes of gradients of which one number is spoilt: none is a multiple of a vector."""


def _one_spoilt(torch: Any, device: str) -> Iterator[Part]:
    """One infinity or NaN, in any place of any gradient, is noticed; without one none is, and each
    gradient comes back from its scale."""
    exact = [numbers(torch, size, salt=60 + place) for place, size in enumerate(SPOILT)]
    leaves = [torch.zeros(size, device=device) for size in SPOILT]
    scaler, descent = _scaler(torch, device, 8.0), Descent(leaves, RATE)
    scaler.scale(torch.ones((), device=device))
    ends = ((place, at) for place, size in enumerate(SPOILT) for at in {0, size // 2, size - 1})
    for turn, where in enumerate((None, *sorted(ends))):
        for leaf, grad in zip(leaves, exact):
            leaf.grad = grad.to(device) * scaler.get_scale()
        if where:
            leaves[where[0]].grad[where[1]] = float("inf" if turn % 2 else "nan")
        before = scaler.get_scale()
        scaler.unscale_(descent)
        if not where:
            yield from (same("unscaled", leaf.grad, grad) for leaf, grad in zip(leaves, exact))
        scaler.step(descent)
        scaler.update()
        good = scaler.get_scale() == (before / 2 if where else before)
        yield holds(f"one number at {where}", good, f"the scale is {scaler.get_scale():g}")
    once = [-RATE * grad for grad in exact]
    yield from (same("one step of all", leaf, right) for leaf, right in zip(leaves, once))


def _scaler(torch: Any, device: str, scale: float = TOO_LARGE) -> Any:
    options = {"init_scale": scale, "growth_interval": 8}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.partition(":")[0], **options)
    return torch.cuda.amp.GradScaler(**options)


def _scaled_step(torch: Any, device: str, data: Any, descent: Descent, scaler: Any) -> float:
    leaves = descent.param_groups[0]["params"]
    for leaf in leaves:
        leaf.grad = None
    with torch.autocast(device_type=device.partition(":")[0], dtype=torch.float16):
        guess = forward(torch, data[0], leaves)
    loss = ((guess.float() - data[1]) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(descent)
    scaler.update()
    return float(loss.item())


def amp_bfloat16(device: str) -> Outcome:
    """A transformer under bfloat16 autocast: what should be rounded is, weights stay float32,
    the gradients are those of float64 but for the rounding."""
    import torch

    if not has_bfloat16(capability_of(torch, device)):
        return Outcome(SKIPPED, "this GPU has no bfloat16: hardware from 8.0 on has it")
    weights = parameters_of(torch)
    words = torch.randint(0, WORDS, (8, LENGTH), generator=source(torch, 69))
    loss, exact = gradients(torch, weights, words)
    here = {name: each.float().to(device).requires_grad_() for name, each in weights.items()}
    with torch.autocast(device_type=device.partition(":")[0], dtype=torch.bfloat16):
        product = torch.nn.functional.linear(here["words"], here["0.qkv"])
        found = loss_of(torch, here, words.to(device))
    found.backward()
    parts = [holds("dtype of a product", product.dtype == torch.bfloat16, str(product.dtype))]
    share = 16 * ROUNDOFF["bfloat16"]
    parts.append(agree("loss", found, loss, share * float(loss)))
    for name, wanted in exact.items():
        kept = here[name].grad.dtype == torch.float32
        parts.append(holds(f"dtype of {name}", kept, str(here[name].grad.dtype)))
        away = (here[name].grad.detach().cpu().double() - wanted).norm() / wanted.norm()
        parts.append(agree(f"gradient of {name}", away, torch.zeros(()), share))
    return judged(parts, "float64, as far as bfloat16 reaches")


def determinism(device: str) -> Outcome:
    """The same seed twice gives the same bits, where torch promises it."""
    import torch

    with _deterministic(torch):
        first, second = (_trained(torch, device) for _ in range(2))
    other = _trained(torch, device, 1)
    parts = [same(name, second[name], first[name]) for name in first]
    differ = not torch.equal(other["dropped"], first["dropped"])
    parts.append(holds("another seed", differ, "gives the same dropout"))
    hint = "results here cannot be reproduced: run it again, then suspect the memory of the device"
    return judged(parts, "the same run, every bit", hint)


@contextlib.contextmanager
def _deterministic(torch: Any) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _trained(torch: Any, device: str, shift: int = 0) -> Dict[str, Any]:
    """Two steps through convolution, embedding, dropout and products; everything that came out."""
    functional = torch.nn.functional
    torch.manual_seed((asked().seed + shift) % 2**63)
    image = torch.randn(16, 3, 24, 24, device=device)
    words = torch.randint(0, 50, (16, 40), device=device)
    weights = {
        "convolution": torch.randn(8, 3, 3, 3, device=device) / 5,
        "table": torch.randn(50, 8, device=device) / 5,
        "product": torch.randn(8, 8 * 24 * 24, device=device) / 60,
    }
    kept: Dict[str, Any] = {}
    for _ in range(2):
        leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
        seen = functional.conv2d(image, leaves["convolution"], padding=1).relu()
        seen = seen + functional.embedding(words, leaves["table"]).mean(1)[..., None, None]
        kept["dropped"] = functional.dropout(seen, 0.5)
        out = functional.linear(kept["dropped"].flatten(1), leaves["product"])
        kept["loss"] = out.square().mean()
        kept["loss"].backward()
        weights = {name: leaf.detach() - 0.1 * leaf.grad for name, leaf in leaves.items()}
    return {**{name: each.detach() for name, each in kept.items()}, **weights}
