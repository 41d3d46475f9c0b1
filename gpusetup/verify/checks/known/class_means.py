"""Classification losses with each reduction, with ignored targets and label smoothing, without
class weights.

Part of the check `losses`.
"""

from __future__ import annotations

import math
from math import fsum, nan
from typing import Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from .answers import HALVES, Limit, formats_on, near, roundoff, tensor_of
from .number_lists import sawtooth

REDUCTIONS = ("none", "mean", "sum")
SMOOTHINGS = (0.0, 0.25)
"""Values of `label_smoothing`. A quarter is exact in every format."""
IGNORED = -100
"""The target that torch ignores by default (`ignore_index`)."""


def log_softmax(logits: List[float]) -> List[float]:
    """The log-softmax of a list of logits."""
    logarithm = math.log(fsum(map(math.exp, logits)))
    return [logit - logarithm for logit in logits]


class Table(NamedTuple):
    """The sizes of a tensor of logits (rows x classes x pixels), and which of its targets are
    ignored."""

    rows: int
    classes: int
    pixels: int
    ignore_every: int
    """With 3, the first of every three targets is ignored; with 0, none is ignored."""

    @property
    def label(self) -> str:
        shape = f"{self.rows} x {self.classes} x {self.pixels}"
        return f"{shape}, ignoring one target in {self.ignore_every or 'none'}"

    def targets(self) -> List[int]:
        """The target class of each pixel. The classes of two neighbouring pixels are 3 apart,
        modulo the number of classes."""
        targets: List[int] = []
        for position in range(self.rows * self.pixels):
            is_ignored = self.ignore_every and position % self.ignore_every == 0
            target = (3 * position + 1) % self.classes
            targets.append(IGNORED if is_ignored else target)
        return targets

    def logits(self) -> List[float]:
        """Multiples of 1/2 from -3 to 3, which are exact in each format."""
        count = self.rows * self.classes * self.pixels
        return [value / 2 for value in sawtooth(count, period=13, start=-6)]

    def log_probabilities(self) -> List[List[float]]:
        """For each pixel, the log-softmax over its classes."""
        logits = self.logits()
        row_size = self.classes * self.pixels
        rows: List[List[float]] = []
        for start in range(0, len(logits), row_size):
            for pixel in range(self.pixels):
                of_pixel = logits[start + pixel : start + row_size : self.pixels]
                rows.append(log_softmax(of_pixel))
        return rows


TABLES = (
    Table(4, 5, 1, 0),
    Table(7, 17, 1, 3),
    Table(5, 5, 6, 2),
    Table(66, 33, 1, 5),
    Table(3, 1025, 1, 3),
    # All targets are ignored, so the mean is 0 / 0.
    Table(4, 5, 1, 1),
)


def class_means(device: str) -> Iterator[Part]:
    """Catches a mean that counts ignored targets, and label smoothing over the wrong number of
    classes."""
    for table in TABLES:
        exact_losses = [losses_of_pixels(table, smoothing) for smoothing in SMOOTHINGS]
        for dtype_name in formats_on(device):
            yield from losses_of_table(table, exact_losses, dtype_name, device)


def losses_of_table(
    table: Table, exact_losses: List[List[float]], dtype_name: str, device: str
) -> Iterator[Part]:
    """Compare cross-entropy with and without smoothing, and nll_loss of the log-probabilities."""
    functional = torch.nn.functional
    targets = table.targets()
    shape = [table.rows, table.classes]
    target_shape = [table.rows]
    if table.pixels > 1:
        # Without the axis of pixels, nll_loss uses different kernels.
        shape.append(table.pixels)
        target_shape.append(table.pixels)
    logits = tensor_of(table.logits(), dtype_name, device, *shape)
    target_tensor = tensor_of(targets, "int64", device, *target_shape)
    counted = sum(target != IGNORED for target in targets)
    inputs = torch.log_softmax(logits, 1)
    for reduction in REDUCTIONS:
        label = f"{table.label}, {dtype_name}, {reduction}"
        limit = limit_of(table, reduction, dtype_name)
        for smoothing, pixel_losses in zip(SMOOTHINGS, exact_losses):
            exact = reduced(pixel_losses, counted, reduction)
            computed = functional.cross_entropy(
                logits, target_tensor, reduction=reduction, label_smoothing=smoothing
            )
            yield near(f"cross_entropy smoothed by {smoothing} of {label}", computed, exact, limit)
        exact = reduced(exact_losses[0], counted, reduction)
        computed = functional.nll_loss(inputs, target_tensor, reduction=reduction)
        yield near(f"nll_loss of {label}", computed, exact, limit)


def losses_of_pixels(table: Table, smoothing: float) -> List[float]:
    """The loss of each pixel; 0 where the target is ignored."""
    losses: List[float] = []
    for target, row in zip(table.targets(), table.log_probabilities()):
        if target == IGNORED:
            losses.append(0.0)
            continue
        mean_of_classes = fsum(row) / table.classes
        log_likelihood = (1 - smoothing) * row[target] + smoothing * mean_of_classes
        losses.append(-log_likelihood)
    return losses


def reduced(losses: List[float], counted: int, reduction: str) -> List[float]:
    """The losses after the reduction. A mean is divided by the number of targets that are not
    ignored."""
    if reduction == "none":
        return losses
    total = fsum(losses)
    if reduction == "sum":
        return [total]
    return [total / counted if counted else nan]


def limit_of(table: Table, reduction: str, dtype_name: str) -> Limit:
    """The error allowed in a loss. A loss is below 16 and is rounded a few times; a sum of losses
    is also rounded once for each loss.
    """
    unit = roundoff(dtype_name)
    # 16-bit losses are computed in float32 and rounded only at the end.
    absolute = 32 * unit if dtype_name in HALVES else 64 * unit
    if reduction == "sum":
        # Rounding errors with random signs grow with the square root of their number.
        absolute *= math.sqrt(table.rows * table.pixels)
    return Limit(16 * unit, absolute)
