"""Softmax, log-softmax and losses based on them, in rows of 17 to 70,001 numbers.

A row holds a few different numbers, each many times, so its sum of exponentials is a short sum in
Python. One number weighs about as much as all others together: wherever it lies, leaving it out
shows.
"""

from __future__ import annotations

from math import exp, fsum, log, log1p, nan
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    LEAST,
    Limit,
    ask_all,
    dice,
    dtype_name_of,
    dtype_of,
    formats_on,
    near,
    roundoff,
    tensor_of,
)
from .number_lists import elements_at, joined, products_of_pairs, sawtooth, scaled, there_and_back

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
"""What all numbers of a row are shifted by. The exponential of the larger ones overflows in any
format, unless the row's maximum is subtracted first."""
MINUS_INFINITY = float("-inf")
IGNORED = -100
"""The target that torch's losses leave out by default."""


class LogitsRow(NamedTuple):
    """A row of logits, with what their softmax is computed from."""

    logits: List[float]
    maximum: float
    shifted_log_sum: float
    """log of the sum of exp(logit - maximum)."""

    def log_probabilities(self) -> List[float]:
        """log p of each logit: its distance from the maximum, less `shifted_log_sum`."""
        logs: List[float] = []
        for logit in self.logits:
            distance = logit - self.maximum
            logs.append(distance - self.shifted_log_sum)
        return logs

    def probabilities(self) -> List[float]:
        return list(map(exp, self.log_probabilities()))


