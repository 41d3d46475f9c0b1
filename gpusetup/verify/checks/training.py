"""Small trainings: mixed precision, a scaler that notices overflows, a transformer; all twice."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from ..judging.precision import UNIT_ROUNDOFF, has_bfloat16, read_precision
from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source
from ..values import PASSED, SKIPPED, Outcome, asked, kind

STEPS, RATE = 12, 1.0
LOSS_LEFT = 0.5
"""The share of the first loss that may be left after STEPS. A sound training leaves a quarter."""
FIRST_SCALE = 2.0**10
"""Large enough to be a test of scaling, small enough that nothing overflows in float16 here."""


class Descent:
    """Plain gradient descent, as a GradScaler sees an optimizer.

    Not `torch.optim.SGD`: to construct one imports torch's compiler, which takes as long as torch.
    """

    def __init__(self, parameters: List[Any]) -> None:
        self.param_groups: List[Dict[str, Any]] = [{"params": parameters}]

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.add_(parameter.grad, alpha=-RATE)


def trained(device: str, low: Any, scaler: Any) -> Tuple[List[float], str]:
    """The losses of a net of two layers, under autocast, with a scaler or None; and the format in
    which autocast really multiplied. The same numbers everywhere."""
    torch.manual_seed(asked().seed)
    inputs = torch.randn(128, 32)
    targets = torch.tanh(inputs @ torch.randn(32, 8) / 4).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    leaves = list(net.to(device).parameters())
    descent, inputs, losses = Descent(leaves), inputs.to(device), []
    for _ in range(STEPS):
        for leaf in leaves:
            leaf.grad = None
        with torch.autocast(device_type=kind(device), dtype=low):
            guess = net(inputs)
        loss = ((guess.float() - targets) ** 2).mean()
        losses.append(float(loss.item()))
        if scaler is None:
            loss.backward()
            descent.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(descent)
            scaler.update()
    return losses, str(guess.dtype)


def scaler_of(device: str, scale: float) -> Any:
    """`torch.amp.GradScaler` from torch 2.3 on, before that the one of `torch.cuda.amp`."""
    options = {"init_scale": scale, "growth_interval": 8}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind(device), **options)
    return torch.cuda.amp.GradScaler(**options)


def amp(device: str) -> Outcome:
    """A few steps of mixed-precision training lower the loss: in bfloat16 where the device has it,
    on GPUs in float16 with a scaler."""
    on_gpu = device.startswith("cuda")
    lows = [torch.float16] * on_gpu + [torch.bfloat16] * has_bfloat16(torch, device)
    parts: List[Part] = []
    for low in lows:
        scaler = scaler_of(device, FIRST_SCALE) if low == torch.float16 else None
        losses, told = trained(device, low, scaler)
        parts.append(holds("autocast", told == f"{low}", f"multiplied in {told}, not in {low}"))
        if scaler:
            parts.append(holds("the scale", scaler.get_scale() >= FIRST_SCALE, "backed off"))
    names = " and ".join(str(low)[6:] for low in lows)
    left = losses[-1] / losses[0]
    parts.append(holds("the loss", left < LOSS_LEFT, f"{left:.2f} of it is left"))
    outcome = judged(parts, "")
    if outcome.status != PASSED:
        return outcome
    detail = f"{STEPS} steps in {names}, the loss falls"
    return Outcome(PASSED, detail, left, LOSS_LEFT, "of the first loss")


def grad_scaler(device: str) -> Outcome:
    """A GradScaler notices overflows, leaves their steps out, and backs off."""
    if not device.startswith("cuda") and not hasattr(torch.amp, "GradScaler"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has a GradScaler for GPUs only")
    return judged(list(_one_spoilt(device)), "gradients that were scaled exactly")


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


WORDS, WIDTH, LENGTH = 97, 64, 24
DEEP = 256.0
"""Some thirty operations one after the other, each a few roundings of sums of up to 256 terms."""


def transformer() -> Any:
    """A small one, in float32 on the CPU."""
    torch.manual_seed(asked().seed)
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
    )
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), layers, nn.Linear(WIDTH, WORDS))


def text() -> Any:
    return torch.randint(0, WORDS, (8, LENGTH), generator=source(torch, 69))


def loss_of(model: Any, words: Any) -> Any:
    """It is to say the word before."""
    wanted = words.roll(1, 1).flatten()
    return torch.nn.functional.cross_entropy(model(words).flatten(0, 1), wanted)


def language_model(device: str) -> Outcome:
    """The transformer is trained as in float64: two batches accumulated in each of four steps,
    clipped, with momentum."""
    model, words = transformer(), text()
    exact = _trained(copy.deepcopy(model).double(), words)
    found = _trained(model.to(device), words.to(device))
    share = 8 * DEEP * UNIT_ROUNDOFF[read_precision(torch, device).name]
    parts = []
    for name, moved in exact.items():  # the length of the difference, as part of the exact one's
        away = (found[name].cpu().double() - moved).norm() / moved.norm()
        parts.append(agree(name, away, torch.zeros(()), share))
    return judged(parts, "float64 on the CPU")


def _trained(model: Any, words: Any) -> Dict[str, Any]:
    """How far each parameter moved."""
    start = {name: each.detach().clone() for name, each in model.named_parameters()}
    every = list(model.parameters())
    at_once = every[0].dtype == torch.float32  # the exact one goes from tensor to tensor
    optimizer = torch.optim.SGD(every, lr=0.5, momentum=0.9, foreach=at_once)
    for _ in range(4):
        optimizer.zero_grad()
        for batch in words.split(4):
            (loss_of(model, batch) / 2).backward()
        torch.nn.utils.clip_grad_norm_(every, 0.5)
        optimizer.step()
    return {name: each.detach() - start[name] for name, each in model.named_parameters()}


def determinism(device: str) -> Outcome:
    """The same seed twice gives the same bits, where torch promises it."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first, second, other = (_seeded(device, shift) for shift in (0, 0, 1))
        saving = _seeded(device, 0, partial(checkpoint, use_reentrant=False))
    finally:
        torch.use_deterministic_algorithms(before)
    parts = [same(name, second[name], first[name]) for name in first]
    parts += [same(f"{name}, checkpointed", saving[name], first[name]) for name in first]
    differ = not torch.equal(other["dropped"], first["dropped"])
    parts.append(holds("another seed", differ, "gives the same dropout"))
    hint = (
        "results are not reproducible here: run the check again; if it fails again, the device's "
        "memory may be faulty"
    )
    return judged(parts, "the same run, every bit", hint)


def _seeded(
    device: str, shift: int, run: Any = lambda part, *given: part(*given)
) -> Dict[str, Any]:
    """Convolution, dropout and a product: what came out, and the gradients."""
    functional = torch.nn.functional
    torch.manual_seed((asked().seed + shift) % 2**63)
    image = torch.randn(16, 3, 24, 24, device=device)
    shapes = ((8, 3, 3, 3), (8, 8 * 24 * 24))
    leaves = [torch.randn(shape, device=device).requires_grad_() for shape in shapes]
    seen = functional.conv2d(image, leaves[0], padding=1).relu()
    dropped = run(functional.dropout, seen, 0.25)
    loss = functional.linear(dropped.flatten(1), leaves[1]).square().mean()
    loss.backward()
    kept = {f"gradient {place}": leaf.grad for place, leaf in enumerate(leaves)}
    return {"dropped": dropped.detach(), "loss": loss.detach(), **kept}
