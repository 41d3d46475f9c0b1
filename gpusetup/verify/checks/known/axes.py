"""What is computed along one axis of three, and over several; tensors without any element.

Each answer is made from Python's lists: for every line along the axis, what its numbers give.
"""

from __future__ import annotations

import functools
from itertools import product
from math import fsum, inf, nan
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    Limit,
    Number,
    ask_all,
    dice,
    exactly,
    formats_on,
    near,
    offered,
    roundoff,
    tensor_of,
)

Shape = Tuple[int, int, int]
SHAPES: Tuple[Shape, ...] = ((3, 5, 17), (2, 33, 9), (65, 2, 33), (2, 2, 1025), (1030, 2, 2))
Lines = List[List[float]]


def axes(device: str) -> Outcome:
    """Sums, extremes, picks and writes along each axis are those of Python's lists."""
    questions = (
        reductions_along_axes,
        sums_over_several_axes,
        picks_along_axes,
        scatters_along_axes,
        moments_along_axes,
        tensors_without_elements,
        counted_rows,
        rows_in_parts,
    )
    return ask_all(device, questions, "the lines of Python's lists")


def numbers_of(shape: Sequence[int]) -> List[float]:
    """Small whole numbers without a pattern."""
    chance = dice(f"axes {tuple(shape)}")
    count = 1
    for length in shape:
        count *= length
    return [float(chance.randint(-3, 3)) for _ in range(count)]


def lines_along(values: Sequence[float], shape: Shape, axis: int) -> Lines:
    """The lines of a tensor along an axis, in the order in which a reduction keeps them."""
    strides = (shape[1] * shape[2], shape[2], 1)
    others = [range(length) for position, length in enumerate(shape) if position != axis]
    other_strides = [stride for position, stride in enumerate(strides) if position != axis]
    lines: Lines = []
    for first, second in product(*others):
        start = first * other_strides[0] + second * other_strides[1]
        stop = start + shape[axis] * strides[axis]
        lines.append(list(values[start : stop : strides[axis]]))
    return lines


def put_back(lines: Lines, shape: Shape, axis: int) -> List[float]:
    """The elements of a tensor in their order, from its lines along an axis."""
    strides = (shape[1] * shape[2], shape[2], 1)
    others = [range(length) for position, length in enumerate(shape) if position != axis]
    other_strides = [stride for position, stride in enumerate(strides) if position != axis]
    values = [0.0] * (shape[0] * shape[1] * shape[2])
    for line, (first, second) in zip(lines, product(*others)):
        start = first * other_strides[0] + second * other_strides[1]
        stop = start + shape[axis] * strides[axis]
        values[start : stop : strides[axis]] = line
    return values


def first_of_highest(line: Sequence[float]) -> float:
    return float(line.index(max(line)))


