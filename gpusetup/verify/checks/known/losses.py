"""Losses of pairs of numbers, by each reduction, with their gradients; Python works them out.

Every loss is a sum over elements, so one element's loss and its slope say what all must be.
"""

from __future__ import annotations

import functools
import math
import warnings
from math import fsum
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    Limit,
    ask_all,
    formats_on,
    near,
    offered,
    repeated,
    roundoff,
    tensor_of,
)
from .gradients import slope

REDUCTIONS = ("none", "mean", "sum")
LENGTHS = (17, 1027)
NUMBERS = (0.25, -1.5, 3.0, -0.125, 2.25, -4.0, 0.625)
TARGETS = (1.0625, -1.1875, 0.4375, 1.8125, -3.3125)
"""None is 0, 1 or 2 away from a number: there some losses have corners."""
SHARES = (0.25, 0.5, 0.75, 0.375, 0.625)
"""Probabilities and other numbers between 0 and 1."""
SIGNS = (1.0, -1.0, -1.0)
FLAGS = (1.0, 0.0, 0.0, 1.0)


class Loss(NamedTuple):
    """One of torch's losses, and the loss of one pair in Python."""

    name: str
    run: Callable[..., Any]
    """(inputs, targets, reduction=...) -> the loss."""
    exact: Callable[[float, float], float]
    """(input, target) -> the loss of this pair."""
    numbers: Sequence[float] = NUMBERS
    targets: Sequence[float] = TARGETS


def with_target(loss: Loss, target: float, number: float) -> float:
    """The loss of one pair, as a function of its input."""
    return loss.exact(number, target)


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def smooth_l1(x: float, y: float) -> float:
    """Half the square below a distance of 1."""
    distance = abs(x - y)
    return distance**2 / 2 if distance < 1 else distance - 0.5


def huber(x: float, y: float) -> float:
    """With delta 2."""
    distance = abs(x - y)
    return distance**2 / 2 if distance < 2 else 2 * (distance - 1)


def weighted_binary(x: float, y: float) -> float:
    """Binary cross-entropy of a logit, whose positive targets count three times."""
    return -(3 * y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x))


def losses_of_pairs() -> Sequence[Loss]:
    f = torch.nn.functional
    three = functools.partial(_with_positive_weight, 3.0)
    return (
        Loss("mse_loss", f.mse_loss, lambda x, y: (x - y) ** 2),
        Loss("l1_loss", f.l1_loss, lambda x, y: abs(x - y)),
        Loss("smooth_l1_loss", f.smooth_l1_loss, smooth_l1),
        Loss("huber_loss", functools.partial(f.huber_loss, delta=2.0), huber),
        Loss(
            "soft_margin_loss", f.soft_margin_loss, lambda x, y: -log_sigmoid(x * y), targets=SIGNS
        ),
        Loss(
            "hinge_embedding_loss",
            f.hinge_embedding_loss,
            lambda x, y: x if y > 0 else max(0.0, 1 - x),
            targets=SIGNS,
        ),
        Loss("kl_div", f.kl_div, lambda x, y: y * (math.log(y) - x), targets=SHARES),
        Loss(
            "kl_div of logarithms",
            functools.partial(f.kl_div, log_target=True),
            lambda x, y: math.exp(y) * (y - x),
        ),
        Loss("poisson_nll_loss", f.poisson_nll_loss, lambda x, y: math.exp(x) - y * x),
        Loss(
            "binary_cross_entropy",
            f.binary_cross_entropy,
            lambda x, y: -(y * math.log(x) + (1 - y) * math.log(1 - x)),
            SHARES,
            FLAGS,
        ),
        Loss(
            "binary_cross_entropy_with_logits",
            f.binary_cross_entropy_with_logits,
            lambda x, y: -(y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)),
            targets=FLAGS,
        ),
        Loss("the same, positive ones weighted", three, weighted_binary, targets=FLAGS),
    )


def _with_positive_weight(weight: float, inputs: Any, targets: Any, reduction: str) -> Any:
    """Binary cross-entropy whose positive targets count more."""
    return torch.nn.functional.binary_cross_entropy_with_logits(
        inputs, targets, reduction=reduction, pos_weight=inputs.new_tensor([weight])
    )


def losses(device: str) -> Outcome:
    """Losses and their gradients are those that Python works out, by each reduction."""
    questions = (element_losses, class_losses, losses_of_rows)
    return ask_all(device, questions, "losses in Python")


def element_losses(device: str) -> Iterator[Part]:
    """Catches a mean over another count, a lost tail, a wrong branch, and a gradient unscaled."""
    for name in formats_on(device):
        for loss in losses_of_pairs():
            for length in LENGTHS:
                for reduction in REDUCTIONS:
                    # A long sum of halves ends outside of what they can tell apart.
                    if reduction == "sum" and name in HALVES and length > 100:
                        continue
                    yield from element_loss(loss, name, device, (length, reduction))


