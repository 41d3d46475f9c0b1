"""Softmax, its logarithm and the losses made of them, in rows of 17 to 70,000 numbers.

A row holds a few different numbers, each many times, so its sum of exponentials is a short sum in
Python. One number weighs about as much as all others together: wherever it lies, leaving it out
shows.
"""

from __future__ import annotations

from math import exp, fsum, log, log1p
from typing import Dict, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    LEAST,
    Limit,
    ask_all,
    dice,
    formats_on,
    near,
    roundoff,
    tensor_of,
)

LENGTHS = (17, 33, 129, 256, 1000, 1025, 2049, 4097, 8193, 32_003, 70_001)
"""On both sides of what kernels are cut into; vocabularies have 32,000 to 150,000 numbers."""
OFFSETS = (0, -2, -4, 2, -8)
"""Even, so that each number is exact in bfloat16 up to 512."""
BASES: Dict[str, Sequence[int]] = {
    "float64": (0, 2**20),
    "float32": (0, 2**14, -(2**14)),
    "float16": (0, 256, -256),
    "bfloat16": (0, 256, -256),
}
"""What all numbers of a row are shifted by. The exponential of the larger ones has no end in any
format, unless the row's maximum is taken away first."""
MINUS_INFINITY = float("-inf")
IGNORED = -100
"""The target that torch's losses leave out by default."""


class Row(NamedTuple):
    """Logits, and the logarithm of the sum of their exponentials."""

    logits: List[float]
    maximum: float
    total: float
    """log of the sum of exp(logit - maximum)."""

    def log_probabilities(self) -> List[float]:
        return [logit - self.maximum - self.total for logit in self.logits]

    def probabilities(self) -> List[float]:
        return [exp(value) for value in self.log_probabilities()]