REDUCTIONS: Dict[str, Tuple[Callable[[Any, int], Any], Callable[[List[float]], float]]] = {
    "sum": (lambda x, axis: x.sum(axis), sum),
    "amax": (lambda x, axis: x.amax(axis), max),
    "amin": (lambda x, axis: x.amin(axis), min),
    "max": (lambda x, axis: x.max(axis)[0], max),
    "min": (lambda x, axis: x.min(axis)[0], min),
    "median": (lambda x, axis: x.median(axis)[0], lambda line: sorted(line)[(len(line) - 1) // 2]),
    "any": (lambda x, axis: (x == 3).any(axis), lambda line: float(3.0 in line)),
    "all": (lambda x, axis: (x < 3).all(axis), lambda line: float(3.0 not in line)),
    "count_nonzero": (
        lambda x, axis: x.count_nonzero(axis),
        lambda line: float(len(line) - line.count(0.0)),
    ),
    "last of cumsum": (lambda x, axis: x.cumsum(axis).select(axis, -1), sum),
    "last of sort": (lambda x, axis: x.sort(axis)[0].select(axis, -1), max),
    "second of topk": (lambda x, axis: x.topk(2, axis)[0].select(axis, 1), lambda x: sorted(x)[-2]),
    "kthvalue": (lambda x, axis: x.kthvalue(2, axis)[0], lambda line: sorted(line)[1]),
}


def reductions_along_axes(device: str) -> Iterator[Part]:
    """Catches a reduction that is right along the last axis alone, or for rows side by side."""
    for shape in SHAPES:
        values = numbers_of(shape)
        plain = tensor_of(values, "float32", device, *shape)
        for axis in range(3):
            lines = lines_along(values, shape, axis)
            exact = {method: [row[1](line) for line in lines] for method, row in REDUCTIONS.items()}
            for name in (*formats_on(device), "int64", "int32"):
                inputs = plain.to(getattr(torch, name))
                label = f"along axis {axis} of {shape} {name}"
                yield from reductions_of(inputs, axis, exact, label)


def reductions_of(
    inputs: Any, axis: int, exact: Dict[str, List[float]], label: str
) -> Iterator[Part]:
    """Each reduction of one tensor, and of the same with another axis moving fastest in memory."""
    turned = inputs.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    for method, (run, _) in REDUCTIONS.items():
        computed = offered(functools.partial(run, inputs, axis))
        if computed is None:
            continue
        yield exactly(f"{method} {label}", computed, exact[method])
        yield exactly(f"{method} {label}, turned", run(turned, axis), exact[method])
    index = inputs.argmax(axis, keepdim=True)
    yield exactly(f"argmax {label}", inputs.gather(axis, index), exact["max"])


def sums_over_several_axes(device: str) -> Iterator[Part]:
    """Catches a sum over two axes that leaves out one, as a bias of images needs it."""
    for shape in SHAPES:
        values = [value % 2 for value in numbers_of(shape)]
        plain = tensor_of(values, "float32", device, *shape)
        for axis in range(3):
            others = [position for position in range(3) if position != axis]
            totals = sums_of_planes(values, shape, axis)
            for name in formats_on(device):
                inputs = plain.to(getattr(torch, name))
                label = f"sum over axes {others} of {shape} {name}"
                # Threads may round their parts of a 16-bit sum.
                limit = Limit(2 * roundoff(name))
                yield near(label, inputs.sum(others), totals, limit)


def sums_of_planes(values: Sequence[float], shape: Shape, axis: int) -> List[float]:
    """For each index along an axis, the sum of all elements that have it."""
    strides = (shape[1] * shape[2], shape[2], 1)
    totals = [0.0] * shape[axis]
    for position, value in enumerate(values):
        totals[position // strides[axis] % shape[axis]] += value
    return totals


def picks_along_axes(device: str) -> Iterator[Part]:
    """Catches an index_select, gather or negative index that reads along another axis."""
    for name in ("float32", "float16", "int64"):
        for shape in SHAPES:
            values = numbers_of(shape)
            inputs = tensor_of(values, "float32", device, *shape).to(getattr(torch, name))
            for axis in range(3):
                length = shape[axis]
                order = [(5 * position + 1) % length for position in range(length)]
                picked_lines = []
                for line in lines_along(values, shape, axis):
                    picked_lines.append([line[index] for index in order])
                exact = put_back(picked_lines, shape, axis)
                index = tensor_of(order, "int64", device)
                label = f"along axis {axis} of {shape} {name}"
                computed = inputs.index_select(axis, index)
                yield exactly(f"index_select {label}", computed, exact)
                computed = inputs.index_select(axis, index.int())
                yield exactly(f"index_select by int32 {label}", computed, exact)
                spread_shape = [length if position == axis else 1 for position in range(3)]
                spread = index.view(spread_shape).expand(shape)
                yield exactly(f"gather {label}", inputs.gather(axis, spread), exact)
                negative: List[Any] = [slice(None)] * 3
                negative[axis] = index - length
                yield exactly(f"x[..., -i] {label}", inputs[tuple(negative)], exact)


def scatters_along_axes(device: str) -> Iterator[Part]:
    """Catches a scatter, index_add or index_put that writes along another axis, also in place."""
    for shape in SHAPES:
        values = numbers_of(shape)
        plain = tensor_of(values, "float32", device, *shape)
        for axis in range(3):
            scattered = Scattered(shape, axis, lines_along(values, shape, axis))
            exact = scattered.sums()
            mirrored = scattered.mirrored()
            for name in (*formats_on(device), "int64"):
                inputs = plain.to(getattr(torch, name))
                label = f"along axis {axis} of {shape} {name}"
                index = tensor_of(scattered.targets(), "int64", device)
                spread = scattered.spread(index)
                computed = torch.zeros_like(inputs).index_add_(axis, index, inputs)
                yield exactly(f"index_add_ {label}", computed, exact)
                computed = torch.zeros_like(inputs).scatter_add_(axis, spread, inputs)
                yield exactly(f"scatter_add_ {label}", computed, exact)
                lengths = enumerate(shape)
                grid = [torch.arange(n, device=device) if a != axis else index for a, n in lengths]
                indices = torch.meshgrid(*grid, indexing="ij")
                computed = torch.zeros_like(inputs).index_put_(indices, inputs, accumulate=True)
                yield exactly(f"index_put_ by three indices {label}", computed, exact)
                from_end = torch.arange(shape[axis] - 1, -1, -1, device=device)
                places = scattered.spread(from_end)
                computed = torch.zeros_like(inputs).scatter_(axis, places, inputs)
                yield exactly(f"scatter_ {label}", computed, mirrored)


class Scattered(NamedTuple):
    """Lines of a tensor whose elements are added at places along the line."""

    shape: Shape
    axis: int
    lines: Lines

    def targets(self) -> List[int]:
        """The target index of each element of a line; most indexes occur twice, to be added."""
        length = self.shape[self.axis]
        # Up to 40 sources of 3 make sums that are exact in every format.
        place_count = max((length + 1) // 2, length // 40 + 1)
        return [(3 * position) % place_count for position in range(length)]

    def sums(self) -> List[float]:
        """What all places hold afterwards."""
        summed: Lines = []
        for line in self.lines:
            total = [0.0] * len(line)
            for value, place in zip(line, self.targets()):
                total[place] += value
            summed.append(total)
        return put_back(summed, self.shape, self.axis)

    def mirrored(self) -> List[float]:
        """The tensor with each line turned around."""
        turned = [line[::-1] for line in self.lines]
        return put_back(turned, self.shape, self.axis)

    def spread(self, index: Any) -> Any:
        """The places of one line for all lines."""
        view = [1, 1, 1]
        view[self.axis] = len(index)
        return index.view(view).expand(self.shape)


def moments_along_axes(device: str) -> Iterator[Part]:
    """Catches a variance or deviation along an axis that divides by another count."""
    for name in ("float32", "float64"):
        for shape in SHAPES:
            values = numbers_of(shape)
            inputs = tensor_of(values, name, device, *shape)
            limit = Limit(32 * roundoff(name), 32 * roundoff(name))
            for axis in range(3):
                variances: List[float] = []
                means: List[float] = []
                for line in lines_along(values, shape, axis):
                    mean = sum(line) / len(line)
                    squares = fsum((value - mean) ** 2 for value in line)
                    means.append(mean)
                    variances.append(squares / (len(line) - 1))
                label = f"along axis {axis} of {shape} {name}"
                yield near(f"mean {label}", inputs.mean(axis), means, limit)
                yield near(f"var {label}", inputs.var(axis), variances, limit)
                deviations = [variance**0.5 for variance in variances]
                yield near(f"std {label}", inputs.std(axis), deviations, limit)


def tensors_without_elements(device: str) -> Iterator[Part]:
    """Catches a kernel that makes numbers of nothing: the last batch of a day may be empty."""
    for name in formats_on(device):
        empty = torch.zeros(0, 5, dtype=getattr(torch, name), device=device)
        wide = torch.ones(5, 3, dtype=empty.dtype, device=device)
        label = f"of no {name} numbers"
        answers: Sequence[Tuple[str, Any, Sequence[Number]]] = (
            ("sum", empty.sum(), [0.0]),
            ("sum of columns", empty.sum(0), [0.0] * 5),
            ("product", empty.prod(), [1.0]),
            ("mean", empty.mean(), [nan]),
            ("product of matrices", empty @ wide, []),
            ("inner length 0", empty.t() @ empty, [0.0] * 25),
            ("joined", torch.cat([empty, wide.t()]), [1.0] * 15),
            ("softmax", empty.softmax(1), []),
            ("logsumexp", empty.logsumexp(0), [-inf] * 5),
            ("picked", wide[torch.zeros(0, dtype=torch.int64, device=device)], []),
        )
        for method, computed, exact in answers:
            yield exactly(f"{method} {label}", computed, exact)


def counted_rows(device: str) -> Iterator[Part]:
    """Catches an arange, linspace, fill or identity that loses its end."""
    for length in (1, 17, 1025, 70_001):
        whole = list(range(length))
        for name in ("float32", "int64", "int32", "float64"):
            dtype = getattr(torch, name)
            label = f"of {length} {name} numbers"
            computed = torch.arange(length, dtype=dtype, device=device)
            yield exactly(f"arange {label}", computed, whole)
            computed = torch.arange(3, 3 + 2 * length, 2, dtype=dtype, device=device)
            yield exactly(f"arange by twos {label}", computed, range(3, 3 + 2 * length, 2))
            computed = torch.full((length,), 7, dtype=dtype, device=device)
            yield exactly(f"full {label}", computed, [7] * length)
            computed = torch.zeros(length, dtype=dtype, device=device)
            yield exactly(f"zeros {label}", computed, [0] * length)
        # Ends that are 2 to the 20 times the steps apart: each number is exact.
        computed = torch.linspace(0, length - 1, length, dtype=torch.float64, device=device)
        limit = Limit(4 * roundoff("float64"))
        yield near(f"linspace of {length} numbers", computed, whole, limit)
    for size in (1, 33, 130):
        exact = [float(row == column) for row, column in product(range(size), repeat=2)]
        computed = torch.eye(size, device=device)
        yield exactly(f"eye of {size}", computed, exact)
        line = torch.arange(size, device=device)
        exact = [row * same for row, same in zip(sorted(list(range(size)) * size), exact)]
        yield exactly(f"diag of {size}", torch.diag(line), exact)
        flags = torch.nn.functional.one_hot(line, size)
        exact = [float(row == column) for row, column in product(range(size), repeat=2)]
        yield exactly(f"one_hot of {size}", flags, exact)


def rows_in_parts(device: str) -> Iterator[Part]:
    """Catches a chunk, window, tile or repetition that starts at another place."""
    for name in ("float32", "bfloat16", "int64"):
        if name not in (*formats_on(device), "int64"):
            continue
        for length in (17, 1025):
            values = [float(position % 127) for position in range(length)]
            inputs = tensor_of(values, "float32", device).to(getattr(torch, name))
            label = f"of {length} {name} numbers"
            size = -(-length // 4)
            for number, part in enumerate(inputs.chunk(4)):
                exact = values[number * size : (number + 1) * size]
                yield exactly(f"chunk {number} {label}", part, exact)
            windows = inputs.unfold(0, 5, 3)
            exact = []
            for start in range(0, length - 4, 3):
                exact += values[start : start + 5]
            yield exactly(f"windows {label}", windows.contiguous(), exact)
            yield exactly(f"repeat {label}", inputs.repeat(2, 3), values * 6)
            counts = [position % 3 for position in range(length)]
            exact = []
            for value, count in zip(values, counts):
                exact += [value] * count
            computed = inputs.repeat_interleave(tensor_of(counts, "int64", device))
            yield exactly(f"repeat_interleave by counts {label}", computed, exact)
            yield exactly(f"diff {label}", inputs.diff(), differences(values))
            outer = torch.outer(inputs[:5], inputs[:9])
            exact = [first * second for first in values[:5] for second in values[:9]]
            yield exactly(f"outer {label}", outer, exact)


def differences(values: Sequence[float]) -> List[float]:
    """Each number less the one before it."""
    return list(map(float.__sub__, values[1:], values))
