"""Normalizations of numbers whose mean and variance are known exactly.

Half of the numbers are `center + spread` and the other half `center - spread`, so their mean is the
center and their variance is the square of the spread. Each result must be plus or minus `spread /
sqrt(spread ** 2 + eps)`, times a weight, plus a bias.
"""

from __future__ import annotations

import functools
from math import sqrt
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import HALVES, Limit, ask_all, dice, formats_on, near, roundoff, tensor_of
from .norm_gradients import (
    gradients_of_image_norms,
    gradients_of_many_rows,
    gradients_of_rows,
)
from .number_lists import sawtooth

LENGTHS = (16, 34, 126, 1000, 1026, 4098)
"""Row lengths. They are even, so that as many numbers can be above the mean as below it."""


class CenteredSpread(NamedTuple):
    """Numbers at a fixed distance (`spread`) above and below a center."""

    name: str
    center: float
    spread: float
    eps: float = 1e-5


SPREADS = (
    CenteredSpread("plain", 0.0, 1.0),
    # The variance is a tenth of eps, so a lost eps shows: every result would be 1 or -1.
    CenteredSpread("tiny", 0.0, 2.0**-10),
    CenteredSpread("large eps", 0.0, 0.5, eps=0.75),
    CenteredSpread("shifted", 3.0, 0.5),
)
FAR = {
    "float64": CenteredSpread("far", 2.0**20, 0.125),
    "float32": CenteredSpread("far", 2.0**12, 0.125),
}
"""Numbers far from zero, for the formats that can hold them. A kernel that computes the variance as
the mean of squares minus the square of the mean loses all its digits here."""


def norms(device: str) -> Outcome:
    """Check that norms subtract the mean and divide by the square root of variance plus eps, and
    that their gradients are right."""
    questions = (
        layer_norms,
        rms_norms,
        rms_norms_with_default_eps,
        group_norms,
        batch_norms_in_training,
        batch_norms_in_use,
        gradients_of_rows,
        gradients_of_many_rows,
        gradients_of_image_norms,
    )
    return ask_all(device, questions, "means and variances that are known exactly")


def spreads_in(name: str) -> List[CenteredSpread]:
    """The test cases for a format. 16-bit formats cannot hold numbers far from zero with a small
    spread, so they leave out that case."""
    cases = list(SPREADS)
    if name in FAR:
        cases.append(FAR[name])
    return cases


def signs_of(length: int, salt: str) -> List[float]:
    """Returns equally many 1 and -1, in random order. `length` must be even."""
    pairs = length // 2
    signs = [1.0, -1.0] * pairs
    dice(f"signs {length} {salt}").shuffle(signs)
    return signs


def numbers_of(case: CenteredSpread, signs: Sequence[float]) -> List[float]:
    """The center plus or minus the spread, for each sign."""
    numbers: List[float] = []
    for sign in signs:
        distance = sign * case.spread
        numbers.append(case.center + distance)
    return numbers


def root_of(case: CenteredSpread) -> float:
    """The divisor of the norm: the square root of variance plus eps."""
    return sqrt(case.spread**2 + case.eps)


def height(case: CenteredSpread) -> float:
    """The absolute value of each exact result, before weight and bias."""
    return case.spread / root_of(case)


def limit_of(case: CenteredSpread, dtype_name: str, length: int) -> Limit:
    """The error allowed in a result, which is about 1 times a weight of up to 3.

    The mean has a rounding error in proportion to the center, and that error is divided by the root
    too.
    """
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        return Limit(absolute=8 * unit)
    size = 1.0 + abs(case.center) / root_of(case)
    # Allow 32 roundings for about a dozen operations. The error of a sum grows with the square root
    # of its length.
    roundings = 32 + sqrt(length)
    return Limit(absolute=roundings * unit * size)


# --- norms of rows --------------------------------------------------------------------------------