def element_loss(loss: Loss, name: str, device: str, case: Any) -> Iterator[Part]:
    """The loss and its gradient for so many pairs, reduced in one way."""
    length, reduction = case
    numbers = repeated(loss.numbers, length)
    targets = repeated(loss.targets, length)
    pairs = list(zip(numbers, targets))
    each_loss = [loss.exact(x, y) for x, y in pairs]
    slopes = [slope(functools.partial(with_target, loss, y), x) for x, y in pairs]
    divisor = length if reduction == "mean" else 1
    exact = each_loss if reduction == "none" else [fsum(each_loss) / divisor]
    leaf = tensor_of(numbers, name, device).requires_grad_()
    pair = (leaf, tensor_of(targets, name, device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kl_div advises against its own mean
        computed = offered(functools.partial(loss.run, *pair, reduction=reduction))
    if computed is None:
        return
    label = f"{loss.name} of {length} {name} numbers, {reduction}"
    # A few operations, of which the largest numbers are below 64; a sum has as many roundings.
    size = 64 * roundoff(name) * (math.sqrt(length) if reduction == "sum" else 1)
    yield near(label, computed, exact, Limit(16 * roundoff(name), size))
    gradient = torch.autograd.grad(computed.sum(), leaf)[0]
    exact_gradient = [value / divisor for value in slopes]
    least = 32 * roundoff(name) / divisor + 2.0**-32
    limit = Limit(16 * roundoff(name), least)
    if name == "float16":
        limit = Limit(limit.relative, least + 2.0**-24)  # the least number that it has
    yield near(f"gradient of {label}", gradient, exact_gradient, limit)


# --- losses of classes ----------------------------------------------------------------------------


def class_losses(device: str) -> Iterator[Part]:
    """Catches an nll_loss that takes another class, weight or pixel, or counts what is ignored.

    Its input is a table of whole numbers, so each loss is a number of the table.
    """
    for name in formats_on(device):
        for rows, classes, pixels in ((7, 17, 1), (33, 5, 6), (130, 1000, 1), (3, 1025, 4)):
            targets = [(3 * position + 1) % classes for position in range(rows * pixels)]
            # Every fourth target is left out.
            ignored = targets[0]
            weights = [float(1 + position % 4) for position in range(classes)]
            count = rows * classes * pixels
            table = [float(position % 13 - 6) for position in range(count)]
            leaf = tensor_of(table, name, device, rows, classes, pixels).requires_grad_()
            computed = torch.nn.functional.nll_loss(
                leaf,
                tensor_of(targets, "int64", device, rows, pixels),
                tensor_of(weights, name, device),
                ignore_index=ignored,
            )
            counted: List[float] = []
            total = 0.0
            exact_gradient = [0.0] * count
            for position, target in enumerate(targets):
                if target == ignored:
                    continue
                row, pixel = divmod(position, pixels)
                place = (row * classes + target) * pixels + pixel
                total -= table[place] * weights[target]
                counted.append(weights[target])
                exact_gradient[place] = -weights[target]
            whole = fsum(counted)
            label = f"nll_loss of {rows} x {classes} x {pixels} {name}"
            # The sums of halves are rounded on their way.
            limit = Limit(16 * roundoff(name), 16 * roundoff(name))
            yield near(label, computed, [total / whole], limit)
            gradient = torch.autograd.grad(computed, leaf)[0]
            exact = [value / whole for value in exact_gradient]
            yield near(f"gradient of {label}", gradient, exact, limit)


def losses_of_rows(device: str) -> Iterator[Part]:
    """Catches a similarity or distance of rows that loses their end."""
    functional = torch.nn.functional
    for name in ("float32", "float64"):
        for length in (17, 1025):
            rows = [[float((3 * n + k) % 7 - 2) for k in range(length)] for n in range(3)]
            first, second, third = (tensor_of(row, name, device, 1, length) for row in rows)
            sizes = [math.sqrt(fsum(value * value for value in row)) for row in rows]
            limit = Limit(64 * roundoff(name), 64 * roundoff(name))
            label = f"of rows of {length} {name} numbers"
            product = fsum(map(float.__mul__, rows[0], rows[1]))
            similarity = product / (sizes[0] * sizes[1])
            computed = functional.cosine_similarity(first, second)
            yield near(f"cosine_similarity {label}", computed, [similarity], limit)
            distances = [distance_of(rows[0], rows[1]), distance_of(rows[0], rows[2])]
            computed = torch.cdist(first, torch.cat([second, third]))
            # It may be made of squares and products, whose digits are lost together.
            rough = Limit(2.0**10 * roundoff(name))
            yield near(f"cdist {label}", computed, distances, rough)
            computed = functional.pairwise_distance(first, second, eps=0.0)
            yield near(f"pairwise_distance {label}", computed, distances[:1], limit)
            computed = functional.triplet_margin_loss(first, second, third, margin=50.0, eps=0.0)
            exact = max(0.0, distances[0] - distances[1] + 50.0)
            yield near(f"triplet_margin_loss {label}", computed, [exact], rough)
            computed = functional.normalize(first, dim=1)
            exact_row = [value / sizes[0] for value in rows[0]]
            yield near(f"normalize {label}", computed, exact_row, limit)


def distance_of(first: Sequence[float], second: Sequence[float]) -> float:
    return math.sqrt(fsum((x - y) ** 2 for x, y in zip(first, second)))
