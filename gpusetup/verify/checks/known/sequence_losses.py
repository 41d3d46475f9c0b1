"""CTC losses of sequences that are shorter than their tensor, computed in Python. Part of the check
`losses`.

In CTC, a path has one class per step. It gives the target if repeated classes are merged and blanks
(class 0) are removed, and a target's probability is the sum over all such paths. Only the first
`input_lengths` steps of a sequence count.
"""

from __future__ import annotations

import itertools
import math
from math import fsum
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from .answers import Limit, exactly, near, roundoff, tensor_of

REDUCTIONS = ("none", "mean", "sum")
Target = Tuple[int, ...]


class Sequences(NamedTuple):
    """A batch of sequences, each with its length and target."""

    steps: int
    """The number of time steps in the tensor."""
    classes: int
    input_lengths: Tuple[int, ...]
    targets: Tuple[Target, ...]

    @property
    def label(self) -> str:
        return f"ctc_loss of {self.input_lengths} of {self.steps} steps, {self.classes} classes"

    def probabilities(self, number: int) -> List[List[float]]:
        """The probability of each class at each step of the tensor, for sequence `number`."""
        rows: List[List[float]] = []
        for step in range(self.steps):
            # The weights are from 1 to 7, and differ between neighbouring steps, classes and
            # sequences.
            weights = [
                1 + (5 * step + 3 * label + 11 * number) % 7 for label in range(self.classes)
            ]
            total = sum(weights)
            rows.append([weight / total for weight in weights])
        return rows

    def losses(self) -> List[float]:
        """The exact loss of each sequence, from the steps that belong to it."""
        losses: List[float] = []
        for number, target in enumerate(self.targets):
            steps = self.probabilities(number)[: self.input_lengths[number]]
            losses.append(-math.log(probability_of(target, steps)))
        return losses


TINY = Sequences(6, 3, (6, 4, 5, 6), ((1, 2), (2,), (1, 1), (2, 1, 2)))
"""A case so small that Python can list all 3**6 paths."""
CASES = (
    TINY,
    # One sequence has the full length, and one has as many steps as its target has labels.
    Sequences(40, 6, (40, 17, 5, 33), ((1, 2, 3, 4, 5), (3, 3, 1), (2, 4, 2, 5, 1), (5,))),
    # Targets with 70 and with 32 labels, for which a block of threads needs several turns.
    Sequences(150, 9, (150, 101), (tuple(range(1, 8)) * 10, tuple(range(8, 0, -1)) * 4)),
)


def probability_of(target: Target, steps: Sequence[Sequence[float]]) -> float:
    """The probability of a target: the sum over all its paths, computed step by step (the forward
    algorithm of CTC)."""
    # The states are the target's labels, with blanks before, between and after them.
    states = [0]
    for label in target:
        states += [label, 0]
    # A path starts with a blank or with the first label.
    forward = [0.0] * len(states)
    forward[0] = steps[0][0]
    if target:
        forward[1] = steps[0][target[0]]
    for probabilities in steps[1:]:
        arrived: List[float] = []
        for place, label in enumerate(states):
            # A path stays in its state, or comes from the previous state.
            probabilities_before = forward[max(0, place - 1) : place + 1]
            # A blank may be skipped between two different labels.
            if place >= 2 and label and label != states[place - 2]:
                probabilities_before.append(forward[place - 2])
            arrived.append(fsum(probabilities_before) * probabilities[label])
        forward = arrived
    return fsum(forward[-2:])


def probability_of_all_paths(target: Target, steps: Sequence[Sequence[float]]) -> float:
    """The probability of a target, computed from the definition: list every path, merge it, and
    compare it with the target."""
    probabilities: List[float] = []
    classes = range(len(steps[0]))
    for path in itertools.product(classes, repeat=len(steps)):
        merged = [label for label, _ in itertools.groupby(path)]
        labels = tuple(label for label in merged if label)
        if labels == target:
            factors = [row[label] for row, label in zip(steps, path)]
            probabilities.append(math.prod(factors))
    return fsum(probabilities)


