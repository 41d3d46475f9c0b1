"""Softmax, log-softmax and the losses based on them, for rows of 17 to 70,001 numbers.

In each row, one logit has about as much weight as all the others together. So a kernel that leaves
out that element gets a clearly wrong result, wherever the element is.
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
"""Row lengths below and above the block sizes of kernels. The longest are as long as vocabularies,
which have 32,000 to 150,000 tokens."""
OFFSETS = (0, -2, -4, 2, -8)
"""Differences between logits and the base. They are even, so that bfloat16 holds each logit up to
512 exactly."""
BASES: Dict[str, Sequence[int]] = {
    "float64": (0, 2**20),
    "float32": (0, 2**14, -(2**14)),
    "float16": (0, 256, -256),
    "bfloat16": (0, 256, -256),
}
"""The numbers to which the offsets are added, for each format. The exponential of the larger ones
overflows, unless the row's maximum is subtracted first."""
MINUS_INFINITY = float("-inf")
IGNORED = -100
"""The target that torch's losses ignore by default."""


class LogitsRow(NamedTuple):
    """A row of logits, with their maximum and the log of their sum of exponentials."""

    logits: List[float]
    maximum: float
    shifted_log_sum: float
    """The logarithm of the sum of exp(logit - maximum)."""

    def log_probabilities(self) -> List[float]:
        """The log-probability of each logit: its distance from the maximum, minus
        `shifted_log_sum`."""
        logs: List[float] = []
        for logit in self.logits:
            distance = logit - self.maximum
            logs.append(distance - self.shifted_log_sum)
        return logs

    def probabilities(self) -> List[float]:
        return list(map(exp, self.log_probabilities()))


