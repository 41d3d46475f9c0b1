"""CTC losses of sequences that end before their tensors do, summed up in Python; asked by `losses`.

CTC gives a target the probability of all paths that become the target once repeated classes are
merged and blanks (class 0) left out. Only a sequence's first `input_lengths` steps belong to it.
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
    """Sequences side by side in a tensor, each with a length and a target of its own."""

    steps: int
    """Time steps of the tensor."""
    classes: int
    input_lengths: Tuple[int, ...]
    targets: Tuple[Target, ...]

    @property
    def label(self) -> str:
        return f"ctc_loss of {self.input_lengths} of {self.steps} steps, {self.classes} classes"

    def probabilities(self, number: int) -> List[List[float]]:
        """The probability of each class at each step of the tensor, of one sequence."""
        rows: List[List[float]] = []
        for step in range(self.steps):
            # Primes mix step, class and sequence: weights from 1 to 7, neighbours differ.
            weights = [
                1 + (5 * step + 3 * label + 11 * number) % 7 for label in range(self.classes)
            ]
            total = sum(weights)
            rows.append([weight / total for weight in weights])
        return rows

    def losses(self) -> List[float]:
        """The loss of each sequence, from its own steps alone."""
        losses: List[float] = []
        for number, target in enumerate(self.targets):
            steps = self.probabilities(number)[: self.input_lengths[number]]
            losses.append(-math.log(probability_of(target, steps)))
        return losses


TINY = Sequences(6, 3, (6, 4, 5, 6), ((1, 2), (2,), (1, 1), (2, 1, 2)))
"""Small enough to write down all 3**6 paths."""
CASES = (
    TINY,
    # One of full length, and one whose target needs each of its steps.
    Sequences(40, 6, (40, 17, 5, 33), ((1, 2, 3, 4, 5), (3, 3, 1), (2, 4, 2, 5, 1), (5,))),
    # Targets past 32 and 64 labels, which take several turns of a block of threads.
    Sequences(150, 9, (150, 101), (tuple(range(1, 8)) * 10, tuple(range(8, 0, -1)) * 4)),
)


def probability_of(target: Target, steps: Sequence[Sequence[float]]) -> float:
    """The probability of a target: the sum over all its paths, computed step by step (Graves's
    forward variables)."""
    # The target with blanks before, between and after its labels.
    states = [0]
    for label in target:
        states += [label, 0]
    # A path begins with a blank or with the first label.
    forward = [0.0] * len(states)
    forward[0] = steps[0][0]
    if target:
        forward[1] = steps[0][target[0]]
    for probabilities in steps[1:]:
        arrived: List[float] = []
        for place, label in enumerate(states):
            # A path stays in its state, or comes from the state before.
            probabilities_before = forward[max(0, place - 1) : place + 1]
            # A blank may be skipped between two different labels.
            if place >= 2 and label and label != states[place - 2]:
                probabilities_before.append(forward[place - 2])
            arrived.append(fsum(probabilities_before) * probabilities[label])
        forward = arrived
    return fsum(forward[-2:])


def probability_of_all_paths(target: Target, steps: Sequence[Sequence[float]]) -> float:
    """The probability of a target by the definition: every path is listed, merged and compared with
    the target."""
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
    """Catches steps behind a sequence's end that count, and a mean over other lengths."""
    for dtype_name in ("float32", "float64"):
        for case in CASES:
            yield from losses_of_case(case, dtype_name, device)
        yield from losses_of_paths(dtype_name, device)


def log_probabilities(case: Sequences, dtype_name: str, device: str) -> Any:
    """The tensor of a case: steps x sequences x classes."""
    values: List[float] = []
    sequences = [case.probabilities(number) for number in range(len(case.targets))]
    for step in range(case.steps):
        for rows in sequences:
            values += map(math.log, rows[step])
    shape = (case.steps, len(case.targets), case.classes)
    return tensor_of(values, dtype_name, device, *shape)


def limit_of(case: Sequences, dtype_name: str) -> Limit:
    """The error allowed in a loss: each step adds a logarithm, and rounds at the size of the loss
    so far."""
    unit = 4 * case.steps * roundoff(dtype_name)
    return Limit(unit, unit)


def reduced(losses: List[float], targets: Sequence[Target], reduction: str) -> List[float]:
    """The losses as torch returns them; its mean first divides each loss by the length of its
    target."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return [fsum(losses)]
    shares = [loss / len(target) for loss, target in zip(losses, targets)]
    return [fsum(shares) / len(shares)]


def losses_of_case(case: Sequences, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare each reduction, with the targets in rows and in one concatenated row."""
    limit = limit_of(case, dtype_name)
    lengths = [len(target) for target in case.targets]
    input_lengths = tensor_of(case.input_lengths, "int64", device)
    target_lengths = tensor_of(lengths, "int64", device)
    # Behind a shorter target stands a class that must not be read.
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

        # The steps behind a sequence's end have no part in its loss.
        (gradient,) = torch.autograd.grad(computed.sum(), leaf)
        for number, length in enumerate(case.input_lengths):
            rest = gradient[length:, number]
            zeros = [0.0] * rest.numel()
            yield exactly(f"gradient behind the end of {number}, {label}", rest, zeros)


def losses_of_paths(dtype_name: str, device: str) -> Iterator[Part]:
    """Catches paths that are merged wrongly: each sequence alone, beside the sum over its paths."""
    log_probability = log_probabilities(TINY, dtype_name, device)
    for number, target in enumerate(TINY.targets):
        length = TINY.input_lengths[number]
        steps = TINY.probabilities(number)[:length]
        exact = -math.log(probability_of_all_paths(target, steps))
        targets = tensor_of(target, "int64", device, 1, len(target))
        # Once the tensor is cut, once it goes on behind the end.
        for extent in (length, TINY.steps):
            inputs = log_probability[:extent, number : number + 1]
            computed = torch.nn.functional.ctc_loss(
                inputs, targets, (length,), (len(target),), reduction="sum"
            )
            label = f"ctc_loss of {target} in {length} of {extent} steps, {dtype_name}"
            yield near(label, computed, [exact], limit_of(TINY, dtype_name))
