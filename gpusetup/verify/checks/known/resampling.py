"""Images enlarged, folded and sampled between pixels, and pools with their gradients.

Enlarging by whole factors weighs pixels by simple fractions, so Python knows each new pixel.
"""

from __future__ import annotations

import functools
from itertools import product
from math import floor
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    Limit,
    ask_all,
    dice,
    exactly,
    flat_list,
    formats_on,
    near,
    offered,
    roundoff,
    tensor_of,
)

LENGTHS = (5, 17, 65, 1027)
Shares = Dict[int, float]
"""Position of a source pixel -> its share in a new pixel."""
Weigher = Callable[[int, int, int], Shares]
"""(new position, old length, new length) -> the shares of the old pixels."""


def resampling(device: str) -> Outcome:
    """Enlarged, pooled, folded and convolved rows agree with weighted sums in Python."""
    questions = (
        enlarged_rows,
        enlarged_images,
        gradients_of_pools,
        rows_convolved,
        volumes_convolved,
        strided_transposed_rows,
        folded_images,
        shuffled_pixels,
        sampled_images,
    )
    return ask_all(device, questions, "weighted sums in Python")


def whole_row(length: int, salt: str) -> List[float]:
    chance = dice(f"resampled {length} {salt}")
    return [float(chance.randint(-4, 4)) for _ in range(length)]


# --- enlarging ------------------------------------------------------------------------------------


def linear_shares(position: int, old: int, new: int) -> Shares:
    """Between the centers of two pixels; outside of the first and the last one nothing changes."""
    source = max(0.0, (position + 0.5) * old / new - 0.5)
    return between(source, old)


def corner_shares(position: int, old: int, new: int) -> Shares:
    """The first and last pixels of both rows lie on each other (`align_corners`)."""
    source = position * (old - 1) / (new - 1)
    return between(source, old)


def between(source: float, length: int) -> Shares:
    """The two pixels around a place, weighed by how near they are.

    >>> between(1.25, 4), between(3.5, 4)
    ({1: 0.75, 2: 0.25}, {3: 1.0})
    """
    first = min(floor(source), length - 1)
    second = min(first + 1, length - 1)
    if second == first:
        return {first: 1.0}
    return {first: 1 - (source - first), second: source - first}


