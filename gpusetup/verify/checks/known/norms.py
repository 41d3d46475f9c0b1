"""Normalisations of numbers whose mean and variance are known exactly.

Half of the numbers are `center + spread`, the other half `center - spread`: their mean is the
center, their variance the square of the spread. So each answer is plus or minus
`spread / sqrt(spread ** 2 + eps)`, times a weight, plus a bias.
"""

from __future__ import annotations

import functools
from math import sqrt
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import HALVES, Limit, ask_all, dice, formats_on, near, roundoff, tensor_of
from .norm_gradients import gradients_of_image_norms, gradients_of_rows

LENGTHS = (16, 34, 126, 1000, 1026, 4098)
"""Even, so that as many numbers lie above the mean as below it."""


class Spread(NamedTuple):
    """Numbers above and below a center."""

    name: str
    center: float
    spread: float
    eps: float = 1e-5


SPREADS = (
    Spread("plain", 0.0, 1.0),
    # The variance is a tenth of eps: without eps every answer would be 1 or -1.
    Spread("tiny", 0.0, 2.0**-10),
    Spread("large eps", 0.0, 0.5, eps=0.75),
    Spread("shifted", 3.0, 0.5),
)
FAR = {"float64": Spread("far", 2.0**20, 0.125), "float32": Spread("far", 2.0**12, 0.125)}
"""A mean of squares, less the square of the mean, would lose every digit of the variance."""


def norms(device: str) -> Outcome:
    """Normalisations take the mean away, and divide by the root of the variance plus eps."""
    questions = (
        layer_norms,
        rms_norms,
        group_norms,
        batch_norms_in_training,
        batch_norms_in_use,
        gradients_of_rows,
        gradients_of_image_norms,
    )
    return ask_all(device, questions, "means and variances that are known exactly")


def spreads_in(name: str) -> List[Spread]:
    """The cases of a format; the halves cannot hold a number far from zero with a small spread."""
    cases = list(SPREADS)
    if name in FAR:
        cases.append(FAR[name])
    return cases


