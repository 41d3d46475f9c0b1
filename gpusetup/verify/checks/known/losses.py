"""Losses and their gradients, computed in Python: for pairs of numbers, classes and rows, with each
reduction.

A loss of pairs is a sum or mean over the pairs, so the loss of one pair and its slope determine the
expected value and gradient.
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
from .answers import HALVES, Limit, ask_all, formats_on, near, offered, roundoff, tensor_of
from .class_means import class_means
from .functions import log_sigmoid
from .number_lists import products_of_pairs, repeated, sawtooth
from .sequence_losses import sequence_losses
from .slopes import slope

REDUCTIONS = ("none", "mean", "sum")
LENGTHS = (17, 1027)
"""Numbers of pairs: less than two vectors, and more than a block of 1,024."""
NUMBERS = (0.25, -1.5, 3.0, -0.125, 2.25, -4.0, 0.625)
"""Inputs. They are binary fractions, which every format holds exactly."""
TARGETS = (1.0625, -1.1875, 0.4375, 1.8125, -3.3125)
"""Targets. None of them is exactly 0, 1 or 2 away from an input, because some losses have no unique
slope at these distances."""
SHARES = (0.25, 0.5, 0.75, 0.375, 0.625)
"""Numbers between 0 and 1, for probabilities."""
SIGNS = (1.0, -1.0, -1.0)
"""Targets for similar (1) and dissimilar (-1) pairs."""
FLAGS = (1.0, 0.0, 0.0, 1.0)
"""Targets that are true (1) or false (0)."""
HUBER_DELTA = 2.0
"""The `delta` of the Huber loss. It differs from the default, 1, so that a kernel that ignores it
is caught."""
POSITIVE_WEIGHT = 3.0


# --- the loss of one pair -------------------------------------------------------------------------


def squared_error(x: float, target: float) -> float:
    return (x - target) ** 2


def absolute_error(x: float, target: float) -> float:
    return abs(x - target)


def smooth_l1(x: float, target: float) -> float:
    """Smooth L1 loss: half the squared distance if the distance is below 1, otherwise linear."""
    distance = abs(x - target)
    if distance < 1:
        return distance**2 / 2
    return distance - 0.5


def huber(x: float, target: float) -> float:
    """Huber loss: half the squared distance if the distance is below 2 (torch's `delta`), otherwise
    linear."""
    distance = abs(x - target)
    if distance < HUBER_DELTA:
        return distance**2 / 2
    return HUBER_DELTA * (distance - HUBER_DELTA / 2)


def soft_margin(x: float, sign: float) -> float:
    return -log_sigmoid(x * sign)


def hinge_embedding(x: float, sign: float) -> float:
    """Hinge embedding loss. For similar pairs it is x, and for dissimilar pairs 1 - x (the margin
    is 1), but at least 0."""
    if sign > 0:
        return x
    return max(0.0, 1 - x)


def divergence(log_probability: float, probability: float) -> float:
    """Kullback-Leibler divergence of one pair. As in torch, the input is a log-probability."""
    return probability * (math.log(probability) - log_probability)


def divergence_of_logarithms(log_probability: float, log_target: float) -> float:
    return math.exp(log_target) * (log_target - log_probability)


def poisson(log_rate: float, count: float) -> float:
    return math.exp(log_rate) - count * log_rate


def binary(probability: float, flag: float) -> float:
    """Binary cross-entropy of a probability and a true (1) or false (0) target."""
    log_of_true = math.log(probability)
    log_of_false = math.log(1 - probability)
    log_likelihood = flag * log_of_true + (1 - flag) * log_of_false
    return -log_likelihood


def binary_of_logit(logit: float, flag: float) -> float:
    """Binary cross-entropy of a logit and a true (1) or false (0) target."""
    log_of_true = log_sigmoid(logit)
    log_of_false = log_sigmoid(-logit)
    log_likelihood = flag * log_of_true + (1 - flag) * log_of_false
    return -log_likelihood


def weighted_binary(logit: float, flag: float) -> float:
    """Binary cross-entropy of a logit, with weight 3 for true targets."""
    log_of_true = log_sigmoid(logit)
    log_of_false = log_sigmoid(-logit)
    weighted_flag = POSITIVE_WEIGHT * flag
    log_likelihood = weighted_flag * log_of_true + (1 - flag) * log_of_false
    return -log_likelihood


def torch_weighted_binary(inputs: Any, targets: Any, reduction: str) -> Any:
    """Compute the loss `weighted_binary` with torch."""
    weight = inputs.new_tensor([POSITIVE_WEIGHT])
    return torch.nn.functional.binary_cross_entropy_with_logits(
        inputs, targets, reduction=reduction, pos_weight=weight
    )


class Loss(NamedTuple):
    """A loss in torch, and the same loss for one pair in Python."""

    name: str
    run: Callable[..., Any]
    """Takes inputs, targets and `reduction=...`, and returns the loss."""
    exact: Callable[[float, float], float]
    """Takes one input and one target, and returns the loss of this pair."""
    numbers: Sequence[float] = NUMBERS
    targets: Sequence[float] = TARGETS

    def slope_at(self, x: float, target: float) -> float:
        """The derivative of the pair's loss with respect to its input."""

        def loss_of_input(number: float) -> float:
            return self.exact(number, target)

        return slope(loss_of_input, x)


def losses_of_pairs() -> Sequence[Loss]:
    """All losses of pairs to test, each with suitable inputs and targets."""
    f = torch.nn.functional
    huber_loss = functools.partial(f.huber_loss, delta=HUBER_DELTA)
    kl_div_of_logarithms = functools.partial(f.kl_div, log_target=True)
    binary_with_logits = f.binary_cross_entropy_with_logits
    return (
        Loss("mse_loss", f.mse_loss, squared_error),
        Loss("l1_loss", f.l1_loss, absolute_error),
        Loss("smooth_l1_loss", f.smooth_l1_loss, smooth_l1),
        Loss("huber_loss", huber_loss, huber),
        Loss("soft_margin_loss", f.soft_margin_loss, soft_margin, targets=SIGNS),
        Loss("hinge_embedding_loss", f.hinge_embedding_loss, hinge_embedding, targets=SIGNS),
        Loss("kl_div", f.kl_div, divergence, targets=SHARES),
        Loss("kl_div of logarithms", kl_div_of_logarithms, divergence_of_logarithms),
        Loss("poisson_nll_loss", f.poisson_nll_loss, poisson),
        # This loss takes probabilities, not logits.
        Loss("binary_cross_entropy", f.binary_cross_entropy, binary, SHARES, FLAGS),
        Loss(
            "binary_cross_entropy_with_logits", binary_with_logits, binary_of_logit, targets=FLAGS
        ),
        Loss(
            "the same, positive ones weighted",
            torch_weighted_binary,
            weighted_binary,
            targets=FLAGS,
        ),
    )


def losses(device: str) -> Outcome:
    """Check that losses and their gradients agree with Python, for each reduction."""
    questions = (element_losses, class_losses, class_means, losses_of_rows, sequence_losses)
    return ask_all(device, questions, "losses in Python")


class LossReduction(NamedTuple):
    """The number of pairs, and how their losses are reduced."""

    length: int
    method: str
    """`none`, `mean` or `sum`."""

    @property
    def divisor(self) -> int:
        """The number by which the sum of all losses is divided: the number of pairs for `mean`,
        otherwise 1."""
        return self.length if self.method == "mean" else 1

    def of(self, pair_losses: List[float]) -> List[float]:
        """The reduced loss as torch returns it: one number per pair for `none`, otherwise a single
        number."""
        if self.method == "none":
            return pair_losses
        return [fsum(pair_losses) / self.divisor]


def element_losses(device: str) -> Iterator[Part]:
    """Catches a mean that divides by the wrong count, a loss that leaves out the end of the tensor
    or takes a wrong branch, and an unscaled gradient."""
    for dtype_name in formats_on(device):
        for loss in losses_of_pairs():
            for length in LENGTHS:
                for method in REDUCTIONS:
                    # A long sum grows so large that a 16-bit format is too coarse to compare it.
                    if method == "sum" and dtype_name in HALVES and length > 100:
                        continue
                    reduction = LossReduction(length, method)
                    yield from element_loss(loss, reduction, dtype_name, device)


def element_loss(
    loss: Loss, reduction: LossReduction, dtype_name: str, device: str
) -> Iterator[Part]:
    """Compare one loss and its gradient, for one number of pairs and one reduction."""
    numbers = repeated(loss.numbers, reduction.length)
    targets = repeated(loss.targets, reduction.length)
    leaf = tensor_of(numbers, dtype_name, device).requires_grad_()
    target_tensor = tensor_of(targets, dtype_name, device)
    run = functools.partial(loss.run, leaf, target_tensor, reduction=reduction.method)
    with warnings.catch_warnings():
        # kl_div warns against `reduction="mean"`.
        warnings.simplefilter("ignore")
        computed = offered(run)
    if computed is None:
        return

    pair_losses: List[float] = []
    gradient: List[float] = []
    for x, target in zip(numbers, targets):
        pair_losses.append(loss.exact(x, target))
        gradient.append(loss.slope_at(x, target) / reduction.divisor)

    label = f"{loss.name} of {reduction.length} {dtype_name} numbers, {reduction.method}"
    yield near(label, computed, reduction.of(pair_losses), loss_limit(reduction, dtype_name))
    (computed_gradient,) = torch.autograd.grad(computed.sum(), leaf)
    limit = loss_gradient_limit(reduction, dtype_name)
    yield near(f"gradient of {label}", computed_gradient, gradient, limit)


def loss_limit(reduction: LossReduction, dtype_name: str) -> Limit:
    """The error allowed in a loss, for a few operations on numbers below 64. For a sum it grows
    with the length."""
    unit = roundoff(dtype_name)
    absolute = 64 * unit
    if reduction.method == "sum":
        # A sum has one rounding for each number, and rounding errors with random signs grow with
        # the square root of their count.
        absolute *= math.sqrt(reduction.length)
    return Limit(16 * unit, absolute)


def loss_gradient_limit(reduction: LossReduction, dtype_name: str) -> Limit:
    """The error allowed in a loss's gradient. For a mean it is divided by the number of pairs, like
    the gradient."""
    unit = roundoff(dtype_name)
    # 2**-32 is more than the error of the slopes in Python, which are computed numerically.
    absolute = 32 * unit / reduction.divisor + 2.0**-32
    if dtype_name == "float16":
        # The smallest positive number of float16.
        absolute += 2.0**-24
    return Limit(16 * unit, absolute)


# --- losses of classes ----------------------------------------------------------------------------


class ClassTable(NamedTuple):
    """The sizes of a table of inputs for `nll_loss`: rows x classes x pixels. It contains whole
    numbers instead of log-probabilities."""

    rows: int
    classes: int
    pixels: int

    @property
    def label(self) -> str:
        return f"{self.rows} x {self.classes} x {self.pixels}"

    def values(self) -> List[float]:
        """The numbers of the table, from -6 to 6."""
        count = self.rows * self.classes * self.pixels
        return sawtooth(count, period=13, start=-6)

    def targets(self) -> List[int]:
        """The target class of each pixel. The classes of two neighbouring pixels are 3 apart,
        modulo the number of classes."""
        targets: List[int] = []
        for position in range(self.rows * self.pixels):
            target = (3 * position + 1) % self.classes
            targets.append(target)
        return targets

    def class_weights(self) -> List[float]:
        """The weight of each class, from 1 to 4."""
        return sawtooth(self.classes, period=4, start=1)

    def index_of(self, target_position: int, target: int) -> int:
        """The position in the flat table of the number for a pixel's target class."""
        row, pixel = divmod(target_position, self.pixels)
        lines_before = row * self.classes + target
        return lines_before * self.pixels + pixel


CLASS_TABLES = (
    ClassTable(7, 17, 1),
    ClassTable(33, 5, 6),
    ClassTable(130, 1000, 1),
    ClassTable(3, 1025, 4),
)
"""Tables with few and many classes, and with one or several pixels per row."""


class ExpectedClassLoss(NamedTuple):
    """The exact mean loss of a table, and its gradient with respect to each number in the table."""

    loss: float
    gradient: List[float]


def expected_class_loss(table: ClassTable, ignored: int) -> ExpectedClassLoss:
    """The exact loss: minus the weighted mean of the numbers at the targets. Targets of the ignored
    class do not count."""
    values = table.values()
    weights = table.class_weights()
    total = 0.0
    counted_weights: List[float] = []
    gradient = [0.0] * len(values)
    for position, target in enumerate(table.targets()):
        if target == ignored:
            continue
        index = table.index_of(position, target)
        weight = weights[target]
        total -= values[index] * weight
        counted_weights.append(weight)
        gradient[index] = -weight
    divisor = fsum(counted_weights)
    return ExpectedClassLoss(total / divisor, [value / divisor for value in gradient])


def class_losses(device: str) -> Iterator[Part]:
    """Catches an nll_loss that uses the wrong class, weight or pixel, or counts the ignored class.

    The inputs are whole numbers, so a pixel's loss is one of the inputs, negated and weighted.
    """
    for dtype_name in formats_on(device):
        for table in CLASS_TABLES:
            targets = table.targets()
            # Ignore the class of the first target, which is the target of other pixels too.
            ignored = targets[0]
            leaf = tensor_of(table.values(), dtype_name, device, *table).requires_grad_()
            computed = torch.nn.functional.nll_loss(
                leaf,
                tensor_of(targets, "int64", device, table.rows, table.pixels),
                tensor_of(table.class_weights(), dtype_name, device),
                ignore_index=ignored,
            )
            (gradient,) = torch.autograd.grad(computed, leaf)

            expected = expected_class_loss(table, ignored)
            label = f"nll_loss of {table.label} {dtype_name}"
            # In 16-bit formats the partial sums are rounded.
            limit = Limit(16 * roundoff(dtype_name), 16 * roundoff(dtype_name))
            yield near(label, computed, [expected.loss], limit)
            yield near(f"gradient of {label}", gradient, expected.gradient, limit)


# --- losses of rows -------------------------------------------------------------------------------


def losses_of_rows(device: str) -> Iterator[Part]:
    """Catches a similarity or distance of rows that leaves out the end of the rows."""
    for dtype_name in ("float32", "float64"):
        for length in (17, 1025):
            yield from losses_of_three_rows(length, dtype_name, device)


def losses_of_three_rows(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare cosine similarity, distances, triplet loss and normalization for three rows: an
    anchor, a positive and a negative."""
    functional = torch.nn.functional
    anchor, positive, negative = (row_number(number, length) for number in range(3))
    x = tensor_of(anchor, dtype_name, device, 1, length)
    y = tensor_of(positive, dtype_name, device, 1, length)
    z = tensor_of(negative, dtype_name, device, 1, length)
    label = f"of rows of {length} {dtype_name} numbers"
    limit = Limit(64 * roundoff(dtype_name), 64 * roundoff(dtype_name))

    product = fsum(products_of_pairs(anchor, positive))
    similarity = product / (size_of(anchor) * size_of(positive))
    computed = functional.cosine_similarity(x, y)
    yield near(f"cosine_similarity {label}", computed, [similarity], limit)

    to_positive = distance_of(anchor, positive)
    to_negative = distance_of(anchor, negative)
    computed = torch.cdist(x, torch.cat([y, z]))
    # cdist may compute the distance from squares and products, whose difference loses digits.
    rough_limit = Limit(2.0**10 * roundoff(dtype_name))
    yield near(f"cdist {label}", computed, [to_positive, to_negative], rough_limit)

    computed = functional.pairwise_distance(x, y, eps=0.0)
    yield near(f"pairwise_distance {label}", computed, [to_positive], limit)

    # The margin is so large that the loss stays above zero.
    computed = functional.triplet_margin_loss(x, y, z, margin=50.0, eps=0.0)
    triplet_loss = max(0.0, to_positive - to_negative + 50.0)
    yield near(f"triplet_margin_loss {label}", computed, [triplet_loss], rough_limit)

    computed = functional.normalize(x, dim=1)
    size = size_of(anchor)
    normalized = [value / size for value in anchor]
    yield near(f"normalize {label}", computed, normalized, limit)


def row_number(number: int, length: int) -> List[float]:
    """One of three rows of whole numbers from -2 to 4. They differ in their first number."""
    offset = 3 * number
    longer = sawtooth(offset + length, period=7, start=-2)
    return longer[offset:]


def size_of(row: Sequence[float]) -> float:
    """The Euclidean norm of a row."""
    squares = products_of_pairs(row, row)
    return math.sqrt(fsum(squares))


def distance_of(first: Sequence[float], second: Sequence[float]) -> float:
    """The Euclidean distance of two rows."""
    squares: List[float] = []
    for x, y in zip(first, second):
        difference = x - y
        squares.append(difference**2)
    return math.sqrt(fsum(squares))