def row_of(length: int, base: int, number: int) -> LogitsRow:
    """A row of logits, one of which weighs about as much as all others together.

    `number`: which row it is of a batch; each has the heavy logit at another position.
    """
    chance = dice(f"row {length} {base} {number}")
    logits: List[float] = []
    for _ in range(length):
        offset = chance.choice(OFFSETS)
        logits.append(float(base + offset))

    # How far the heavy logit lies above the others; even, as all logits are.
    gap = 2 * round(log(length) / 2)
    last_of_vectors = length // 16 * 16 - 1
    heavy_positions = (length - 1, 0, length // 2, last_of_vectors)
    heavy_position = heavy_positions[number % len(heavy_positions)]
    logits[heavy_position] = float(base + gap)
    # Every second row also has a number whose probability is 0.
    if number % 2:
        position = chance.randrange(1, length - 1)
        logits[position] = MINUS_INFINITY
    return row_from(logits)


def row_from(logits: List[float]) -> LogitsRow:
    """The row of these logits, with its maximum and the log of the sum of exp(logit - maximum)."""
    maximum = max(logits)
    exponentials = [exp(logit - maximum) for logit in logits]
    shifted_log_sum = log(fsum(exponentials))
    return LogitsRow(logits, maximum, shifted_log_sum)


def rows_of(length: int, base: int) -> List[LogitsRow]:
    """Four short rows, or two long ones: each has the heavy number at another position."""
    # Fewer long rows, because Python is slow at them.
    count = 4 if length < 5000 else 2
    return [row_of(length, base, number) for number in range(count)]


def base_for(dtype_name: str, number: int) -> int:
    """One of the format's bases, by the number of the case: after the last comes the first."""
    bases = BASES[dtype_name]
    return bases[number % len(bases)]


def share_limit(dtype_name: str, length: int) -> float:
    """The relative error allowed in a probability: the rounding errors of a sum of `length`
    exponentials.

    A vector of 16 numbers adds up a sixteenth of the row, one number after the other. If the heavy
    number comes first, each later one is rounded alike: measured half of this with torch 2.13.
    """
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        # All but the last rounding happens in float32.
        return 4 * unit
    return (32 + length / 16) * unit


# --- probabilities --------------------------------------------------------------------------------


def softmax(device: str) -> Outcome:
    """Check that softmax, log-softmax and the losses agree with sums of exponentials in Python."""
    questions = (
        probabilities_of_long_rows,
        probabilities_along_other_axes,
        gradients_of_softmax,
        gradients_of_equal_logits,
        cross_entropies,
        losses_of_single_numbers,
        rows_without_any_number,
    )
    return ask_all(device, questions, "sums of exponentials in Python")


def probabilities_of_long_rows(device: str) -> Iterator[Part]:
    """Catches a softmax that cuts a row off, loses the last elements, or does not subtract the
    maximum."""
    for dtype_name in formats_on(device):
        for number, length in enumerate(LENGTHS):
            rows = rows_of(length, base_for(dtype_name, number))
            logits = joined(row.logits for row in rows)
            inputs = tensor_of(logits, dtype_name, device, len(rows), length)
            label = f"of {length} {dtype_name} numbers"
            share = share_limit(dtype_name, length)

            exact = joined(row.probabilities() for row in rows)
            computed = torch.softmax(inputs, -1)
            yield near(f"softmax {label}", computed, exact, Limit(share, LEAST[dtype_name]))

            exact = joined(row.log_probabilities() for row in rows)
            computed = torch.log_softmax(inputs, -1)
            # A relative error of the sum is an absolute one of its logarithm.
            yield near(f"log_softmax {label}", computed, exact, Limit(share, share))


def probabilities_along_other_axes(device: str) -> Iterator[Part]:
    """Catches a softmax that is only right along the last axis."""
    for dtype_name in formats_on(device):
        for length in (17, 65, 1025):
            rows = rows_of(length, 0)
            logits = by_columns([row.logits for row in rows])
            exact = by_columns([row.probabilities() for row in rows])
            inputs = tensor_of(logits, dtype_name, device, length, len(rows))
            # Here one number is added after the other, not a vector of 16 at a time.
            limit = Limit(share_limit(dtype_name, 16 * length), LEAST[dtype_name])
            label = f"{length} {dtype_name} numbers"

            computed = torch.softmax(inputs, 0)
            yield near(f"softmax along the first axis, {label}", computed, exact, limit)
            batch = inputs.expand(2, -1, -1)
            computed = torch.softmax(batch, 1)
            yield near(f"softmax along the middle axis, {label}", computed, exact * 2, limit)


def by_columns(rows: Sequence[Sequence[float]]) -> List[float]:
    """The elements, row by row, of the matrix that has these rows as its columns."""
    return joined(zip(*rows))


def gradients_of_softmax(device: str) -> Iterator[Part]:
    """Catches a backward pass of softmax that loses the end of a row, or uses another row's sum."""
    for dtype_name in formats_on(device):
        for length in (17, 257, 4097, 70_001):
            yield from gradients_of_row(length, dtype_name, device)


def gradients_of_row(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of softmax and log-softmax for one row of probabilities p and upstream
    gradients w."""
    row = row_of(length, 0, 2)
    probabilities = row.probabilities()
    weights = sawtooth(length, period=5, start=-2)
    leaf = tensor_of(row.logits, dtype_name, device).requires_grad_()
    arriving = tensor_of(weights, dtype_name, device)
    limit = gradient_limit(dtype_name, length)
    label = f"{length} {dtype_name} numbers"

    # Of p it is p * (w - sum of all p * w).
    mean = fsum(products_of_pairs(probabilities, weights))
    exact = [p * (w - mean) for p, w in zip(probabilities, weights)]
    outputs = torch.softmax(leaf, 0)
    (computed,) = torch.autograd.grad(outputs, leaf, arriving)
    yield near(f"gradient of softmax, {label}", computed, exact, limit)

    # Of the logarithm of p it is w - p * (sum of all w).
    total = fsum(weights)
    exact = [w - p * total for p, w in zip(probabilities, weights)]
    outputs = torch.log_softmax(leaf, 0)
    (computed,) = torch.autograd.grad(outputs, leaf, arriving)
    yield near(f"gradient of log_softmax, {label}", computed, exact, limit)


def gradient_limit(dtype_name: str, length: int) -> Limit:
    """How far a gradient may be off: it is computed from rounded probabilities, so a small gradient
    has an error in proportion to the largest one."""
    share = share_limit(dtype_name, length)
    return Limit(share, 4 * share)


EQUAL_LOGITS = 4096
"""Each probability is 2 to the -12: exact in every format."""
UNWEIGHED = 31
"""How many weights at the end are 0: what a gradient has there is the row's sum alone.

The other 4,064 steps are whole pairs of runs of 16.
"""


def gradients_of_equal_logits(device: str) -> Iterator[Part]:
    """Catches a backward pass that adds up a row's gradients in 16 bits.

    The weights leave what 16 bits hold exactly and come back, so that their sum is one of them.
    """
    steps = EQUAL_LOGITS - UNWEIGHED - 1
    for dtype_name in formats_on(device):
        # Single lanes are far from zero, or whole blocks.
        for run in (1, 16, steps // 2):
            weights = there_and_back(steps, run) + [0.0] * UNWEIGHED
            # Along the last axis, and along another one.
            for shape in ((1, EQUAL_LOGITS), (EQUAL_LOGITS, 1)):
                inputs = torch.zeros(shape, dtype=dtype_of(dtype_name), device=device)
                axis = shape.index(EQUAL_LOGITS)
                label = f"axis {axis} of {dtype_name} zeros, runs of {run}"
                yield from gradients_of_zeros(inputs.requires_grad_(), axis, weights, label)


def gradients_of_zeros(
    leaf: Any, axis: int, weights: Sequence[float], label: str
) -> Iterator[Part]:
    """The gradients of equal probabilities p along weights w."""
    dtype_name = dtype_name_of(leaf)
    p = 1 / EQUAL_LOGITS
    total = fsum(weights)
    # So large that p * p * total is a normal number of float16.
    factor = 1024.0
    enlarged = scaled(weights, factor)
    arriving = leaf.new_tensor(enlarged).reshape(leaf.shape)
    (computed,) = torch.autograd.grad(torch.softmax(leaf, axis), leaf, arriving)
    exact = [p * (w - p * total * factor) for w in enlarged]
    # Thirty-two roundings: an exponential, a quotient, and log p, which is of the size of 8.3.
    limit = Limit(32 * roundoff(dtype_name), LEAST[dtype_name])
    yield near(f"gradient of softmax, {label}", computed, exact, limit)

    arriving = leaf.new_tensor(list(weights)).reshape(leaf.shape)
    (computed,) = torch.autograd.grad(torch.log_softmax(leaf, axis), leaf, arriving)
    exact = [w - p * total for w in weights]
    yield near(f"gradient of log_softmax, {label}", computed, exact, limit)


# --- losses ---------------------------------------------------------------------------------------


class LossCase(NamedTuple):
    """The options of a cross-entropy."""

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
"""Each option alone, and all together in one."""


class Batch(NamedTuple):
    """Rows of logits with their target classes; the first target is ignored by the loss."""

    case: LossCase
    rows: List[LogitsRow]
    targets: List[int]
    weights: List[float]
    """Of the classes."""


def batch_of(case: LossCase, base: int) -> Batch:
    """A batch of three or five rows around a base, with random targets."""
    count = 5 if case.classes < 5000 else 3
    # Rows of an even number hold no minus infinity, whose loss would be infinite.
    rows = [row_of(case.classes, base, 2 * number) for number in range(count)]
    weights = [1.0] * case.classes
    if case.is_weighted:
        weights = sawtooth(case.classes, period=3, start=1)

    chance = dice(f"targets {case}")
    targets = [chance.randrange(case.classes) for _ in range(count)]
    targets[0] = case.ignored
    # A kernel that cuts a row off loses the last class.
    targets[-1] = case.classes - 1
    return Batch(case, rows, targets, weights)


def cross_entropies(device: str) -> Iterator[Part]:
    """Catches a cross-entropy whose mean counts ignored targets, that loses weights, or overflows
    for large logits."""
    for dtype_name in formats_on(device):
        for number, case in enumerate(CASES):
            batch = batch_of(case, base_for(dtype_name, number))
            yield from cross_entropy(batch, dtype_name, device)


def cross_entropy(batch: Batch, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the cross-entropy of one batch, and its gradient."""
    case = batch.case
    logits = joined(row.logits for row in batch.rows)
    leaf = tensor_of(logits, dtype_name, device, len(batch.rows), case.classes).requires_grad_()
    weight = None
    if case.is_weighted:
        weight = tensor_of(batch.weights, dtype_name, device)
    loss = torch.nn.functional.cross_entropy(
        leaf,
        tensor_of(batch.targets, "int64", device),
        weight=weight,
        ignore_index=case.ignored,
        reduction=case.reduction,
        label_smoothing=case.smoothing,
    )
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)

    expected = expected_loss(batch)
    label = f"of {case.classes} classes, {case.reduction}, {dtype_name}"
    limit = loss_limit(batch, dtype_name)
    yield near(f"cross_entropy {label}", loss, expected.values, limit)
    limit = gradient_limit(dtype_name, case.classes)
    yield near(f"gradient of cross_entropy {label}", gradient, expected.gradient, limit)


def loss_limit(batch: Batch, dtype_name: str) -> Limit:
    """How far a loss may be off.

    A row's loss is (its maximum - the target's logit) + `row.shifted_log_sum`. That sum's error
    grows with the number of classes and is relative to the loss.
    Rounding the difference of the logits gives an absolute error, in proportion to the largest loss
    that a row can have.
    """
    largest_loss = 0.0
    for row in batch.rows:
        spread = row.maximum - min(row.logits)
        largest_loss = max(largest_loss, spread + row.shifted_log_sum)
    share = share_limit(dtype_name, batch.case.classes)
    # At most four rows are summed: of five, the first one is ignored. The difference is rounded
    # alike however many classes there are, hence the 1.
    distance_share = 4 * share_limit(dtype_name, 1)
    return Limit(share, distance_share * largest_loss)


class ExpectedLoss(NamedTuple):
    """The exact loss as torch returns it, and its gradient for each logit, row by row."""

    values: List[float]
    gradient: List[float]


def expected_loss(batch: Batch) -> ExpectedLoss:
    """The exact loss and gradient by the definition: -log p of the target, smoothed over all
    classes."""
    case = batch.case
    divisor = divisor_of(batch)
    values: List[float] = []
    gradient: List[float] = []
    for row, target in zip(batch.rows, batch.targets):
        if target == case.ignored:
            values.append(0.0)
            gradient += [0.0] * case.classes
            continue
        shares = class_shares(batch, target)
        log_probabilities = row.log_probabilities()
        loss = -fsum(products_of_pairs(shares, log_probabilities))
        values.append(loss / divisor)
        whole = fsum(shares)
        for log_p, share in zip(log_probabilities, shares):
            slope = exp(log_p) * whole - share
            gradient.append(slope / divisor)
    if case.reduction != "none":
        values = [fsum(values)]
    return ExpectedLoss(values, gradient)


def divisor_of(batch: Batch) -> float:
    """The divisor of the sum of all losses: for `mean` the sum of the counted targets' weights,
    otherwise 1."""
    if batch.case.reduction != "mean":
        return 1.0
    counted = [target for target in batch.targets if target != batch.case.ignored]
    weights = elements_at(counted, batch.weights)
    return fsum(weights)


def class_shares(batch: Batch, target: int) -> List[float]:
    """The share of each class in the loss of one row.

    A share of the weight is spread over all classes (label smoothing), the rest lies on the target.
    """
    smoothing = batch.case.smoothing
    spread = smoothing / batch.case.classes
    shares = scaled(batch.weights, spread)
    on_target = 1 - smoothing
    shares[target] += on_target * batch.weights[target]
    return shares


def losses_of_single_numbers(device: str) -> Iterator[Part]:
    """Catches a binary cross-entropy that overflows for large logits, and a wrong mean of
    losses."""
    logits = [0.0, 1.0, -1.0, 8.0, -8.0, 96.0, -96.0] * 147
    flags = sawtooth(len(logits), period=2)
    losses: List[float] = []
    squares: List[float] = []
    for x, flag in zip(logits, flags):
        # Written so that the exponential cannot overflow.
        bend = log1p(exp(-abs(x)))
        loss = max(x, 0.0) - x * flag + bend
        losses.append(loss)
        difference = x - flag
        squares.append(difference**2)
    mean_loss = fsum(losses) / len(losses)
    mean_square = fsum(squares) / len(squares)

    functional = torch.nn.functional
    for dtype_name in formats_on(device):
        inputs = tensor_of(logits, dtype_name, device)
        targets = tensor_of(flags, dtype_name, device)
        # The loss of -8 is the small rest of two numbers of this size.
        limit = Limit(share_limit(dtype_name, len(logits)), 16 * roundoff(dtype_name))
        computed = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        yield near(f"binary cross-entropy of {dtype_name}", computed, losses, limit)
        computed = functional.binary_cross_entropy_with_logits(inputs, targets)
        yield near(f"mean binary cross-entropy of {dtype_name}", computed, [mean_loss], limit)
        computed = functional.mse_loss(inputs, targets)
        yield near(f"mean squared error of {dtype_name}", computed, [mean_square], limit)


def rows_without_any_number(device: str) -> Iterator[Part]:
    """Catches a softmax that gives probabilities to a row of minus infinity; they must be NaN."""
    for dtype_name in formats_on(device):
        for length in (17, 1025):
            row = row_of(length, 0, 0)
            logits = [MINUS_INFINITY] * length + row.logits
            inputs = tensor_of(logits, dtype_name, device, 2, length)
            # The row beside it is not affected.
            exact = [nan] * length + row.probabilities()
            limit = Limit(share_limit(dtype_name, length), LEAST[dtype_name])
            label = f"softmax of a row of minus infinity, {length} {dtype_name} numbers"
            computed = torch.softmax(inputs, 1)
            yield near(label, computed, exact, limit)
