"""Checks that train small models: mixed precision, a GradScaler, and a language model."""

from __future__ import annotations

import copy
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ..judging.answers import generator, normal
from ..judging.precision import UNIT_ROUNDOFF, has_bfloat16, read_precision
from ..judging.tolerance import Comparison, agree, holds, outcome_of, same
from ..values import PASSED, SKIPPED, Outcome, kind, run_options

STEPS = 12
"""How many steps the mixed-precision training takes."""
RATE = 1.0
"""The learning rate of `Descent`."""
LOSS_LEFT = 0.5
"""The most that may be left of the first loss after STEPS: twice what a healthy device leaves."""
FIRST_SCALE = 2.0**10
"""Large enough to test scaling, and so small that nothing overflows in float16 here."""


class Descent:
    """Plain gradient descent. Constructing `torch.optim.SGD` imports torch's compiler, which takes
    as long as importing torch."""

    def __init__(self, parameters: List[Any]) -> None:
        self.param_groups: List[Dict[str, Any]] = [{"params": parameters}]

    def step(self) -> None:
        """Subtract the gradient times the learning rate from each parameter."""
        for parameter in self.param_groups[0]["params"]:
            parameter.data.add_(parameter.grad, alpha=-RATE)


def train_with_autocast(device: str, low: Any, scaler: Any) -> Tuple[List[float], str]:
    """Train under autocast, with a GradScaler unless `scaler` is None. Returns the losses, and the
    number format that really multiplied."""
    torch.manual_seed(run_options().seed)
    # Draw the network and its inputs on the CPU, so that every device trains with the same numbers.
    inputs = torch.randn(128, 32)
    targets = torch.tanh(inputs @ torch.randn(32, 8) / 4).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    parameters = list(net.to(device).parameters())
    descent = Descent(parameters)
    inputs = inputs.to(device)
    losses = []
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast(device_type=kind(device), dtype=low):
            outputs = net(inputs)
        loss = ((outputs.float() - targets) ** 2).mean()
        losses.append(float(loss.item()))
        if scaler is None:
            loss.backward()
            descent.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(descent)
            scaler.update()
    return losses, str(outputs.dtype)


def scaler_of(device: str, scale: float) -> Any:
    """A GradScaler with this initial scale; before torch 2.3 it is in another module."""
    # The scale doubles after 8 steps without an overflow, so that it also grows within STEPS.
    options = {"init_scale": scale, "growth_interval": 8}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind(device), **options)
    return torch.cuda.amp.GradScaler(**options)


def amp(device: str) -> Outcome:
    """A few steps in bfloat16 if the device has it, and on GPUs in float16 with a GradScaler."""
    # Models are often trained in float16 on Apple's GPUs too, which have no bfloat16 before
    # macOS 14.
    formats = [torch.float16] if kind(device) in ("cuda", "mps") else []
    if kind(device) != "mps" and has_bfloat16(torch, device):
        formats.append(torch.bfloat16)
    parts: List[Comparison] = []
    for low in formats:
        # Older releases of torch have no GradScaler for Apple's GPUs.
        is_scaled = low == torch.float16 and kind(device) == "cuda"
        scaler = scaler_of(device, FIRST_SCALE) if is_scaled else None
        losses, found = train_with_autocast(device, low, scaler)
        parts.append(holds("autocast", found == str(low), f"multiplied in {found}, not in {low}"))
        # Nothing overflows here, so a correct scaler does not lower its scale.
        if scaler:
            parts.append(holds("the scale", scaler.get_scale() >= FIRST_SCALE, "backed off"))
        left = losses[-1] / losses[0]
        parts.append(holds("the loss", left < LOSS_LEFT, f"{left:.2f} of it is left"))
    outcome = outcome_of(parts, "")
    if outcome.status != PASSED:
        return outcome
    names = " and ".join(str(low).replace("torch.", "") for low in formats)
    detail = f"{STEPS} steps in {names}, the loss falls"
    return Outcome(PASSED, detail, left, LOSS_LEFT, "of the first loss")


SPOILT = (1, 7, 33, 1031, 65_543)
"""Sizes of gradients in which one number is spoilt; none is a multiple of a vector width."""


