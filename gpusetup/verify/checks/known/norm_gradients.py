"""Gradients of normalizations, computed from their definition in Python. Part of the check `norms`.

Let n be the normalized numbers, g the upstream gradient times the weight, and root the standard
deviation by which they are divided. Then the gradient of one group is `(g - mean(g) - n * mean(g *
n)) / root`. For an RMS norm there is no `mean(g)`.
"""

from __future__ import annotations

import functools
from math import fsum, sqrt
from typing import Any, Iterator, List, NamedTuple

import torch

from ...judging.tolerance import Part
from ...values import kind
from .answers import (
    HALVES,
    Limit,
    dice,
    dtype_name_of,
    formats_on,
    in_both_layouts,
    near,
    roundoff,
    tensor_of,
)
from .number_lists import (
    ONE,
    STEP,
    joined,
    products_of_pairs,
    rows_of_length,
    sawtooth,
    sums_of_pairs,
    there_and_back,
)

SPREAD, EPS = 0.5, 0.75
"""All numbers are 0.5 or -0.5, so their variance is 0.25. Variance plus eps is 1, and so is its
root."""
UPSTREAM = (-1.0, 0.0, 1.0, 2.0, 3.0)
"""Upstream gradients. They are whole numbers, so that sums of them are exact."""


class Group(NamedTuple):
    """Numbers that are normalized together, and the upstream gradient times the weight for each of
    them."""

    numbers: List[float]
    arriving: List[float]

    def gradient(self, takes_mean: bool = True) -> List[float]:
        """The gradient of the numbers. For an RMS norm, which does not subtract the mean, pass
        `takes_mean=False`."""
        count = len(self.numbers)
        mean = fsum(self.arriving) / count
        if not takes_mean:
            mean = 0.0
        products = products_of_pairs(self.arriving, self.numbers)
        slope = fsum(products) / count
        gradient: List[float] = []
        for number, arriving in zip(self.numbers, self.arriving):
            gradient.append(arriving - mean - number * slope)
        return gradient


def balanced_numbers(count: int, salt: str) -> List[float]:
    """Returns equally many 0.5 and -0.5, in random order. `count` must be even."""
    pairs = count // 2
    numbers = [SPREAD, -SPREAD] * pairs
    dice(f"norm gradient {count} {salt}").shuffle(numbers)
    return numbers


def arriving_numbers(count: int) -> List[float]:
    """An upstream gradient whose pattern differs from row to row and channel to channel."""
    arriving: List[float] = []
    for position in range(count):
        # The second term shifts the pattern every seven elements.
        turn = 3 * position + position // 7
        arriving.append(UPSTREAM[turn % len(UPSTREAM)])
    return arriving


def gradient_limit(dtype_name: str, count: int) -> Limit:
    """The error allowed in gradients that contain sums of `count` products. For 16-bit formats it
    does not grow, because they round each result once."""
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        return Limit(8 * unit, 24 * unit)
    unit *= 64 + 4 * sqrt(count)
    return Limit(unit, 4 * unit)


def sum_limit(dtype_name: str, count: int) -> Limit:
    """The error allowed in the gradient of a weight or bias, which is a sum of `count` terms. A
    kernel may round partial sums to 16 bits."""
    unit = roundoff(dtype_name)
    # Rounding errors have both signs, so their sum grows with the square root of their count.
    growth = sqrt(count)
    if dtype_name in HALVES:
        return Limit(8 * unit, 4 * unit * growth)
    return Limit(32 * unit, 32 * unit * growth)


# --- norms of rows --------------------------------------------------------------------------------


class NormalisedRows(NamedTuple):
    """Rows, each of which is normalized separately, with their upstream gradients."""

    numbers: List[List[float]]
    arriving: List[List[float]]
    weight: List[float]
    """The weight of each column."""

    def gradient(self, takes_mean: bool) -> List[float]:
        """The gradient of the numbers, row by row; `takes_mean` is False for an RMS norm."""
        gradient: List[float] = []
        for numbers, arriving in zip(self.numbers, self.arriving):
            # The upstream gradient is multiplied by the weight first.
            weighed = products_of_pairs(arriving, self.weight)
            group = Group(numbers, weighed)
            gradient += group.gradient(takes_mean)
        return gradient

    def weight_gradient(self) -> List[float]:
        """The gradient of the weight: for each column, the sum of the numbers times their upstream
        gradients."""
        sums = [0.0] * len(self.weight)
        for numbers, arriving in zip(self.numbers, self.arriving):
            products = products_of_pairs(numbers, arriving)
            sums = sums_of_pairs(sums, products)
        return sums

    def bias_gradient(self) -> List[float]:
        """The gradient of the bias: for each column, the sum of the upstream gradients."""
        sums = [0.0] * len(self.weight)
        for arriving in self.arriving:
            sums = sums_of_pairs(sums, arriving)
        return sums