def sequence_losses(device: str) -> Iterator[Part]:
    """Catches a loss that counts steps after a sequence's end, and a mean that divides by the wrong
    lengths."""
    for dtype_name in ("float32", "float64"):
        for case in CASES:
            yield from losses_of_case(case, dtype_name, device)
        yield from losses_of_paths(dtype_name, device)


def log_probabilities(case: Sequences, dtype_name: str, device: str) -> Any:
    """The log-probabilities of a case as a tensor of steps x sequences x classes."""
    values: List[float] = []
    sequences = [case.probabilities(number) for number in range(len(case.targets))]
    for step in range(case.steps):
        for rows in sequences:
            values += map(math.log, rows[step])
    shape = (case.steps, len(case.targets), case.classes)
    return tensor_of(values, dtype_name, device, *shape)


def limit_of(case: Sequences, dtype_name: str) -> Limit:
    """The error allowed in a loss. Each step adds a logarithm and is rounded in proportion to the
    loss so far."""
    unit = 4 * case.steps * roundoff(dtype_name)
    return Limit(unit, unit)


def reduced(losses: List[float], targets: Sequence[Target], reduction: str) -> List[float]:
    """The losses after the reduction. For `mean`, torch first divides each loss by the length of
    its target."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return [fsum(losses)]
    shares = [loss / len(target) for loss, target in zip(losses, targets)]
    return [fsum(shares) / len(shares)]


def losses_of_case(case: Sequences, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the loss with each reduction, with the targets in a padded matrix and in one
    concatenated row."""
    limit = limit_of(case, dtype_name)
    lengths = [len(target) for target in case.targets]
    input_lengths = tensor_of(case.input_lengths, "int64", device)
    target_lengths = tensor_of(lengths, "int64", device)
    # Pad shorter targets with class 1, which must not be read.
    rows: List[int] = []
    behind: List[int] = []
    for target in case.targets:
        filling = [1] * (max(lengths) - len(target))
        rows += [*target, *filling]
        behind += target
    in_rows = tensor_of(rows, "int64", device, len(lengths), max(lengths))
    one_behind_the_other = tensor_of(behind, "int64", device)

    exact_losses = case.losses()
    leaf = log_probabilities(case, dtype_name, device).requires_grad_()
    for reduction in REDUCTIONS:
        exact = reduced(exact_losses, case.targets, reduction)
        for layout, targets in (("in rows", in_rows), ("in one row", one_behind_the_other)):
            computed = torch.nn.functional.ctc_loss(
                leaf, targets, input_lengths, target_lengths, reduction=reduction
            )
            label = f"{case.label}, {dtype_name}, targets {layout}, {reduction}"
            yield near(label, computed, exact, limit)

        # The steps after a sequence's end must have gradient 0, because they do not affect its
        # loss.
        (gradient,) = torch.autograd.grad(computed.sum(), leaf)
        for number, length in enumerate(case.input_lengths):
            rest = gradient[length:, number]
            zeros = [0.0] * rest.numel()
            yield exactly(f"gradient behind the end of {number}, {label}", rest, zeros)


def losses_of_paths(dtype_name: str, device: str) -> Iterator[Part]:
    """Catches wrongly merged paths: compares the loss of each sequence with the sum over all its
    paths."""
    log_probability = log_probabilities(TINY, dtype_name, device)
    for number, target in enumerate(TINY.targets):
        length = TINY.input_lengths[number]
        steps = TINY.probabilities(number)[:length]
        exact = -math.log(probability_of_all_paths(target, steps))
        targets = tensor_of(target, "int64", device, 1, len(target))
        # Test the loss twice: with a tensor that ends with the sequence, and with a longer tensor.
        for extent in (length, TINY.steps):
            inputs = log_probability[:extent, number : number + 1]
            computed = torch.nn.functional.ctc_loss(
                inputs, targets, (length,), (len(target),), reduction="sum"
            )
            label = f"ctc_loss of {target} in {length} of {extent} steps, {dtype_name}"
            yield near(label, computed, [exact], limit_of(TINY, dtype_name))
