"""Gradients of normalisations, from their definition in Python; asked by the check `norms`.

With the normalised numbers n, and g that arrives times the weight, the gradient of one group is
`(g - mean(g) - n * mean(g * n)) / root`; that of an RMS norm has no `mean(g)`.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import kind
from .answers import HALVES, Limit, dice, formats_on, near, roundoff, tensor_of

SPREAD, EPS = 0.5, 0.75
"""Each number is half above or below zero: with eps the variance is 1, and so is the root."""
UPSTREAM = (-1.0, 0.0, 1.0, 2.0, 3.0)


class Group(NamedTuple):
    """The numbers that are normalised together, and what arrives at each."""

    numbers: List[float]
    arriving: List[float]

    def gradient(self, takes_mean: bool = True) -> List[float]:
        """The gradient of the numbers. Both means are taken of the whole group."""
        count = len(self.numbers)
        mean = fsum(self.arriving) / count if takes_mean else 0.0
        slope = fsum(map(float.__mul__, self.arriving, self.numbers)) / count
        gradient: List[float] = []
        for number, arriving in zip(self.numbers, self.arriving):
            gradient.append(arriving - mean - number * slope)
        return gradient


def balanced_numbers(count: int, salt: str) -> List[float]:
    """As many numbers above zero as below it, mixed."""
    numbers = [SPREAD, -SPREAD] * (count // 2)
    dice(f"norm gradient {count} {salt}").shuffle(numbers)
    return numbers


def arriving_numbers(count: int) -> List[float]:
    return [UPSTREAM[(3 * position + position // 7) % 5] for position in range(count)]


def gradient_limit(name: str, count: int) -> Limit:
    """Sums of so many products, of which halves round each one once."""
    if name in HALVES:
        return Limit(8 * roundoff(name), 24 * roundoff(name))
    unit = (64 + 4 * sqrt(count)) * roundoff(name)
    return Limit(unit, 4 * unit)


def sum_limit(name: str, count: int) -> Limit:
    """The gradient of a weight is a sum over rows. Halves may be added up in parts."""
    if name in HALVES:
        return Limit(8 * roundoff(name), 4 * roundoff(name) * sqrt(count))
    return Limit(32 * roundoff(name), 32 * roundoff(name) * sqrt(count))


def gradients_of_rows(device: str) -> Iterator[Part]:
    """Catches a layer or RMS norm whose weight learns from some rows, and a mean that is kept."""
    for rows, length in ((1, 16), (3, 34), (33, 126), (130, 18), (5, 1026), (1030, 4)):
        weight = [float(1 + position % 3) for position in range(length)]
        numbers = [balanced_numbers(length, f"row {row}") for row in range(rows)]
        upstream = arriving_numbers(rows * length)
        arriving = [upstream[start : start + length] for start in range(0, len(upstream), length)]
        groups: List[Group] = []
        for row, along in zip(numbers, arriving):
            groups.append(Group(row, list(map(float.__mul__, along, weight))))
        by_weight = [0.0] * length
        by_bias = [0.0] * length
        for row, along in zip(numbers, arriving):
            for position, (number, value) in enumerate(zip(row, along)):
                by_weight[position] += number * value
                by_bias[position] += value
        flat = [value for row in numbers for value in row]
        exact = [value for group in groups for value in group.gradient()]
        exact_rms = [value for group in groups for value in group.gradient(takes_mean=False)]
        for name in formats_on(device):
            leaf = tensor_of(flat, name, device, rows, length).requires_grad_()
            scale = tensor_of(weight, name, device).requires_grad_()
            shift = tensor_of([0.0] * length, name, device).requires_grad_()
            along = tensor_of(upstream, name, device, rows, length)
            computed = torch.nn.functional.layer_norm(leaf, (length,), scale, shift, EPS)
            gradients = torch.autograd.grad(computed, (leaf, scale, shift), along)
            label = f"of layer_norm, {rows} x {length} {name}"
            limit = gradient_limit(name, length)
            yield near(f"gradient {label}", gradients[0], exact, limit)
            limit_of_sum = sum_limit(name, rows)
            # A CPU adds up the rows in 16 bits: past 256 the whole numbers of bfloat16 have gaps.
            has_exact_sums = rows < 256 or name not in HALVES or kind(device) != "cpu"
            if has_exact_sums:
                yield near(f"gradient of the weight {label}", gradients[1], by_weight, limit_of_sum)
                yield near(f"gradient of the bias {label}", gradients[2], by_bias, limit_of_sum)
            if not hasattr(torch.nn.functional, "rms_norm"):
                continue  # torch 2.4 brought it
            # Without a mean to take away, eps does the same.
            computed = torch.nn.functional.rms_norm(leaf, (length,), scale, EPS)
            gradients = torch.autograd.grad(computed, (leaf, scale), along)
            label = f"of rms_norm, {rows} x {length} {name}"
            yield near(f"gradient {label}", gradients[0], exact_rms, limit)
            if has_exact_sums:
                yield near(f"gradient of the weight {label}", gradients[1], by_weight, limit_of_sum)


class ImageNorm(NamedTuple):
    """How images are normalised: which of their numbers make one group."""

    method: str
    images: int
    channels: int
    pixels: int
    group_channels: int = 1
    """Channels of one image that make a group; a batch norm's group has one of all images."""