def rows_of(count: int, length: int) -> NormalisedRows:
    """Make rows with as many numbers above zero as below, with weights and upstream gradients."""
    numbers = [balanced_numbers(length, f"row {row}") for row in range(count)]
    upstream = arriving_numbers(count * length)
    arriving = rows_of_length(upstream, length)
    weight = channel_weights(length)
    return NormalisedRows(numbers, arriving, weight)


class Leaves(NamedTuple):
    """The inputs, weight and bias of a row norm as tensors, with the upstream gradient."""

    inputs: Any
    weight: Any
    bias: Any
    upstream: Any


def leaves_of(rows: NormalisedRows, dtype_name: str, device: str) -> Leaves:
    """Put the rows, their weight and a zero bias into tensors that require gradients."""
    length = len(rows.weight)
    zeros = [0.0] * length
    numbers = joined(rows.numbers)
    arriving = joined(rows.arriving)
    inputs = tensor_of(numbers, dtype_name, device, -1, length)
    weight = tensor_of(rows.weight, dtype_name, device)
    bias = tensor_of(zeros, dtype_name, device)
    upstream = tensor_of(arriving, dtype_name, device, -1, length)
    for leaf in (inputs, weight, bias):
        leaf.requires_grad_()
    return Leaves(inputs, weight, bias, upstream)


def gradients_of_rows(device: str) -> Iterator[Part]:
    """Catches a layer norm or RMS norm whose weight gradient leaves out rows, and an RMS norm that
    subtracts the mean."""
    for count, length in ((1, 16), (3, 34), (33, 126), (130, 18), (5, 1026), (1030, 4)):
        rows = rows_of(count, length)
        for dtype_name in formats_on(device):
            yield from gradients_of_layer_norm(rows, dtype_name, device)
            # torch 2.4 added rms_norm.
            if hasattr(torch.nn.functional, "rms_norm"):
                yield from gradients_of_rms_norm(rows, dtype_name, device)


def has_exact_sums(count: int, dtype_name: str, device: str) -> bool:
    """Whether torch adds up `count` rows precisely enough to compare the sum.

    A CPU adds up the rows in their 16-bit format, and above 256 bfloat16 does not hold every whole
    number.
    """
    if count < 256:
        return True
    return dtype_name not in HALVES or kind(device) != "cpu"