def grad_scaler(device: str) -> Outcome:
    """A GradScaler notices overflows, skips their steps, and lowers its scale."""
    if kind(device) != "cuda" and not hasattr(torch.amp, "GradScaler"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has a GradScaler for GPUs only")
    return outcome_of(list(noticed_overflows(device)), "gradients that were scaled exactly")


def noticed_overflows(device: str) -> Iterator[Comparison]:
    """One infinity or NaN at any position of any gradient halves the scale; else it stays."""
    gradients = [normal("cpu", size, salt=f"gradient {size}") for size in SPOILT]
    leaves = [torch.zeros(size, device=device) for size in SPOILT]
    scaler, descent = scaler_of(device, 8.0), Descent(leaves)
    # A scaler creates its scale when it is first used.
    scaler.scale(torch.ones((), device=device))
    # In the first turn (None), nothing is spoilt.
    places: List[Optional[Tuple[int, int]]] = [None]
    for number, size in enumerate(SPOILT):
        # In a short gradient, its first, middle and last element coincide.
        places += [(number, element) for element in sorted({0, size // 2, size - 1})]
    for turn, place in enumerate(places):
        scale = scaler.get_scale()
        for leaf, gradient in zip(leaves, gradients):
            leaf.grad = gradient.to(device) * scale
        if place:
            # Infinity and NaN in turn, because both count as overflows.
            leaves[place[0]].grad[place[1]] = float("inf" if turn % 2 else "nan")
        scaler.step(descent)
        scaler.update()
        found = scaler.get_scale()
        known = scale / 2 if place else scale
        yield holds(f"one number at {place}", found == known, f"the scale is {found:g}")
    # The optimizer moved the parameters only in the turn without an infinity or NaN.
    for leaf, gradient in zip(leaves, gradients):
        yield same("one step of all", leaf, -RATE * gradient)


WORDS = 97
"""The size of the language model's vocabulary."""
WIDTH = 64
"""The width of the language model."""
LENGTH = 24
"""The number of words in a line."""
ROUNDINGS_OF_PASS = 256.0
"""The number of roundings in a forward and backward pass: some thirty operations in sequence, each
with a few roundings in sums of up to 256 terms."""


def transformer() -> Any:
    """A small transformer, in float32 on the CPU."""
    torch.manual_seed(run_options().seed)
    nn = torch.nn
    options = {"nhead": 4, "dropout": 0.0, "activation": "gelu", "norm_first": True}
    layer = nn.TransformerEncoderLayer(
        WIDTH, dim_feedforward=4 * WIDTH, batch_first=True, **options
    )
    # Switch nested tensors off, because they only speed up inference.
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), layers, nn.Linear(WIDTH, WORDS))


def loss_of(model: Any, words: Any) -> Any:
    """The loss of a model that predicts, for each word, the word before it."""
    scores = model(words).flatten(0, 1)
    # Any other word would do; before the first one comes the last, so that each has one.
    return torch.nn.functional.cross_entropy(scores, words.roll(1, 1).flatten())


def language_model(device: str) -> Outcome:
    """Train a small transformer, and compare its parameters with those of a training in float64 on
    the CPU. Each of four steps accumulates two batches, clips the gradients, and uses momentum."""
    model = transformer()
    words = torch.randint(0, WORDS, (8, LENGTH), generator=generator("words"))
    exact_moves = moves_of_training(copy.deepcopy(model).double(), words)
    moves = moves_of_training(model.to(device), words.to(device))
    # The eight batches of the four steps give eight gradients, each with the error of one pass.
    roundoff = UNIT_ROUNDOFF[read_precision(torch, device)]
    parts = []
    for name, exact_move in exact_moves.items():
        difference = (moves[name].cpu().double() - exact_move).norm()
        # Divide the error by the distance that the parameter moved in the exact training.
        share = difference / exact_move.norm()
        parts.append(agree(name, share, torch.zeros(()), 8 * ROUNDINGS_OF_PASS * roundoff))
    return outcome_of(parts, "float64 on the CPU")


def moves_of_training(model: Any, words: Any) -> Dict[str, Any]:
    """How much each element of each parameter changed in the four steps, by parameter name."""
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    parameters = list(model.parameters())
    # The exact training updates one tensor after the other, while the training under test uses
    # kernels that update lists of tensors.
    on_lists = parameters[0].dtype == torch.float32
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9, foreach=on_lists)
    for _ in range(4):
        optimizer.zero_grad()
        # Accumulate gradients over two halves of a batch, each with half of the loss.
        for batch in words.split(4):
            (loss_of(model, batch) / 2).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
    return {name: value.detach() - start[name] for name, value in model.named_parameters()}