def row_of(length: int, base: int, number: int) -> LogitsRow:
    """Make a row of logits, one of which has about as much weight as all the others together.

    `number` is the row's number in its batch. It determines at which of four positions the heavy
    logit is.
    """
    chance = dice(f"row {length} {base} {number}")
    logits: List[float] = []
    for _ in range(length):
        offset = chance.choice(OFFSETS)
        logits.append(float(base + offset))

    # The difference between the heavy logit and the base. It is even, like all logits.
    gap = 2 * round(log(length) / 2)
    last_of_vectors = length // 16 * 16 - 1
    heavy_positions = (length - 1, 0, length // 2, last_of_vectors)
    heavy_position = heavy_positions[number % len(heavy_positions)]
    logits[heavy_position] = float(base + gap)
    # Every second row also contains minus infinity, whose probability is 0.
    if number % 2:
        position = chance.randrange(1, length - 1)
        logits[position] = MINUS_INFINITY
    return row_from(logits)


def row_from(logits: List[float]) -> LogitsRow:
    """Compute the maximum of these logits and the log of the sum of exp(logit - maximum)."""
    maximum = max(logits)
    exponentials = [exp(logit - maximum) for logit in logits]
    shifted_log_sum = log(fsum(exponentials))
    return LogitsRow(logits, maximum, shifted_log_sum)


def rows_of(length: int, base: int) -> List[LogitsRow]:
    """Four short rows, or two long ones. Each has its heavy logit at another position."""
    # Only two long rows, because Python is slow for them.
    count = 4 if length < 5000 else 2
    return [row_of(length, base, number) for number in range(count)]


def base_for(dtype_name: str, number: int) -> int:
    """One of the format's bases. They are used in turn, so `number` can be any case number."""
    bases = BASES[dtype_name]
    return bases[number % len(bases)]


def share_limit(dtype_name: str, length: int) -> float:
    """The relative error allowed in a probability, from rounding a sum of `length` exponentials.

    In a vector of 16 lanes, each lane adds up a sixteenth of the row in sequence. If the heavy
    logit comes first, all later additions round in the same direction. The error measured with
    torch 2.13 was half of this limit.
    """
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        # Everything except the last rounding happens in float32.
        return 4 * unit
    return (32 + length / 16) * unit


# --- probabilities --------------------------------------------------------------------------------


def softmax(device: str) -> Outcome:
    """Check that softmax, log-softmax and losses agree with sums of exponentials in Python."""
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
    """Catches a softmax that leaves out the end of a row or does not subtract the maximum."""
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
            # A relative error in the sum is an absolute error in its logarithm.
            yield near(f"log_softmax {label}", computed, exact, Limit(share, share))


def probabilities_along_other_axes(device: str) -> Iterator[Part]:
    """Catches a softmax that is right only along the last axis."""
    for dtype_name in formats_on(device):
        for length in (17, 65, 1025):
            rows = rows_of(length, 0)
            logits = by_columns([row.logits for row in rows])
            exact = by_columns([row.probabilities() for row in rows])
            inputs = tensor_of(logits, dtype_name, device, length, len(rows))
            # Along these axes a kernel may add the numbers one after the other, not in 16 lanes.
            limit = Limit(share_limit(dtype_name, 16 * length), LEAST[dtype_name])
            label = f"{length} {dtype_name} numbers"

            computed = torch.softmax(inputs, 0)
            yield near(f"softmax along the first axis, {label}", computed, exact, limit)
            batch = inputs.expand(2, -1, -1)
            computed = torch.softmax(batch, 1)
            yield near(f"softmax along the middle axis, {label}", computed, exact * 2, limit)


def by_columns(rows: Sequence[Sequence[float]]) -> List[float]:
    """Returns the elements, row by row, of the matrix whose columns are these rows."""
    return joined(zip(*rows))


def gradients_of_softmax(device: str) -> Iterator[Part]:
    """Catches a backward pass of softmax that leaves out the end of a row, or uses the wrong
    sum."""
    for dtype_name in formats_on(device):
        for length in (17, 257, 4097, 70_001):
            yield from gradients_of_row(length, dtype_name, device)


def gradients_of_row(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of softmax and log-softmax for one row. In the comments, p is a
    probability and w its upstream gradient."""
    row = row_of(length, 0, 2)
    probabilities = row.probabilities()
    weights = sawtooth(length, period=5, start=-2)
    leaf = tensor_of(row.logits, dtype_name, device).requires_grad_()
    arriving = tensor_of(weights, dtype_name, device)
    limit = gradient_limit(dtype_name, length)
    label = f"{length} {dtype_name} numbers"

    # The gradient of softmax is p * (w - sum of p * w over the row).
    mean = fsum(products_of_pairs(probabilities, weights))
    exact = [p * (w - mean) for p, w in zip(probabilities, weights)]
    outputs = torch.softmax(leaf, 0)
    (computed,) = torch.autograd.grad(outputs, leaf, arriving)
    yield near(f"gradient of softmax, {label}", computed, exact, limit)

    # The gradient of log-softmax is w - p * (sum of w over the row).
    total = fsum(weights)
    exact = [w - p * total for p, w in zip(probabilities, weights)]
    outputs = torch.log_softmax(leaf, 0)
    (computed,) = torch.autograd.grad(outputs, leaf, arriving)
    yield near(f"gradient of log_softmax, {label}", computed, exact, limit)


def gradient_limit(dtype_name: str, length: int) -> Limit:
    """The error allowed in a gradient. It is computed from rounded probabilities, so even a small
    gradient has an error in proportion to the largest one."""
    share = share_limit(dtype_name, length)
    return Limit(share, 4 * share)


EQUAL_LOGITS = 4096
"""The number of equal logits. Each probability is 2**-12, which is exact in every format."""
UNWEIGHED = 31
"""How many upstream gradients at the end are 0. At these positions, the result depends only on the
row's sum.

The 4,064 steps before them are a multiple of 32, the length of a run of 16 steps up and a run of 16
steps down.
"""


def gradients_of_equal_logits(device: str) -> Iterator[Part]:
    """Catches a backward pass that sums a row's gradients in 16 bits.

    The partial sums of the upstream gradients grow beyond what 16 bits can hold exactly, and then
    return to 1.
    """
    steps = EQUAL_LOGITS - UNWEIGHED - 1
    for dtype_name in formats_on(device):
        # Short runs make the partial sums of single vector lanes large; long runs make the partial
        # sums of whole blocks large.
        for run in (1, 16, steps // 2):
            weights = there_and_back(steps, run) + [0.0] * UNWEIGHED
            # Compute along the last axis, and along the first one.
            for shape in ((1, EQUAL_LOGITS), (EQUAL_LOGITS, 1)):
                inputs = torch.zeros(shape, dtype=dtype_of(dtype_name), device=device)
                axis = shape.index(EQUAL_LOGITS)
                label = f"axis {axis} of {dtype_name} zeros, runs of {run}"
                yield from gradients_of_zeros(inputs.requires_grad_(), axis, weights, label)


def gradients_of_zeros(
    leaf: Any, axis: int, weights: Sequence[float], label: str
) -> Iterator[Part]:
    """Compare the gradients of softmax and log-softmax for equal probabilities p and upstream
    gradients w."""
    dtype_name = dtype_name_of(leaf)
    p = 1 / EQUAL_LOGITS
    total = fsum(weights)
    # Scale the weights, so that p * p * total is a normal float16 number.
    factor = 1024.0
    enlarged = scaled(weights, factor)
    arriving = leaf.new_tensor(enlarged).reshape(leaf.shape)
    (computed,) = torch.autograd.grad(torch.softmax(leaf, axis), leaf, arriving)
    exact = [p * (w - p * total * factor) for w in enlarged]
    # Allow 32 roundings, for an exponential, a quotient, and log p, whose absolute value is about
    # 8.3.
    limit = Limit(32 * roundoff(dtype_name), LEAST[dtype_name])
    yield near(f"gradient of softmax, {label}", computed, exact, limit)

    arriving = leaf.new_tensor(list(weights)).reshape(leaf.shape)
    (computed,) = torch.autograd.grad(torch.log_softmax(leaf, axis), leaf, arriving)
    exact = [w - p * total for w in weights]
    yield near(f"gradient of log_softmax, {label}", computed, exact, limit)


# --- losses ---------------------------------------------------------------------------------------


class LossCase(NamedTuple):
    """The number of classes and the options of a cross-entropy."""

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
"""Each option is tested separately, and several are combined in one case."""


class Batch(NamedTuple):
    """Rows of logits with their target classes. The loss ignores the first target."""

    case: LossCase
    rows: List[LogitsRow]
    targets: List[int]
    weights: List[float]
    """The weight of each class."""


def batch_of(case: LossCase, base: int) -> Batch:
    """Make a batch of three or five rows, with logits near `base` and random targets."""
    count = 5 if case.classes < 5000 else 3
    # Use even row numbers only, because these rows do not contain minus infinity, whose loss would
    # be infinite.
    rows = [row_of(case.classes, base, 2 * number) for number in range(count)]
    weights = [1.0] * case.classes
    if case.is_weighted:
        weights = sawtooth(case.classes, period=3, start=1)

    chance = dice(f"targets {case}")
    targets = [chance.randrange(case.classes) for _ in range(count)]
    targets[0] = case.ignored
    # The last class is a target, so that a kernel that leaves out the end of a row is caught.
    targets[-1] = case.classes - 1
    return Batch(case, rows, targets, weights)


def cross_entropies(device: str) -> Iterator[Part]:
    """Catches a cross-entropy whose mean counts ignored targets, that ignores class weights, or
    that overflows for large logits."""
    for dtype_name in formats_on(device):
        for number, case in enumerate(CASES):
            batch = batch_of(case, base_for(dtype_name, number))
            yield from cross_entropy(batch, dtype_name, device)


def cross_entropy(batch: Batch, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the cross-entropy of one batch and its gradient."""
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
    """The error allowed in a loss.

    A row's loss is (its maximum - the target's logit) + `row.shifted_log_sum`. The error of
    `shifted_log_sum` grows with the number of classes, and is allowed relative to the loss.
    Rounding the difference of the logits gives an absolute error, in proportion to the largest loss
    that a row can have.
    """
    largest_loss = 0.0
    for row in batch.rows:
        spread = row.maximum - min(row.logits)
        largest_loss = max(largest_loss, spread + row.shifted_log_sum)
    share = share_limit(dtype_name, batch.case.classes)
    # At most four rows are summed, because the first of five is ignored. The rounding of the
    # difference does not depend on the number of classes, hence the 1.
    distance_share = 4 * share_limit(dtype_name, 1)
    return Limit(share, distance_share * largest_loss)


class ExpectedLoss(NamedTuple):
    """The exact loss as torch returns it, and its gradient with respect to each logit, row by
    row."""

    values: List[float]
    gradient: List[float]


def expected_loss(batch: Batch) -> ExpectedLoss:
    """The exact loss and gradient, computed from the definition: -log p of the target, smoothed
    over all classes."""
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
    """The number by which the sum of all losses is divided. For `mean` it is the sum of the class
    weights of all targets that are not ignored, otherwise 1."""
    if batch.case.reduction != "mean":
        return 1.0
    counted = [target for target in batch.targets if target != batch.case.ignored]
    weights = elements_at(counted, batch.weights)
    return fsum(weights)


def class_shares(batch: Batch, target: int) -> List[float]:
    """The share of each class in the loss of one row.

    Label smoothing spreads a part of the weight over all classes; the target gets the rest.
    """
    smoothing = batch.case.smoothing
    spread = smoothing / batch.case.classes
    shares = scaled(batch.weights, spread)
    on_target = 1 - smoothing
    shares[target] += on_target * batch.weights[target]
    return shares


def losses_of_single_numbers(device: str) -> Iterator[Part]:
    """Catches a binary cross-entropy that overflows for large logits, and a wrong mean loss."""
    logits = [0.0, 1.0, -1.0, 8.0, -8.0, 96.0, -96.0] * 147
    flags = sawtooth(len(logits), period=2)
    losses: List[float] = []
    squares: List[float] = []
    for x, flag in zip(logits, flags):
        # This is log(1 + exp(x)) - max(x, 0), in a form that cannot overflow.
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
        # The loss of a logit of 8 or -8 can be a small difference of two larger numbers, so allow
        # an absolute error.
        limit = Limit(share_limit(dtype_name, len(logits)), 16 * roundoff(dtype_name))
        computed = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        yield near(f"binary cross-entropy of {dtype_name}", computed, losses, limit)
        computed = functional.binary_cross_entropy_with_logits(inputs, targets)
        yield near(f"mean binary cross-entropy of {dtype_name}", computed, [mean_loss], limit)
        computed = functional.mse_loss(inputs, targets)
        yield near(f"mean squared error of {dtype_name}", computed, [mean_square], limit)


def rows_without_any_number(device: str) -> Iterator[Part]:
    """Catches a softmax that returns numbers instead of NaN for a row of minus infinities."""
    for dtype_name in formats_on(device):
        for length in (17, 1025):
            row = row_of(length, 0, 0)
            logits = [MINUS_INFINITY] * length + row.logits
            inputs = tensor_of(logits, dtype_name, device, 2, length)
            # The other row in the batch must not be affected.
            exact = [nan] * length + row.probabilities()
            limit = Limit(share_limit(dtype_name, length), LEAST[dtype_name])
            label = f"softmax of a row of minus infinity, {length} {dtype_name} numbers"
            computed = torch.softmax(inputs, 1)
            yield near(label, computed, exact, limit)