def gradients_of_layer_norm(rows: NormalisedRows, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of a layer norm's inputs, weight and bias."""
    count = len(rows.numbers)
    length = len(rows.weight)
    inputs, weight, bias, upstream = leaves_of(rows, dtype_name, device)
    outputs = torch.nn.functional.layer_norm(inputs, (length,), weight, bias, EPS)
    gradients = torch.autograd.grad(outputs, (inputs, weight, bias), upstream)

    label = f"of layer_norm, {count} x {length} {dtype_name}"
    exact = rows.gradient(takes_mean=True)
    limit = gradient_limit(dtype_name, length)
    yield near(f"gradient {label}", gradients[0], exact, limit)
    if has_exact_sums(count, dtype_name, device):
        limit = sum_limit(dtype_name, count)
        exact = rows.weight_gradient()
        yield near(f"gradient of the weight {label}", gradients[1], exact, limit)
        exact = rows.bias_gradient()
        yield near(f"gradient of the bias {label}", gradients[2], exact, limit)


def gradients_of_rms_norm(rows: NormalisedRows, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradients of an RMS norm's inputs and weight.

    The mean of the numbers is zero, so the root is 1, as in a layer norm.
    """
    count = len(rows.numbers)
    length = len(rows.weight)
    # An RMS norm has no bias.
    inputs, weight, _, upstream = leaves_of(rows, dtype_name, device)
    outputs = torch.nn.functional.rms_norm(inputs, (length,), weight, EPS)
    gradients = torch.autograd.grad(outputs, (inputs, weight), upstream)

    label = f"of rms_norm, {count} x {length} {dtype_name}"
    exact = rows.gradient(takes_mean=False)
    limit = gradient_limit(dtype_name, length)
    yield near(f"gradient {label}", gradients[0], exact, limit)
    if has_exact_sums(count, dtype_name, device):
        limit = sum_limit(dtype_name, count)
        exact = rows.weight_gradient()
        yield near(f"gradient of the weight {label}", gradients[1], exact, limit)


def gradients_of_many_rows(device: str) -> Iterator[Part]:
    """Catches weight and bias gradients that are summed over the rows in 16 bits."""
    # The number of steps is a multiple of 32, the length of a run of 16 steps up and a run of 16
    # steps down. The width is even, so that as many numbers can be above zero as below.
    steps, width = 4224, 4
    numbers = [SPREAD, -SPREAD] * (width // 2)
    for dtype_name in formats_on(device):
        # Short runs make the partial sums of single vector lanes large; long runs make the partial
        # sums of whole blocks large.
        for run in (1, 16, steps // 2):
            column = there_and_back(steps, run)
            row = tensor_of(numbers, dtype_name, device)
            inputs = row.expand(len(column), -1).contiguous()
            upstream = tensor_of(column, dtype_name, device, -1, 1).expand_as(inputs).contiguous()
            label = f"{len(column)} {dtype_name} rows, runs of {run}"
            yield from gradients_of_cancelling_rows(inputs, upstream, label)


def gradients_of_cancelling_rows(inputs: Any, upstream: Any, label: str) -> Iterator[Part]:
    """Compare the gradients of weight and bias if the upstream gradients of all rows except one
    cancel out."""
    dtype_name = dtype_name_of(inputs)
    count, width = inputs.shape
    weight = inputs.new_ones(width).requires_grad_()
    bias = inputs.new_zeros(width).requires_grad_()
    # The numbers have a mean of zero and a root of 1, so normalizing does not change them.
    by_weight = [ONE * number for number in inputs[0].tolist()]
    by_bias = [ONE] * width
    # A partial sum is at most half of all steps (all steps up, before any step down), and it is
    # rounded to float32 at each row.
    largest_sum = STEP * count / 2
    rounding_of_sums = largest_sum * roundoff("float32") * sqrt(count)
    limit = Limit(relative=4 * roundoff(dtype_name), absolute=rounding_of_sums)

    functional = torch.nn.functional
    outputs = {"group_norm": functional.group_norm(inputs, 1, weight, bias, EPS)}
    if has_exact_sums(count, dtype_name, str(inputs.device)):
        outputs["layer_norm"] = functional.layer_norm(inputs, (width,), weight, bias, EPS)
    for method, normalised_rows in outputs.items():
        computed = torch.autograd.grad(normalised_rows, (weight, bias), upstream)
        yield near(f"gradient of the weight of {method}, {label}", computed[0], by_weight, limit)
        yield near(f"gradient of the bias of {method}, {label}", computed[1], by_bias, limit)
    # torch 2.4 added rms_norm.
    if hasattr(functional, "rms_norm"):
        root_mean_square = functional.rms_norm(inputs, (width,), weight, EPS)
        (gradient,) = torch.autograd.grad(root_mean_square, weight, upstream)
        yield near(f"gradient of the weight of rms_norm, {label}", gradient, by_weight, limit)


# --- norms of images ------------------------------------------------------------------------------


class ImageNorm(NamedTuple):
    """The sizes of a batch norm or group norm of images."""

    method: str
    images: int
    channels: int
    pixels: int
    group_channels: int = 1
    """For a group norm, how many channels of an image form a group. A batch norm's group is one
    channel of all images."""


NORMS = (
    ImageNorm("batch", 2, 3, 34),
    ImageNorm("batch", 5, 17, 6),
    ImageNorm("batch", 1, 2, 1026),
    ImageNorm("group", 2, 6, 18, 3),
    ImageNorm("group", 3, 4, 66, 1),
    ImageNorm("group", 1, 32, 10, 8),
)
"""The numbers of pixels are even, so that as many numbers can be above zero as below."""


def gradients_of_image_norms(device: str) -> Iterator[Part]:
    """Catches a batch norm or group norm whose gradients are computed from the wrong channels,
    images or pixels."""
    for norm in NORMS:
        expected = expected_gradients(norm)
        shape = (norm.images, norm.channels, 2, norm.pixels // 2)
        for dtype_name in formats_on(device):
            plain = tensor_of(expected.numbers, dtype_name, device, *shape)
            # The label names the sizes, without the method.
            sizes = tuple(norm)[1:]
            for layout, images in in_both_layouts(plain):
                label = f"of {norm.method} norm {sizes} {dtype_name}, {layout}"
                yield from gradients_of_images(norm, images, label)


def gradients_of_images(norm: ImageNorm, images: Any, label: str) -> Iterator[Part]:
    """Compare the gradients of the pixels, the weight and the bias, for one memory layout of the
    images."""
    expected = expected_gradients(norm)
    dtype_name = dtype_name_of(images)
    device = str(images.device)
    weights = channel_weights(norm.channels)
    zeros = [0.0] * norm.channels
    # Detach the images, so that they are a leaf that gets its own gradient.
    leaf = images.detach().requires_grad_()
    weight = tensor_of(weights, dtype_name, device).requires_grad_()
    bias = tensor_of(zeros, dtype_name, device).requires_grad_()
    upstream = tensor_of(expected.upstream, dtype_name, device, *images.shape)
    outputs = normalised(norm, leaf, weight, bias)
    gradients = torch.autograd.grad(outputs, (leaf, weight, bias), upstream)

    count = norm.images * norm.pixels
    limit = gradient_limit(dtype_name, count)
    yield near(f"gradient {label}", gradients[0], expected.gradient, limit)
    limit = sum_limit(dtype_name, count)
    yield near(f"gradient of the weight {label}", gradients[1], expected.weight, limit)
    yield near(f"gradient of the bias {label}", gradients[2], expected.bias, limit)


def channel_weights(channels: int) -> List[float]:
    """The weight of each channel, from 1 to 3."""
    return sawtooth(channels, period=3, start=1)


def normalised(norm: ImageNorm, images: Any, weight: Any, bias: Any) -> Any:
    """Normalize the images with torch's batch norm or group norm."""
    functional = torch.nn.functional
    if norm.method == "batch":
        # Use training mode without running statistics, so the momentum (0.1) has no effect.
        return functional.batch_norm(images, None, None, weight, bias, True, 0.1, EPS)
    group_count = norm.channels // norm.group_channels
    return functional.group_norm(images, group_count, weight, bias, EPS)


class ExpectedGradients(NamedTuple):
    """The numbers of a batch of images, their upstream gradient, and the exact gradients of
    numbers, weight and bias."""

    numbers: List[float]
    upstream: List[float]
    gradient: List[float]
    weight: List[float]
    bias: List[float]


@functools.lru_cache(maxsize=1)
def expected_gradients(norm: ImageNorm) -> ExpectedGradients:
    """The exact gradients, computed group by group."""
    numbers: List[float] = []
    for plane in range(norm.images * norm.channels):
        numbers += balanced_numbers(norm.pixels, f"plane {plane}")
    upstream = arriving_numbers(len(numbers))
    weights = channel_weights(norm.channels)

    # Each channel has one weight and one bias for all images.
    by_weight = [0.0] * norm.channels
    by_bias = [0.0] * norm.channels
    arriving: List[float] = []
    for position, value in enumerate(upstream):
        channel = channel_of(position, norm)
        arriving.append(value * weights[channel])
        by_weight[channel] += numbers[position] * value
        by_bias[channel] += value

    gradient = [0.0] * len(numbers)
    for positions in groups_of(norm):
        group_numbers = [numbers[position] for position in positions]
        group_arriving = [arriving[position] for position in positions]
        group = Group(group_numbers, group_arriving)
        for position, value in zip(positions, group.gradient()):
            gradient[position] = value
    return ExpectedGradients(numbers, upstream, gradient, by_weight, by_bias)


def channel_of(position: int, norm: ImageNorm) -> int:
    """The channel of an element, from its position in memory."""
    plane = position // norm.pixels
    return plane % norm.channels


def groups_of(norm: ImageNorm) -> List[List[int]]:
    """The positions in memory of each group of numbers that are normalized together."""
    count = norm.images * norm.channels * norm.pixels
    if norm.method == "batch":
        groups: List[List[int]] = [[] for _ in range(norm.channels)]
        for position in range(count):
            channel = channel_of(position, norm)
            groups[channel].append(position)
        return groups
    # In memory, the channels of a group follow each other.
    size = norm.group_channels * norm.pixels
    return [list(range(start, start + size)) for start in range(0, count, size)]