def signs_of(length: int, salt: str) -> List[float]:
    """As many +1 as -1, in random order."""
    signs = [1.0, -1.0] * (length // 2)
    dice(f"signs {length} {salt}").shuffle(signs)
    return signs


def numbers_of(case: Spread, signs: Sequence[float]) -> List[float]:
    return [case.center + sign * case.spread for sign in signs]


def height(case: Spread) -> float:
    """The size of each answer."""
    root = sqrt(case.spread**2 + case.eps)
    return case.spread / root


def limit_of(case: Spread, name: str, length: int) -> Limit:
    """The error allowed of an answer of about 1, times a weight of up to 3.

    The rounding of the mean, of the size of the center, is divided by the spread too.
    """
    unit = roundoff(name)
    if name in HALVES:
        return Limit(absolute=8 * unit)
    size = 1.0 + abs(case.center) / sqrt(case.spread**2 + case.eps)
    return Limit(absolute=(32 + sqrt(length)) * unit * size)


def ramp(length: int, period: int) -> List[float]:
    """Whole numbers that come again after a period: 1, 2, 3, 1, 2, 3, ..."""
    numbers: List[float] = []
    for position in range(length):
        numbers.append(1.0 + position % period)
    return numbers


def layer_norms(device: str) -> Iterator[Part]:
    """Catches a lost eps, a cut row, weights of another place, and a variance of lost digits."""
    for name in formats_on(device):
        for length in LENGTHS:
            weight, bias = ramp(length, 3), ramp(length, 2)
            for case in spreads_in(name):
                rows = [signs_of(length, f"layer {number}") for number in range(2)]
                values = [value for signs in rows for value in numbers_of(case, signs)]
                computed = torch.nn.functional.layer_norm(
                    tensor_of(values, name, device, 2, length),
                    (length,),
                    tensor_of(weight, name, device),
                    tensor_of(bias, name, device),
                    case.eps,
                )
                exact: List[float] = []
                for signs in rows:
                    exact += [
                        sign * height(case) * w + b for sign, w, b in zip(signs, weight, bias)
                    ]
                label = f"layer_norm of {length} {name} numbers, {case.name}"
                yield near(label, computed, exact, limit_of(case, name, length))


def rms_norms(device: str) -> Iterator[Part]:
    """Catches an RMS norm that loses its eps or the end of a row."""
    if not hasattr(torch.nn.functional, "rms_norm"):  # torch 2.4 brought it
        return
    for name in formats_on(device):
        for length in LENGTHS:
            for case in SPREADS[:3]:
                signs = signs_of(length, "rms")
                inputs = tensor_of(numbers_of(case, signs), name, device)
                computed = torch.nn.functional.rms_norm(inputs, (length,), None, case.eps)
                exact = [sign * height(case) for sign in signs]
                label = f"rms_norm of {length} {name} numbers, {case.name}"
                yield near(label, computed, exact, limit_of(case, name, length))


# --- images ---------------------------------------------------------------------------------------


class Images(NamedTuple):
    """A batch of images, each channel with a spread and a center of its own."""

    signs: List[float]
    """Of every element, image by image, channel by channel."""
    channels: int
    images: int
    pixels: int
    """Of one channel of one image; even."""

    def channel_of(self, position: int) -> int:
        return position // self.pixels % self.channels

    def shape(self) -> Sequence[int]:
        return (self.images, self.channels, 2, self.pixels // 2)


@functools.lru_cache(maxsize=None)
def images_of(images: int, channels: int, pixels: int) -> Images:
    signs: List[float] = []
    for number in range(images * channels):
        signs += signs_of(pixels, f"image {number}")
    return Images(signs, channels, images, pixels)


SHAPES = ((2, 3, 34), (3, 17, 66), (1, 5, 1026), (5, 1, 8), (1, 2, 8194))
"""Images, channels and pixels."""


def channel_case(case: Spread, channel: int) -> Spread:
    """Each channel has another spread and center."""
    factor = 1.0 + channel % 2
    return case._replace(spread=case.spread * factor, center=case.center * factor)


class ChannelNumbers(NamedTuple):
    """The numbers of a batch, and what a norm over each channel makes of them."""

    values: List[float]
    normalised: List[float]


@functools.lru_cache(maxsize=None)
def channel_numbers(shape: Tuple[int, int, int], case: Spread) -> ChannelNumbers:
    """Worked out once for all formats."""
    images = images_of(*shape)
    values: List[float] = []
    normalised: List[float] = []
    for position, sign in enumerate(images.signs):
        own_case = channel_case(case, images.channel_of(position))
        values.append(own_case.center + sign * own_case.spread)
        normalised.append(sign * height(own_case))
    return ChannelNumbers(values, normalised)


def channels_last(inputs: Any) -> Any:
    """The same images with the channels of a pixel side by side in memory."""
    return inputs.contiguous(memory_format=torch.channels_last)


def group_norms(device: str) -> Iterator[Part]:
    """Catches group and instance norms that mix channels, or lose pixels of one."""
    for name in formats_on(device):
        for shape in SHAPES:
            images = images_of(*shape)
            for case in SPREADS[:2]:
                numbers = channel_numbers(shape, case)
                inputs = tensor_of(numbers.values, name, device, *images.shape())
                limit = limit_of(case, name, images.pixels)
                label = f"of {shape} {name} numbers, {case.name}"
                computed = torch.nn.functional.group_norm(
                    inputs, images.channels, None, None, case.eps
                )
                yield near(f"group_norm {label}", computed, numbers.normalised, limit)
                inputs = channels_last(inputs)
                computed = torch.nn.functional.instance_norm(inputs, eps=case.eps)
                yield near(f"instance_norm {label}", computed, numbers.normalised, limit)


def batch_norms_in_training(device: str) -> Iterator[Part]:
    """Catches running values that are biased or not kept, in both layouts of memory."""
    for name in formats_on(device):
        for number, shape in enumerate(SHAPES):
            images = images_of(*shape)
            for case in SPREADS:
                numbers = channel_numbers(shape, case)
                inputs = tensor_of(numbers.values, name, device, *images.shape())
                if number % 2:
                    inputs = channels_last(inputs)
                stored = "float32" if name in HALVES else name
                means = tensor_of([0.0] * images.channels, stored, device)
                variances = tensor_of([1.0] * images.channels, stored, device)
                norm = torch.nn.functional.batch_norm
                computed = norm(inputs, means, variances, None, None, True, 0.25, case.eps)
                label = f"of {shape} {name} numbers, {case.name}"
                limit = limit_of(case, name, images.images * images.pixels)
                yield near(f"batch_norm {label}", computed, numbers.normalised, limit)
                expected = running_values(images, case)
                rough = Limit(8 * roundoff(name), 64 * roundoff(stored))
                yield near(f"running mean {label}", means, expected["mean"], rough)
                yield near(f"running variance {label}", variances, expected["variance"], rough)


def running_values(images: Images, case: Spread) -> Dict[str, List[float]]:
    """After one step with momentum 0.25, from a mean of 0 and a variance of 1."""
    count = images.images * images.pixels
    cases = [channel_case(case, channel) for channel in range(images.channels)]
    # The running variance is the unbiased one.
    unbiased = [item.spread**2 * count / (count - 1) for item in cases]
    return {
        "mean": [0.25 * item.center for item in cases],
        "variance": [0.75 + 0.25 * variance for variance in unbiased],
    }


def batch_norms_in_use(device: str) -> Iterator[Part]:
    """Catches a batch norm that takes the batch's values in place of the running ones."""
    for name in formats_on(device):
        for shape in SHAPES:
            images = images_of(*shape)
            channels = range(images.channels)
            means = [float(channel % 3) for channel in channels]
            # With eps, each root is a whole number.
            variances = [float((1 + channel % 4) ** 2) - 0.25 for channel in channels]
            weight, bias = ramp(images.channels, 3), ramp(images.channels, 2)
            inputs = tensor_of(images.signs, name, device, *images.shape())
            tables = [
                tensor_of(values, name, device) for values in (means, variances, weight, bias)
            ]
            exact: List[float] = []
            for position, sign in enumerate(images.signs):
                channel = images.channel_of(position)
                normalised = (sign - means[channel]) / sqrt(variances[channel] + 0.25)
                exact.append(normalised * weight[channel] + bias[channel])
            limit = Limit(absolute=32 * roundoff(name))
            for layout, laid_out in (("", inputs), (", channels last", channels_last(inputs))):
                computed = torch.nn.functional.batch_norm(laid_out, *tables, False, 0.1, 0.25)
                label = f"batch_norm in use of {shape} {name} numbers{layout}"
                yield near(label, computed, exact, limit)