def row_of(length: int, base: int, number: int) -> Row:
    """A row with one heavy number, at another place for each number of the row."""
    chance = dice(f"row {length} {base} {number}")
    logits = [float(base + chance.choice(OFFSETS)) for _ in range(length)]
    # So far above the others that it weighs about as much as all of them.
    gap = 2 * round(log(length) / 2)
    # The last element, the first, one in the middle, and the last one of a vector of 16.
    heavy_places = (length - 1, 0, length // 2, length // 16 * 16 - 1)
    logits[heavy_places[number % len(heavy_places)]] = float(base + gap)
    if number % 2:
        logits[chance.randrange(1, length - 1)] = MINUS_INFINITY
    return row_from(logits)


def row_from(logits: List[float]) -> Row:
    maximum = max(logits)
    total = log(fsum(exp(logit - maximum) for logit in logits))
    return Row(logits, maximum, total)


def rows_of(length: int, base: int) -> List[Row]:
    """Four short rows, or two long ones: each has the heavy number elsewhere."""
    count = 4 if length < 5000 else 2
    return [row_of(length, base, number) for number in range(count)]


def share_limit(name: str, length: int) -> float:
    """The relative error of a probability: the roundings of a sum of so many exponentials.

    A vector of 16 numbers adds up a sixteenth of the row, one number after the other. If the heavy
    number comes first, each later one is rounded alike: measured half of this with torch 2.13.
    """
    if name in HALVES:
        return 4 * roundoff(name)  # all but the last rounding happens in float32
    return (32 + length / 16) * roundoff(name)


def softmax(device: str) -> Outcome:
    """Softmax, log-softmax and the losses agree with sums of exponentials worked out in Python."""
    questions = (
        probabilities_of_long_rows,
        probabilities_along_other_axes,
        gradients_of_softmax,
        cross_entropies,
        losses_of_single_numbers,
        rows_without_any_number,
    )
    return ask_all(device, questions, "sums of exponentials in Python")


def probabilities_of_long_rows(device: str) -> Iterator[Part]:
    """Catches a row that is cut off, a maximum that is not taken away, and a lost last lane."""
    for name in formats_on(device):
        for number, length in enumerate(LENGTHS):
            bases = BASES[name]
            rows = rows_of(length, bases[number % len(bases)])
            logits = [value for row in rows for value in row.logits]
            inputs = tensor_of(logits, name, device, len(rows), length)
            label = f"of {length} {name} numbers"
            exact = [value for row in rows for value in row.probabilities()]
            limit = Limit(share_limit(name, length), LEAST[name])
            computed = torch.softmax(inputs, -1)
            yield near(f"softmax {label}", computed, exact, limit)
            exact = [value for row in rows for value in row.log_probabilities()]
            # A relative error of the sum is an absolute one of its logarithm.
            limit = Limit(share_limit(name, length), share_limit(name, length))
            computed = torch.log_softmax(inputs, -1)
            yield near(f"log_softmax {label}", computed, exact, limit)


def probabilities_along_other_axes(device: str) -> Iterator[Part]:
    """Catches a softmax that is right along the last axis alone."""
    for name in formats_on(device):
        for length in (17, 65, 1025):
            rows = rows_of(length, 0)
            logits = by_columns([row.logits for row in rows])
            exact = by_columns([row.probabilities() for row in rows])
            inputs = tensor_of(logits, name, device, length, len(rows))
            # Here one number is added after the other, not a vector at a time.
            limit = Limit(share_limit(name, 16 * length), LEAST[name])
            label = f"{length} {name} numbers"
            yield near(
                f"softmax along the first axis, {label}", torch.softmax(inputs, 0), exact, limit
            )
            batch = inputs.expand(2, -1, -1)
            computed = torch.softmax(batch, 1)
            yield near(f"softmax along the middle axis, {label}", computed, exact * 2, limit)


def by_columns(rows: Sequence[Sequence[float]]) -> List[float]:
    """The elements of a matrix of which the rows are given as its columns."""
    return [value for values in zip(*rows) for value in values]


def gradients_of_softmax(device: str) -> Iterator[Part]:
    """Catches a backward pass that loses the end of a row, or another row's sum.

    The gradient of a probability p along w is p * (w - sum of all p * w).
    """
    for name in formats_on(device):
        for length in (17, 257, 4097, 70_001):
            row = row_of(length, 0, 2)
            weights = [float(position % 5 - 2) for position in range(length)]
            leaf = tensor_of(row.logits, name, device).requires_grad_()
            along = tensor_of(weights, name, device)
            probabilities = row.probabilities()
            mean = fsum(map(float.__mul__, probabilities, weights))
            exact = [p * (w - mean) for p, w in zip(probabilities, weights)]
            limit = gradient_limit(name, length)
            label = f"{length} {name} numbers"
            (computed,) = torch.autograd.grad(torch.softmax(leaf, 0), leaf, along)
            yield near(f"gradient of softmax, {label}", computed, exact, limit)
            # Of the logarithm it is w - p * (sum of all w).
            total = fsum(weights)
            exact = [w - p * total for p, w in zip(probabilities, weights)]
            (computed,) = torch.autograd.grad(torch.log_softmax(leaf, 0), leaf, along)
            yield near(f"gradient of log_softmax, {label}", computed, exact, limit)


def gradient_limit(name: str, length: int) -> Limit:
    """Gradients are made of the rounded probabilities: errors of the size of the largest one."""
    share = share_limit(name, length)
    return Limit(share, 4 * share)


# --- losses ---------------------------------------------------------------------------------------


class LossCase(NamedTuple):
    """How a cross-entropy is asked for."""

    classes: int
    reduction: str
    ignored: int = IGNORED
    is_weighted: bool = False
    smoothing: float = 0.0


CASES = (
    LossCase(17, "mean"),
    LossCase(33, "mean", is_weighted=True),
    LossCase(1000, "sum", ignored=3),
    LossCase(1025, "mean", smoothing=0.1),
    LossCase(4097, "none"),
    LossCase(32_003, "mean"),
    LossCase(129, "mean", ignored=0, is_weighted=True, smoothing=0.2),
    LossCase(70_001, "sum"),
)


def cross_entropies(device: str) -> Iterator[Part]:
    """Catches a mean that counts ignored targets, lost weights, and logits without an end."""
    for name in formats_on(device):
        for number, case in enumerate(CASES):
            bases = BASES[name]
            yield from cross_entropy(device, name, case, bases[number % len(bases)])


def cross_entropy(device: str, name: str, case: LossCase, base: int) -> Iterator[Part]:
    """One loss, of which the first row has an ignored target, and its gradient."""
    # Rows of an even number hold no minus infinity, whose loss would have no end.
    count = 5 if case.classes < 5000 else 3
    rows = [row_of(case.classes, base, 2 * number) for number in range(count)]
    targets = targets_of(case, len(rows))
    weights = [1.0] * case.classes
    if case.is_weighted:
        weights = [float(1 + position % 3) for position in range(case.classes)]
    expected = expected_loss(case, rows, targets, weights)
    logits = [value for row in rows for value in row.logits]
    leaf = tensor_of(logits, name, device, len(rows), case.classes).requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        leaf,
        tensor_of(targets, "int64", device),
        weight=tensor_of(weights, name, device) if case.is_weighted else None,
        ignore_index=case.ignored,
        reduction=case.reduction,
        label_smoothing=case.smoothing,
    )
    label = f"of {case.classes} classes, {case.reduction}, {name}"
    # The logarithm of a probability is as exact as the logit that it is made of, less the maximum.
    size = max(row.maximum - min(row.logits) + row.total for row in rows)
    limit = Limit(share_limit(name, case.classes), 4 * share_limit(name, 1) * size)
    yield near(f"cross_entropy {label}", loss, expected.values, limit)
    (computed,) = torch.autograd.grad(loss.sum(), leaf)
    limit = gradient_limit(name, case.classes)
    yield near(f"gradient of cross_entropy {label}", computed, expected.gradient, limit)