def layer_norms(device: str) -> Iterator[Part]:
    """Catches a layer norm that leaves out eps or the end of a row, misplaces weights, or computes
    the variance imprecisely."""
    for dtype_name in formats_on(device):
        for length in LENGTHS:
            for case in spreads_in(dtype_name):
                yield layer_norm(case, length, dtype_name, device)


def layer_norm(case: CenteredSpread, length: int, dtype_name: str, device: str) -> Part:
    """Compare the layer norm of two rows with a weight and bias per column."""
    weight = sawtooth(length, period=3, start=1)
    bias = sawtooth(length, period=2, start=1)
    values: List[float] = []
    exact: List[float] = []
    for number in range(2):
        signs = signs_of(length, f"layer {number}")
        values += numbers_of(case, signs)
        for sign, factor, shift in zip(signs, weight, bias):
            normalised = sign * height(case)
            exact.append(normalised * factor + shift)

    computed = torch.nn.functional.layer_norm(
        tensor_of(values, dtype_name, device, 2, length),
        (length,),
        tensor_of(weight, dtype_name, device),
        tensor_of(bias, dtype_name, device),
        case.eps,
    )
    label = f"layer_norm of {length} {dtype_name} numbers, {case.name}"
    return near(label, computed, exact, limit_of(case, dtype_name, length))


def rms_norms(device: str) -> Iterator[Part]:
    """Catches an RMS norm that leaves out eps or the end of a row."""
    # torch 2.4 added rms_norm.
    if not hasattr(torch.nn.functional, "rms_norm"):
        return
    for dtype_name in formats_on(device):
        for length in LENGTHS:
            # An RMS norm does not subtract the mean, so `height` is only right for a center of 0.
            centered_cases = [case for case in SPREADS if not case.center]
            for case in centered_cases:
                signs = signs_of(length, "rms")
                inputs = tensor_of(numbers_of(case, signs), dtype_name, device)
                computed = torch.nn.functional.rms_norm(inputs, (length,), None, case.eps)
                exact = [sign * height(case) for sign in signs]
                label = f"rms_norm of {length} {dtype_name} numbers, {case.name}"
                yield near(label, computed, exact, limit_of(case, dtype_name, length))


SMALL = 2.0**-10
"""A number whose square is eight times the default eps, so that a wrong eps shows."""
DEFAULT_EPS = 2.0**-23
"""The eps that torch uses for float32 if none is given (see `torch.nn.RMSNorm`): the machine
epsilon of float32."""


def rms_norms_with_default_eps(device: str) -> Iterator[Part]:
    """Catches an RMS norm with a wrong default eps. The right one is the machine epsilon of the
    format."""
    if not hasattr(torch.nn.functional, "rms_norm"):
        return
    exact_height = SMALL / sqrt(SMALL**2 + DEFAULT_EPS)
    for length in LENGTHS:
        signs = signs_of(length, "rms")
        inputs = tensor_of([sign * SMALL for sign in signs], "float32", device)
        computed = torch.nn.functional.rms_norm(inputs, (length,))
        exact = [sign * exact_height for sign in signs]
        # The squares are equal powers of two, so their mean is exact, and only the root and the
        # quotient are rounded.
        limit = Limit(16 * roundoff("float32"))
        yield near(f"rms_norm of {length} small numbers, default eps", computed, exact, limit)


# --- images ---------------------------------------------------------------------------------------