NORMS = (
    ImageNorm("batch", 2, 3, 34),
    ImageNorm("batch", 5, 17, 6),
    ImageNorm("batch", 1, 2, 1026),
    ImageNorm("group", 2, 6, 18, 3),
    ImageNorm("group", 3, 4, 66, 1),
    ImageNorm("group", 1, 32, 10, 8),
)


def gradients_of_image_norms(device: str) -> Iterator[Part]:
    """Catches a batch or group norm that learns from other channels, images or pixels."""
    for norm in NORMS:
        expected = expected_gradients(norm)
        shape = (norm.images, norm.channels, 2, norm.pixels // 2)
        for name in formats_on(device):
            scale = tensor_of(channel_weights(norm), name, device).requires_grad_()
            shift = tensor_of([0.0] * norm.channels, name, device).requires_grad_()
            along = tensor_of(expected.upstream, name, device, *shape)
            plain = tensor_of(expected.numbers, name, device, *shape)
            last = plain.contiguous(memory_format=torch.channels_last)
            for layout, images in (("plain", plain), ("channels last", last)):
                leaf = images.detach().requires_grad_()
                computed = normalised(norm, leaf, (scale, shift))
                gradients = torch.autograd.grad(computed, (leaf, scale, shift), along)
                count = norm.images * norm.pixels
                label = f"of {norm.method} norm {tuple(norm)[1:]} {name}, {layout}"
                limit = gradient_limit(name, count)
                yield near(f"gradient {label}", gradients[0], expected.gradient, limit)
                limit = sum_limit(name, count)
                yield near(f"gradient of the weight {label}", gradients[1], expected.weight, limit)
                yield near(f"gradient of the bias {label}", gradients[2], expected.bias, limit)


def channel_weights(norm: ImageNorm) -> List[float]:
    return [float(1 + channel % 3) for channel in range(norm.channels)]


def normalised(norm: ImageNorm, images: Any, learned: Tuple[Any, Any]) -> Any:
    functional = torch.nn.functional
    if norm.method == "batch":
        return functional.batch_norm(images, None, None, *learned, True, 0.1, EPS)
    return functional.group_norm(images, norm.channels // norm.group_channels, *learned, EPS)


class ExpectedGradients(NamedTuple):
    """The numbers of a batch of images, what arrives, and all gradients."""

    numbers: List[float]
    upstream: List[float]
    gradient: List[float]
    weight: List[float]
    bias: List[float]


def expected_gradients(norm: ImageNorm) -> ExpectedGradients:
    """Worked out group by group."""
    count = norm.images * norm.channels * norm.pixels
    upstream = arriving_numbers(count)
    numbers: List[float] = []
    for plane in range(norm.images * norm.channels):
        numbers += balanced_numbers(norm.pixels, f"plane {plane}")
    weights = channel_weights(norm)
    channels = [position // norm.pixels % norm.channels for position in range(count)]
    gradient = [0.0] * count
    for positions in groups_of(norm, channels):
        arriving = [upstream[position] * weights[channels[position]] for position in positions]
        group = Group([numbers[position] for position in positions], arriving)
        for position, value in zip(positions, group.gradient()):
            gradient[position] = value
    by_weight = [0.0] * norm.channels
    by_bias = [0.0] * norm.channels
    for position, channel in enumerate(channels):
        by_weight[channel] += numbers[position] * upstream[position]
        by_bias[channel] += upstream[position]
    return ExpectedGradients(numbers, upstream, gradient, by_weight, by_bias)


def groups_of(norm: ImageNorm, channels: Sequence[int]) -> List[List[int]]:
    """The positions of the numbers that are normalised together."""
    if norm.method == "batch":
        groups: List[List[int]] = [[] for _ in range(norm.channels)]
        for position, channel in enumerate(channels):
            groups[channel].append(position)
        return groups
    size = norm.group_channels * norm.pixels
    return [list(range(start, start + size)) for start in range(0, len(channels), size)]