def targets_of(case: LossCase, count: int) -> List[int]:
    """The first row is ignored; the last class is among the targets."""
    chance = dice(f"targets {case}")
    targets = [chance.randrange(case.classes) for _ in range(count)]
    targets[0] = case.ignored
    targets[-1] = case.classes - 1
    return targets


class ExpectedLoss(NamedTuple):
    """The loss as torch gives it, and its gradient by the logits, row by row."""

    values: List[float]
    gradient: List[float]


def expected_loss(
    case: LossCase, rows: Sequence[Row], targets: Sequence[int], weights: Sequence[float]
) -> ExpectedLoss:
    """Worked out from the definition: -log p of the target, smoothed over all classes."""
    counted = [target for target in targets if target != case.ignored]
    divisor = fsum(weights[target] for target in counted) if case.reduction == "mean" else 1.0
    values: List[float] = []
    gradient: List[float] = []
    for row, target in zip(rows, targets):
        if target == case.ignored:
            values.append(0.0)
            gradient += [0.0] * case.classes
            continue
        # A share of the weight is spread over all classes, the rest lies on the target.
        shares = [case.smoothing / case.classes * weight for weight in weights]
        shares[target] += (1 - case.smoothing) * weights[target]
        logs = row.log_probabilities()
        values.append(-fsum(map(float.__mul__, shares, logs)) / divisor)
        whole = fsum(shares)
        gradient += [(exp(log_p) * whole - share) / divisor for log_p, share in zip(logs, shares)]
    if case.reduction != "none":
        values = [fsum(values)]
    return ExpectedLoss(values, gradient)


def losses_of_single_numbers(device: str) -> Iterator[Part]:
    """Catches an endless binary cross-entropy of large logits, and a mean of another count."""
    logits = [0.0, 1.0, -1.0, 8.0, -8.0, 96.0, -96.0] * 147
    targets = [float(position % 2) for position in range(len(logits))]
    values = [max(x, 0.0) - x * t + log1p(exp(-abs(x))) for x, t in zip(logits, targets)]
    squares = [(x - t) ** 2 for x, t in zip(logits, targets)]
    functional = torch.nn.functional
    for name in formats_on(device):
        inputs = tensor_of(logits, name, device)
        targets = tensor_of(targets, name, device)
        # The loss of -8 is the small rest of two numbers of this size.
        limit = Limit(share_limit(name, len(logits)), 16 * roundoff(name))
        losses = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        yield near(f"binary cross-entropy of {name}", losses, values, limit)
        mean = functional.binary_cross_entropy_with_logits(inputs, targets)
        yield near(
            f"mean binary cross-entropy of {name}", mean, [fsum(values) / len(values)], limit
        )
        mean = functional.mse_loss(inputs, targets)
        yield near(f"mean squared error of {name}", mean, [fsum(squares) / len(squares)], limit)


def rows_without_any_number(device: str) -> Iterator[Part]:
    """Catches a row of minus infinity alone that is given probabilities: it has none."""
    not_a_number = float("nan")
    for name in formats_on(device):
        for length in (17, 1025):
            dead = [MINUS_INFINITY] * length
            row = row_of(length, 0, 0)
            inputs = tensor_of(dead + row.logits, name, device, 2, length)
            expected = [not_a_number] * length + row.probabilities()
            limit = Limit(share_limit(name, length), LEAST[name])
            label = f"softmax of a row of minus infinity, {length} {name} numbers"
            computed = torch.softmax(inputs, 1)
            yield near(label, computed, expected, limit)