class Images(NamedTuple):
    """A batch of images in which each channel has a different spread and center."""

    signs: List[float]
    """The sign of every element, image by image and channel by channel."""
    channels: int
    images: int
    pixels: int
    """The number of pixels in one channel of one image. It is even."""

    def channel_of(self, position: int) -> int:
        """The channel of an element, from its position in memory."""
        plane = position // self.pixels
        return plane % self.channels

    def shape(self) -> Sequence[int]:
        """The shape of the batch; each channel has two rows of pixels."""
        return (self.images, self.channels, 2, self.pixels // 2)


@functools.lru_cache(maxsize=None)
def images_of(images: int, channels: int, pixels: int) -> Images:
    """Make images in which each channel has as many numbers above its center as below."""
    signs: List[float] = []
    for number in range(images * channels):
        signs += signs_of(pixels, f"image {number}")
    return Images(signs, channels, images, pixels)


SHAPES = ((2, 3, 34), (3, 17, 66), (1, 5, 1026), (5, 1, 8), (1, 2, 8194))
"""For each batch, the number of images, channels and pixels."""


def channel_case(case: CenteredSpread, channel: int) -> CenteredSpread:
    """The case for one channel: every second channel has twice the spread and center."""
    factor = 1.0 + channel % 2
    spread = case.spread * factor
    center = case.center * factor
    return case._replace(spread=spread, center=center)


class ChannelNumbers(NamedTuple):
    """The numbers of a batch, and the exact result of normalizing each channel."""

    values: List[float]
    normalised: List[float]


@functools.lru_cache(maxsize=None)
def channel_numbers(shape: Tuple[int, int, int], case: CenteredSpread) -> ChannelNumbers:
    """The numbers and results of one case, computed once for all formats."""
    images = images_of(*shape)
    values: List[float] = []
    normalised: List[float] = []
    for position, sign in enumerate(images.signs):
        channel = images.channel_of(position)
        scaled_case = channel_case(case, channel)
        distance = sign * scaled_case.spread
        values.append(scaled_case.center + distance)
        # Without weight and bias, the result is plus or minus the height.
        normalised.append(sign * height(scaled_case))
    return ChannelNumbers(values, normalised)


def channels_last(inputs: Any) -> Any:
    """Returns the same images in the channels-last memory layout."""
    return inputs.contiguous(memory_format=torch.channels_last)


def group_norms(device: str) -> Iterator[Part]:
    """Catches group and instance norms that mix channels, leave out pixels, or compute the variance
    imprecisely."""
    functional = torch.nn.functional
    for dtype_name in formats_on(device):
        for shape in SHAPES:
            images = images_of(*shape)
            cases = list(SPREADS[:2])
            if dtype_name in FAR:
                cases.append(FAR[dtype_name])
            for case in cases:
                numbers = channel_numbers(shape, case)
                inputs = tensor_of(numbers.values, dtype_name, device, *images.shape())
                limit = limit_of(case, dtype_name, images.pixels)
                label = f"of {shape} {dtype_name} numbers, {case.name}"
                # Each channel is one group.
                groups = images.channels
                computed = functional.group_norm(inputs, groups, None, None, case.eps)
                yield near(f"group_norm {label}", computed, numbers.normalised, limit)
                computed = functional.instance_norm(channels_last(inputs), eps=case.eps)
                yield near(f"instance_norm {label}", computed, numbers.normalised, limit)


MOMENTUM = 0.25
"""The weight of the current batch in a running statistic of a batch norm."""


def batch_norms_in_training(device: str) -> Iterator[Part]:
    """Catches running statistics that are biased or not updated, and an imprecise variance.

    Tests both memory layouts.
    """
    for dtype_name in formats_on(device):
        for number, shape in enumerate(SHAPES):
            images = images_of(*shape)
            for case in spreads_in(dtype_name):
                values = channel_numbers(shape, case).values
                inputs = tensor_of(values, dtype_name, device, *images.shape())
                # Alternate between the two layouts.
                if number % 2:
                    inputs = channels_last(inputs)
                yield from batch_norm_in_training(inputs, shape, case, dtype_name)


def batch_norm_in_training(
    inputs: Any, shape: Tuple[int, int, int], case: CenteredSpread, dtype_name: str
) -> Iterator[Part]:
    """Compare the results and both running statistics of one training step of a batch norm."""
    device = str(inputs.device)
    images = images_of(*shape)
    # Running statistics are kept in float32 for 16-bit formats too.
    stored = "float32" if dtype_name in HALVES else dtype_name
    means = tensor_of([0.0] * images.channels, stored, device)
    variances = tensor_of([1.0] * images.channels, stored, device)
    computed = torch.nn.functional.batch_norm(
        inputs, means, variances, training=True, momentum=MOMENTUM, eps=case.eps
    )

    label = f"of {shape} {dtype_name} numbers, {case.name}"
    exact = channel_numbers(shape, case).normalised
    # A batch norm normalizes the pixels of a channel over all images together.
    count = images.images * images.pixels
    limit = limit_of(case, dtype_name, count)
    yield near(f"batch_norm {label}", computed, exact, limit)
    expected = running_values(images, case)
    limit = Limit(8 * roundoff(dtype_name), 64 * roundoff(stored))
    yield near(f"running mean {label}", means, expected.means, limit)
    # The mean has a rounding error in proportion to its size, and so has each distance from it.
    size = 1.0 + abs(case.center) / root_of(case)
    limit = Limit(8 * roundoff(dtype_name), 64 * roundoff(stored) * size)
    yield near(f"running variance {label}", variances, expected.variances, limit)


class RunningValues(NamedTuple):
    """The running mean and variance of each channel of a batch norm."""

    means: List[float]
    variances: List[float]


def running_values(images: Images, case: CenteredSpread) -> RunningValues:
    """The exact running statistics after one step that starts with mean 0 and variance 1."""
    count = images.images * images.pixels
    means: List[float] = []
    variances: List[float] = []
    for channel in range(images.channels):
        scaled_case = channel_case(case, channel)
        means.append(MOMENTUM * scaled_case.center)
        # The running variance uses the unbiased variance of the batch.
        unbiased = scaled_case.spread**2 * count / (count - 1)
        variances.append((1 - MOMENTUM) + MOMENTUM * unbiased)
    return RunningValues(means, variances)


class ChannelTable(NamedTuple):
    """The running statistics, weight and bias of one channel, for a batch norm in evaluation
    mode."""

    mean: float
    variance: float
    weight: float
    bias: float

    def answer(self, number: float) -> float:
        """The exact result of the batch norm for a number in this channel."""
        root = sqrt(self.variance + USE_EPS)
        normalised = (number - self.mean) / root
        return normalised * self.weight + self.bias


USE_EPS = 0.25
"""The eps in evaluation mode. It is large, so that a lost eps shows."""


def channel_table(channel: int) -> ChannelTable:
    """The statistics, weight and bias of one channel. The root of variance plus eps is a whole
    number from 1 to 4."""
    root = 1.0 + channel % 4
    variance = root**2 - USE_EPS
    # All four values differ between neighbouring channels.
    mean = float(channel % 3)
    weight = 1.0 + channel % 3
    bias = 1.0 + channel % 2
    return ChannelTable(mean, variance, weight, bias)


def batch_norms_in_use(device: str) -> Iterator[Part]:
    """Catches a batch norm in evaluation mode that uses the batch's statistics instead of the
    running statistics."""
    for dtype_name in formats_on(device):
        for shape in SHAPES:
            images = images_of(*shape)
            channels = list(map(channel_table, range(images.channels)))
            exact: List[float] = []
            for position, sign in enumerate(images.signs):
                channel = channels[images.channel_of(position)]
                exact.append(channel.answer(sign))

            plain = tensor_of(images.signs, dtype_name, device, *images.shape())
            # One tensor each for the means, variances, weights and biases.
            tables = [tensor_of(column, dtype_name, device) for column in zip(*channels)]
            limit = Limit(absolute=32 * roundoff(dtype_name))
            label = f"batch_norm in use of {shape} {dtype_name} numbers"
            for layout, inputs in (("", plain), (", channels last", channels_last(plain))):
                computed = torch.nn.functional.batch_norm(inputs, *tables, eps=USE_EPS)
                yield near(f"{label}{layout}", computed, exact, limit)