def nearest_shares(position: int, old: int, new: int) -> Shares:
    return {position * old // new: 1.0}


def exact_nearest_shares(position: int, old: int, new: int) -> Shares:
    """The pixel under the center of the new one."""
    return {floor((position + 0.5) * old / new): 1.0}


def area_shares(position: int, old: int, new: int) -> Shares:
    """The mean of all pixels that a new one covers."""
    start = position * old // new
    stop = -(-(position + 1) * old // new)
    return dict.fromkeys(range(start, stop), 1 / (stop - start))


MODES: Tuple[Tuple[str, Dict[str, Any], Weigher], ...] = (
    ("linear", {"align_corners": False}, linear_shares),
    ("linear", {"align_corners": True}, corner_shares),
    ("nearest", {}, nearest_shares),
    ("nearest-exact", {}, exact_nearest_shares),
    ("area", {}, area_shares),
)


def weighed(row: Sequence[float], new: int, weigher: Weigher) -> List[float]:
    """Each new pixel as the weighted sum of old ones."""
    pixels: List[float] = []
    for position in range(new):
        shares = weigher(position, len(row), new)
        pixels.append(sum(share * row[source] for source, share in shares.items()))
    return pixels


def gradient_of_weighed(upstream: Sequence[float], old: int, weigher: Weigher) -> List[float]:
    """What arrives at each old pixel: the shares of it that went into new ones."""
    gradient = [0.0] * old
    for position, value in enumerate(upstream):
        for source, share in weigher(position, old, len(upstream)).items():
            gradient[source] += share * value
    return gradient


def enlarged_rows(device: str) -> Iterator[Part]:
    """Catches new pixels that are weighed, shifted or cut off otherwise, and their gradients."""
    for mode, options, weigher in MODES:
        for length in LENGTHS:
            row = whole_row(length, "enlarged")
            # To the double, to the triple, and to a smaller one.
            for new in (2 * length, 3 * length, length // 2 + 1):
                exact = weighed(row, new, weigher)
                upstream = whole_row(new, "upstream")
                exact_gradient = gradient_of_weighed(upstream, length, weigher)
                for name in formats_on(device):
                    leaf = tensor_of(row, name, device, 1, 1, length).requires_grad_()
                    enlarge = torch.nn.functional.interpolate
                    run = functools.partial(enlarge, leaf, new, mode=mode, **options)
                    computed = offered(run)
                    if computed is None:
                        continue
                    label = f"{mode} {length} to {new} of {name}, {options}"
                    limit = position_limit(name, length)
                    yield near(label, computed, exact, limit)
                    arriving = tensor_of(upstream, name, device, 1, 1, new)
                    gradient = torch.autograd.grad(computed, leaf, arriving)[0]
                    rough = Limit(limit.relative, 4 * limit.absolute)
                    yield near(f"gradient of {label}", gradient, exact_gradient, rough)


def position_limit(name: str, length: int) -> Limit:
    """A place is rounded in float32 at least, so a share is off by a roundoff of the length."""
    unit = roundoff(name)
    of_place = 64 * length * min(unit, roundoff("float32"))
    return Limit(4 * unit, 16 * unit + of_place)


def enlarged_images(device: str) -> Iterator[Part]:
    """Catches a bilinear image whose rows and columns are exchanged, in both layouts of memory."""
    height, width = 7, 12
    for channels in (1, 3, 17):
        pixels = whole_row(channels * height * width, "image")
        exact: List[float] = []
        for channel in range(channels):
            plane = pixels[channel * height * width : (channel + 1) * height * width]
            rows = [plane[start : start + width] for start in range(0, len(plane), width)]
            wide_rows = [weighed(row, 2 * width, linear_shares) for row in rows]
            columns = [weighed(column, 3 * height, linear_shares) for column in zip(*wide_rows)]
            exact += [value for row in zip(*columns) for value in row]
        for name in formats_on(device):
            inputs = tensor_of(pixels, name, device, 1, channels, height, width)
            last = inputs.contiguous(memory_format=torch.channels_last)
            for layout, images in (("plain", inputs), ("channels last", last)):
                computed = torch.nn.functional.interpolate(
                    images, (3 * height, 2 * width), mode="bilinear", align_corners=False
                )
                label = f"bilinear image of {channels} channels, {name}, {layout}"
                yield near(label, computed, exact, position_limit(name, height))


# --- pools and convolutions -----------------------------------------------------------------------


def gradients_of_pools(device: str) -> Iterator[Part]:
    """Catches a pool whose gradient arrives at another pixel, or is not shared among a window."""
    functional = torch.nn.functional
    for channels, length in ((1, 17), (3, 66), (17, 9), (2, 1027)):
        order = list(range(channels * length))
        dice(f"pooled {channels} {length}").shuffle(order)
        windows: List[List[int]] = []
        for channel in range(channels):
            for start in range(0, length - 2, 2):
                first = channel * length + start
                windows.append([first, first + 1, first + 2])
        upstream = [float(1 + position % 3) for position in range(len(windows))]
        to_highest = [0.0] * len(order)
        shared = [0.0] * len(order)
        for window, value in zip(windows, upstream):
            to_highest[max(window, key=order.__getitem__)] += value
            for pixel in window:
                shared[pixel] += value / 3
        for name in ("float32", "float64"):
            leaf = tensor_of(order, name, device, 1, channels, length).requires_grad_()
            arriving = tensor_of(upstream, name, device, 1, channels, len(windows) // channels)
            label = f"{channels} x {length} {name}"
            computed = torch.autograd.grad(functional.max_pool1d(leaf, 3, 2), leaf, arriving)[0]
            yield exactly(f"gradient of max_pool1d, {label}", computed, to_highest)
            image = leaf[:, :, None]
            pooled = functional.max_pool2d(image, (1, 3), (1, 2))
            computed = torch.autograd.grad(pooled, leaf, arriving[:, :, None])[0]
            yield exactly(f"gradient of max_pool2d, {label}", computed, to_highest)
            volume = leaf[:, :, None, None]
            pooled = functional.max_pool3d(volume, (1, 1, 3), (1, 1, 2))
            computed = torch.autograd.grad(pooled, leaf, arriving[:, :, None, None])[0]
            yield exactly(f"gradient of max_pool3d, {label}", computed, to_highest)
            limit = Limit(8 * roundoff(name))
            pooled = functional.avg_pool2d(leaf[:, :, None], (1, 3), (1, 2))
            computed = torch.autograd.grad(pooled, leaf, arriving[:, :, None])[0]
            yield near(f"gradient of avg_pool2d, {label}", computed, shared, limit)
            pooled = functional.adaptive_avg_pool1d(leaf, 1)
            computed = torch.autograd.grad(pooled.sum(), leaf)[0]
            yield near(
                f"gradient of adaptive_avg_pool1d, {label}",
                computed,
                [1 / length] * len(order),
                limit,
            )


def rows_convolved(device: str) -> Iterator[Part]:
    """Catches a convolution of rows that loses a tap, channel or border, with its gradients."""
    cases = ((1, 1, 17, 3), (3, 5, 33, 5), (17, 2, 66, 1), (2, 3, 1027, 7))
    for channels, filters, length, taps in cases:
        row = [value % 3 - 1 for value in whole_row(channels * length, "row")]
        weight = [value % 2 for value in whole_row(filters * channels * taps, "weight")]
        count = length - taps + 1
        upstream = [value % 2 for value in whole_row(filters * count, "row upstream")]
        exact = [0.0] * (filters * count)
        by_input = [0.0] * len(row)
        by_weight = [0.0] * len(weight)
        for kernel, channel, tap in product(range(filters), range(channels), range(taps)):
            weight_place = (kernel * channels + channel) * taps + tap
            for position in range(count):
                output_place = kernel * count + position
                input_place = channel * length + position + tap
                exact[output_place] += row[input_place] * weight[weight_place]
                by_input[input_place] += upstream[output_place] * weight[weight_place]
                by_weight[weight_place] += upstream[output_place] * row[input_place]
        for name in formats_on(device):
            leaves = [
                tensor_of(row, name, device, 1, channels, length).requires_grad_(),
                tensor_of(weight, name, device, filters, channels, taps).requires_grad_(),
            ]
            arriving = tensor_of(upstream, name, device, 1, filters, count)
            computed = torch.nn.functional.conv1d(*leaves)
            gradients = torch.autograd.grad(computed, leaves, arriving)
            label = f"conv1d {channels} x {length}, {filters} filters of {taps}, {name}"
            # Libraries may compute by transforms, whose fractions are rounded.
            limit = Limit(2 * roundoff(name), max(2.0**-4, 0.25 * (device != "cpu")))
            yield near(label, computed, exact, limit)
            yield near(f"gradient of rows of {label}", gradients[0], by_input, limit)
            yield near(f"gradient of filters of {label}", gradients[1], by_weight, limit)


def volumes_convolved(device: str) -> Iterator[Part]:
    """Catches a convolution of volumes that exchanges depth, height and width."""
    depth, height, width = 4, 5, 7
    kernel = (2, 3, 1)
    values = [value % 3 - 1 for value in whole_row(depth * height * width, "volume")]
    weight = [value % 3 for value in whole_row(6, "volume weight")]
    exact: List[float] = []
    places = product(range(depth - 1), range(height - 2), range(width))
    for z, y, x in places:
        total = 0.0
        for dz, dy in product(range(2), range(3)):
            source = ((z + dz) * height + y + dy) * width + x
            total += values[source] * weight[3 * dz + dy]
        exact.append(total)
    for name in formats_on(device):
        inputs = tensor_of(values, name, device, 1, 1, depth, height, width)
        filters = tensor_of(weight, name, device, 1, 1, *kernel)
        computed = offered(functools.partial(torch.nn.functional.conv3d, inputs, filters))
        if computed is not None:
            yield near(f"conv3d of {name}", computed, exact, Limit(2 * roundoff(name), 2.0**-4))


def strided_transposed_rows(device: str) -> Iterator[Part]:
    """Catches a transposed convolution whose stride, padding or extra border is another one."""
    cases = ((9, 3, 2, 1, 1), (17, 4, 2, 1, 0), (33, 5, 3, 0, 2))
    for length, taps, stride, padding, extra in cases:
        row = [value % 3 - 1 for value in whole_row(length, "transposed")]
        weight = [1 + value % 3 for value in whole_row(taps, "transposed weight")]
        count = (length - 1) * stride - 2 * padding + taps + extra
        exact = [0.0] * count
        for position, tap in product(range(length), range(taps)):
            place = position * stride + tap - padding
            if 0 <= place < count:
                exact[place] += row[position] * weight[tap]
        for name in formats_on(device):
            inputs = tensor_of(row, name, device, 1, 1, length)
            filters = tensor_of(weight, name, device, 1, 1, taps)
            computed = torch.nn.functional.conv_transpose1d(
                inputs, filters, None, stride, padding, extra
            )
            label = f"conv_transpose1d of {length} {name} numbers, stride {stride}"
            yield near(label, computed, exact, Limit(2 * roundoff(name), 2.0**-4))


# --- pixels that move -----------------------------------------------------------------------------


def folded_images(device: str) -> Iterator[Part]:
    """Catches patches that are cut out at another place, or laid back beside it."""
    height, width = 6, 9
    values = [float(position % 61) for position in range(2 * height * width)]
    starts = list(product(range(0, height - 1, 2), range(0, width - 2, 3)))
    exact: List[float] = []
    for channel, down, across in product(range(2), range(2), range(3)):
        for top, start in starts:
            exact.append(values[(channel * height + top + down) * width + start + across])
    for name in ("float32", "float16", "float64"):
        inputs = tensor_of(values, name, device, 1, 2, height, width)
        patches = torch.nn.functional.unfold(inputs, (2, 3), stride=(2, 3))
        yield exactly(f"unfold of {name}", patches, exact)
        # The patches do not overlap, so they make the image again.
        back = torch.nn.functional.fold(patches, (height, width), (2, 3), stride=(2, 3))
        yield exactly(f"fold of {name}", back, values)


def shuffled_pixels(device: str) -> Iterator[Part]:
    """Catches channels that become pixels of another row or column."""
    height, width, factor = 3, 5, 2
    channels = factor * factor
    values = [float(position) for position in range(channels * height * width)]
    exact: List[float] = []
    for y, x in product(range(height * factor), range(width * factor)):
        channel = y % factor * factor + x % factor
        exact.append(values[(channel * height + y // factor) * width + x // factor])
    for name in formats_on(device):
        inputs = tensor_of(values, name, device, 1, channels, height, width)
        computed = torch.nn.functional.pixel_shuffle(inputs, factor)
        yield exactly(f"pixel_shuffle of {name}", computed, exact)
        computed = torch.nn.functional.pixel_unshuffle(computed, factor)
        yield exactly(f"pixel_unshuffle of {name}", computed, flat_list(inputs))


def sampled_images(device: str) -> Iterator[Part]:
    """Catches a grid_sample that exchanges axes, or reads outside of the image."""
    height, width = 5, 9
    values = whole_row(height * width, "sampled")
    # Quarters of pixels: each place and each weight is exact.
    targets = [(y / 4, x / 4) for y, x in product(range(-3, 20, 3), range(-2, 36, 5))]
    exact: List[float] = []
    grid: List[float] = []
    for y, x in targets:
        grid += [2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1]
        total = 0.0
        for row, column in product((floor(y), floor(y) + 1), (floor(x), floor(x) + 1)):
            share = (1 - abs(y - row)) * (1 - abs(x - column))
            if 0 <= row < height and 0 <= column < width:
                total += share * values[row * width + column]
        exact.append(total)
    for name in ("float32", "float64"):
        inputs = tensor_of(values, name, device, 1, 1, height, width)
        places = tensor_of(grid, name, device, 1, 1, len(targets), 2)
        computed = torch.nn.functional.grid_sample(inputs, places, align_corners=True)
        yield near(f"grid_sample of {name}", computed, exact, Limit(0.0, 256 * roundoff(name)))
