"""Operations along each of three axes, over several axes at once, and on tensors without elements.

The expected results are computed from Python lists, separately for every line along the axis. A
line contains the elements that differ only in their index along that axis.
"""

from __future__ import annotations

import functools
from itertools import product
from math import fsum, inf, nan, prod
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    Limit,
    ask_all,
    dice,
    dtype_of,
    exactly,
    formats_on,
    near,
    offered,
    roundoff,
    tensor_of,
)
from .number_lists import columns_of, elements_at, joined, random_wholes, sawtooth

Shape = Tuple[int, int, int]
SHAPES: Tuple[Shape, ...] = ((3, 5, 17), (2, 33, 9), (65, 2, 33), (2, 2, 1025), (1030, 2, 2))
"""Each axis is short in one shape, and longer than a kernel's vector or block in another."""
Lines = List[List[float]]


def axes(device: str) -> Outcome:
    """Check that reductions, selections and scatters along each axis agree with Python's lists."""
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


def numbers_of(shape: Shape) -> List[float]:
    """Random whole numbers from -3 to 3 for a tensor of this shape."""
    chance = dice(f"axes {shape}")
    return random_wholes(chance, prod(shape), -3, 3)


def slices_along(shape: Shape, axis: int) -> Iterator[slice]:
    """For each line along an axis, the positions of its elements in memory. The lines come in the
    order in which a reduction returns them."""
    plane_size = shape[1] * shape[2]
    # Elements along the last axis follow each other in memory.
    strides = [plane_size, shape[2], 1]
    lengths = list(shape)
    stride = strides.pop(axis)
    length = lengths.pop(axis)
    # `lengths` and `strides` now describe the two other axes.
    for first, second in product(*map(range, lengths)):
        start = first * strides[0] + second * strides[1]
        stop = start + length * stride
        yield slice(start, stop, stride)


def lines_along(values: Sequence[float], shape: Shape, axis: int) -> Lines:
    """Returns the lines of a tensor along an axis, each as a list."""
    lines: Lines = []
    for positions in slices_along(shape, axis):
        line = values[positions]
        lines.append(list(line))
    return lines


def put_back(lines: Lines, shape: Shape, axis: int) -> List[float]:
    """The elements of a tensor in memory order, rebuilt from its lines along an axis."""
    values = [0.0] * prod(shape)
    for line, positions in zip(lines, slices_along(shape, axis)):
        values[positions] = line
    return values


# --- reductions -----------------------------------------------------------------------------------


class AxisReduction(NamedTuple):
    """A reduction along an axis, in torch and for one line in Python."""

    run: Callable[[Any, int], Any]
    """Takes a tensor and an axis, and returns one number for each line."""
    exact: Callable[[List[float]], float]


def lower_median(line: List[float]) -> float:
    """The median of the line. Of two middle numbers it is the lower one, as in torch."""
    middle = (len(line) - 1) // 2
    return sorted(line)[middle]


def count_of_others_than_zero(line: List[float]) -> float:
    return float(len(line) - line.count(0.0))


REDUCTIONS: Dict[str, AxisReduction] = {
    "sum": AxisReduction(lambda x, axis: x.sum(axis), sum),
    "amax": AxisReduction(lambda x, axis: x.amax(axis), max),
    "amin": AxisReduction(lambda x, axis: x.amin(axis), min),
    "max": AxisReduction(lambda x, axis: x.max(axis)[0], max),
    "min": AxisReduction(lambda x, axis: x.min(axis)[0], min),
    "median": AxisReduction(lambda x, axis: x.median(axis)[0], lower_median),
    "any": AxisReduction(lambda x, axis: (x == 3).any(axis), lambda line: float(3.0 in line)),
    "all": AxisReduction(lambda x, axis: (x < 3).all(axis), lambda line: float(3.0 not in line)),
    "count_nonzero": AxisReduction(
        lambda x, axis: x.count_nonzero(axis), count_of_others_than_zero
    ),
    "last of cumsum": AxisReduction(lambda x, axis: x.cumsum(axis).select(axis, -1), sum),
    "last of sort": AxisReduction(lambda x, axis: x.sort(axis)[0].select(axis, -1), max),
    "second of topk": AxisReduction(
        lambda x, axis: x.topk(2, axis)[0].select(axis, 1), lambda line: sorted(line)[-2]
    ),
    "kthvalue": AxisReduction(lambda x, axis: x.kthvalue(2, axis)[0], lambda line: sorted(line)[1]),
}
"""Maps the name that a report shows to the reduction."""


def reductions_along_axes(device: str) -> Iterator[Part]:
    """Catches a reduction that is right only along the last axis or only for contiguous rows."""
    for shape in SHAPES:
        values = numbers_of(shape)
        for axis in range(3):
            # The expected numbers are the same for all formats, so compute them once.
            exact: Dict[str, List[float]] = {}
            lines = lines_along(values, shape, axis)
            for method, reduction in REDUCTIONS.items():
                answers = map(reduction.exact, lines)
                exact[method] = list(answers)
            for dtype_name in (*formats_on(device), "int64", "int32"):
                inputs = tensor_of(values, dtype_name, device, *shape)
                label = f"along axis {axis} of {shape} {dtype_name}"
                yield from reductions_of(inputs, axis, exact, label)


def reductions_of(
    inputs: Any, axis: int, exact: Dict[str, List[float]], label: str
) -> Iterator[Part]:
    """Compare each reduction of a tensor, which is stored in two memory layouts."""
    turned = inputs.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    for method, reduction in REDUCTIONS.items():
        computed = offered(functools.partial(reduction.run, inputs, axis))
        if computed is None:
            continue
        yield exactly(f"{method} {label}", computed, exact[method])
        computed = reduction.run(turned, axis)
        yield exactly(f"{method} {label}, turned", computed, exact[method])
    # If the largest number occurs several times, any of its indices is right, so compare the
    # elements at the indices.
    index = inputs.argmax(axis, keepdim=True)
    computed = inputs.gather(axis, index)
    yield exactly(f"argmax {label}", computed, exact["max"])


def sums_over_several_axes(device: str) -> Iterator[Part]:
    """Catches a sum over two axes, such as a convolution's bias gradient, that leaves one out."""
    for shape in SHAPES:
        # Use only zeros and ones, so that even long sums fit into float16.
        values = [value % 2 for value in numbers_of(shape)]
        for axis in range(3):
            other_axes = [0, 1, 2]
            other_axes.remove(axis)
            totals = sums_of_planes(values, shape, axis)
            for dtype_name in formats_on(device):
                inputs = tensor_of(values, dtype_name, device, *shape)
                computed = inputs.sum(other_axes)
                label = f"sum over axes {other_axes} of {shape} {dtype_name}"
                # Each thread may round its part of a 16-bit sum.
                limit = Limit(2 * roundoff(dtype_name))
                yield near(label, computed, totals, limit)


def sums_of_planes(values: Sequence[float], shape: Shape, axis: int) -> List[float]:
    """Returns the sum of all elements at each index along an axis."""
    lines = lines_along(values, shape, axis)
    planes = columns_of(lines)
    return list(map(sum, planes))


def moments_along_axes(device: str) -> Iterator[Part]:
    """Catches a mean or variance along an axis that divides by the wrong count."""
    for dtype_name in ("float32", "float64"):
        for shape in SHAPES:
            values = numbers_of(shape)
            inputs = tensor_of(values, dtype_name, device, *shape)
            # A standard deviation takes about ten operations: a mean, distances, squares, their
            # mean and a root.
            unit = 32 * roundoff(dtype_name)
            limit = Limit(unit, unit)
            for axis in range(3):
                lines = lines_along(values, shape, axis)
                means = list(map(mean_of, lines))
                variances = list(map(variance_of, lines))
                deviations = [variance**0.5 for variance in variances]
                label = f"along axis {axis} of {shape} {dtype_name}"
                computed = inputs.mean(axis)
                yield near(f"mean {label}", computed, means, limit)
                computed = inputs.var(axis)
                yield near(f"var {label}", computed, variances, limit)
                computed = inputs.std(axis)
                yield near(f"std {label}", computed, deviations, limit)


def mean_of(line: List[float]) -> float:
    return sum(line) / len(line)


def variance_of(line: List[float]) -> float:
    """The unbiased variance (divided by n - 1), which is torch's default."""
    mean = mean_of(line)
    squares = [(value - mean) ** 2 for value in line]
    degrees_of_freedom = len(line) - 1
    return fsum(squares) / degrees_of_freedom


# --- gathers and scatters -------------------------------------------------------------------------


def picks_along_axes(device: str) -> Iterator[Part]:
    """Catches an index_select, a gather or a negative index that reads along the wrong axis."""
    for dtype_name in ("float32", "float16", "int64"):
        for shape in SHAPES:
            inputs = tensor_of(numbers_of(shape), dtype_name, device, *shape)
            for axis in range(3):
                label = f"along axis {axis} of {shape} {dtype_name}"
                yield from picks_along_axis(inputs, shape, axis, label)


def picks_along_axis(inputs: Any, shape: Shape, axis: int, label: str) -> Iterator[Part]:
    """Compare each way to reorder the elements of every line along an axis."""
    length = shape[axis]
    order = [(5 * position + 1) % length for position in range(length)]
    picked_lines: Lines = []
    for line in lines_along(numbers_of(shape), shape, axis):
        picked_lines.append(elements_at(order, line))
    exact = put_back(picked_lines, shape, axis)

    index = tensor_of(order, "int64", str(inputs.device))
    computed = inputs.index_select(axis, index)
    yield exactly(f"index_select {label}", computed, exact)
    computed = inputs.index_select(axis, index.int())
    yield exactly(f"index_select by int32 {label}", computed, exact)
    places = for_all_lines(index, shape, axis)
    computed = inputs.gather(axis, places)
    yield exactly(f"gather {label}", computed, exact)
    # The same positions as negative indices, counted from the end of the axis.
    subscripts: List[Any] = [slice(None)] * 3
    subscripts[axis] = index - length
    computed = inputs[tuple(subscripts)]
    yield exactly(f"x[..., -i] {label}", computed, exact)


def for_all_lines(index: Any, shape: Shape, axis: int) -> Any:
    """The indices of one line, expanded to all lines along the axis."""
    line_shape = [1, 1, 1]
    line_shape[axis] = len(index)
    return index.view(line_shape).expand(shape)


def scatters_along_axes(device: str) -> Iterator[Part]:
    """Catches an index_add_, scatter_ or index_put_ that writes along the wrong axis."""
    for shape in SHAPES:
        values = numbers_of(shape)
        for axis in range(3):
            lines = lines_along(values, shape, axis)
            scattered = Scattered(shape, axis, lines)
            for dtype_name in (*formats_on(device), "int64"):
                inputs = tensor_of(values, dtype_name, device, *shape)
                label = f"along axis {axis} of {shape} {dtype_name}"
                yield from scatters_along_axis(inputs, scattered, label)


def scatters_along_axis(inputs: Any, scattered: Scattered, label: str) -> Iterator[Part]:
    """Compare each way to add or write a line's elements at given indices along the axis."""
    shape, axis, _ = scattered
    exact = scattered.sums()
    index = tensor_of(scattered.targets(), "int64", str(inputs.device))
    zeros = torch.zeros_like(inputs)
    computed = zeros.clone().index_add_(axis, index, inputs)
    yield exactly(f"index_add_ {label}", computed, exact)
    places = for_all_lines(index, shape, axis)
    computed = zeros.clone().scatter_add_(axis, places, inputs)
    yield exactly(f"scatter_add_ {label}", computed, exact)

    # One index tensor per axis; the tensors of the two other axes contain every index.
    indices = [torch.arange(length, device=inputs.device) for length in shape]
    indices[axis] = index
    grid = torch.meshgrid(*indices, indexing="ij")
    computed = zeros.clone().index_put_(grid, inputs, accumulate=True)
    yield exactly(f"index_put_ by three indices {label}", computed, exact)

    from_end = torch.arange(shape[axis] - 1, -1, -1, device=inputs.device)
    places = for_all_lines(from_end, shape, axis)
    computed = zeros.clone().scatter_(axis, places, inputs)
    yield exactly(f"scatter_ {label}", computed, scattered.mirrored())


class Scattered(NamedTuple):
    """A scatter-add within each line: every element is added at a target index of its own line."""

    shape: Shape
    axis: int
    lines: Lines

    def targets(self) -> List[int]:
        """The target index of each element of a line. Most targets occur several times, so that
        several elements are added there."""
        length = self.shape[self.axis]
        # No element is above 3, so every format holds a sum of up to 40 of them exactly.
        half = (length + 1) // 2
        fewest = length // 40 + 1
        target_count = max(half, fewest)
        return [3 * position % target_count for position in range(length)]

    def sums(self) -> List[float]:
        """The exact elements of the tensor after all elements are added at their targets."""
        targets = self.targets()
        summed_lines: Lines = []
        for line in self.lines:
            sums = [0.0] * len(line)
            for value, target in zip(line, targets):
                sums[target] += value
            summed_lines.append(sums)
        return put_back(summed_lines, self.shape, self.axis)

    def mirrored(self) -> List[float]:
        """The exact elements of the tensor with each line reversed."""
        turned_lines: Lines = []
        for line in self.lines:
            turned_lines.append(line[::-1])
        return put_back(turned_lines, self.shape, self.axis)


# --- empty tensors and counted rows ---------------------------------------------------------------


def tensors_without_elements(device: str) -> Iterator[Part]:
    """Catches a kernel that returns numbers for a tensor without elements."""
    for dtype_name in formats_on(device):
        # An empty tensor with no rows and five columns.
        empty = torch.zeros(0, 5, dtype=dtype_of(dtype_name), device=device)
        label = f"of no {dtype_name} numbers"
        yield from reductions_of_nothing(empty, label)
        yield from products_with_nothing(empty, label)


def reductions_of_nothing(empty: Any, label: str) -> Iterator[Part]:
    """Compare reductions of an empty tensor: the sum must be 0, the product 1 and the mean NaN."""
    computed = empty.sum()
    yield exactly(f"sum {label}", computed, [0.0])
    # The sum removes the empty axis; the axis with five columns remains.
    computed = empty.sum(0)
    yield exactly(f"sum of columns {label}", computed, [0.0] * 5)
    computed = empty.prod()
    yield exactly(f"product {label}", computed, [1.0])
    computed = empty.mean()
    yield exactly(f"mean {label}", computed, [nan])
    computed = empty.softmax(1)
    yield exactly(f"softmax {label}", computed, [])
    computed = empty.logsumexp(0)
    yield exactly(f"logsumexp {label}", computed, [-inf] * 5)


def products_with_nothing(empty: Any, label: str) -> Iterator[Part]:
    """Compare products of empty matrices, and concatenations and selections of no rows."""
    ones = empty.new_ones(5, 3)
    computed = empty @ ones
    yield exactly(f"product of matrices {label}", computed, [])
    # A 5 x 0 matrix times a 0 x 5 matrix: each of the 25 sums is empty, so it is 0.
    computed = empty.t() @ empty
    yield exactly(f"inner length 0 {label}", computed, [0.0] * 25)
    rows = ones.t()
    computed = torch.cat([empty, rows])
    yield exactly(f"joined {label}", computed, [1.0] * 15)
    no_index = torch.zeros(0, dtype=torch.int64, device=empty.device)
    computed = ones[no_index]
    yield exactly(f"picked {label}", computed, [])


def counted_rows(device: str) -> Iterator[Part]:
    """Catches an arange, linspace, full, eye or diag that leaves out its last elements."""
    for length in (1, 17, 1025, 70_001):
        for dtype_name in ("float32", "int64", "int32", "float64"):
            yield from counted_row(length, dtype_name, device)
        # The numbers are whole with a step of 1, but a kernel may compute and round them as start +
        # position * step.
        last = length - 1
        computed = torch.linspace(0, last, length, dtype=torch.float64, device=device)
        limit = Limit(4 * roundoff("float64"))
        yield near(f"linspace of {length} numbers", computed, range(length), limit)
    for size in (1, 33, 130):
        yield from diagonals(size, device)


def counted_row(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare arange (with steps of 1 and 2), full and zeros, for one length and format."""
    dtype = dtype_of(dtype_name)
    label = f"of {length} {dtype_name} numbers"
    counted = range(length)
    computed = torch.arange(length, dtype=dtype, device=device)
    yield exactly(f"arange {label}", computed, counted)
    # Here start, stop and step all differ from their defaults.
    odd = range(3, 3 + 2 * length, 2)
    computed = torch.arange(odd.start, odd.stop, odd.step, dtype=dtype, device=device)
    yield exactly(f"arange by twos {label}", computed, odd)

    sevens = [7] * length
    computed = torch.full((length,), 7, dtype=dtype, device=device)
    yield exactly(f"full {label}", computed, sevens)
    zeros = [0] * length
    computed = torch.zeros(length, dtype=dtype, device=device)
    yield exactly(f"zeros {label}", computed, zeros)


def diagonals(size: int, device: str) -> Iterator[Part]:
    """Compare the diagonal matrices that eye, diag and one_hot make."""
    identity: List[float] = []
    rising_diagonal: List[float] = []
    for row, column in product(range(size), repeat=2):
        # Off the diagonal both matrices are zero.
        is_on_diagonal = row == column
        identity.append(1.0 if is_on_diagonal else 0.0)
        rising_diagonal.append(float(row) if is_on_diagonal else 0.0)

    computed = torch.eye(size, device=device)
    yield exactly(f"eye of {size}", computed, identity)
    line = torch.arange(size, device=device)
    computed = torch.diag(line)
    yield exactly(f"diag of {size}", computed, rising_diagonal)
    computed = torch.nn.functional.one_hot(line, size)
    yield exactly(f"one_hot of {size}", computed, identity)


def rows_in_parts(device: str) -> Iterator[Part]:
    """Catches a chunk, window or repetition of a row that starts at the wrong place."""
    for dtype_name in ("float32", "bfloat16", "int64"):
        if dtype_name not in (*formats_on(device), "int64"):
            continue
        for length in (17, 1025):
            values = sawtooth(length, period=127)
            inputs = tensor_of(values, dtype_name, device)
            label = f"of {length} {dtype_name} numbers"
            yield from parts_of_row(inputs, values, label)
            yield from repeated_row(inputs, values, label)


def parts_of_row(inputs: Any, values: List[float], label: str) -> Iterator[Part]:
    """Compare the four chunks of a row, and its windows of five numbers with a step of three."""
    # Divide by 4 and round up, because the last chunk is the shortest.
    chunk_length = -(-len(values) // 4)
    for number, chunk in enumerate(inputs.chunk(4)):
        start = number * chunk_length
        exact = values[start : start + chunk_length]
        yield exactly(f"chunk {number} {label}", chunk, exact)

    size, step = 5, 3
    last_start = len(values) - size
    windows: Lines = []
    for start in range(0, last_start + 1, step):
        windows.append(values[start : start + size])
    computed = inputs.unfold(0, size, step).contiguous()
    yield exactly(f"windows {label}", computed, joined(windows))


def repeated_row(inputs: Any, values: List[float], label: str) -> Iterator[Part]:
    """Compare `repeat` and `repeat_interleave` of a row, its differences, and an outer product."""
    computed = inputs.repeat(2, 3)
    yield exactly(f"repeat {label}", computed, values * 6)

    counts = [position % 3 for position in range(len(values))]
    exact: List[float] = []
    for value, count in zip(values, counts):
        exact += [value] * count
    count_tensor = tensor_of(counts, "int64", str(inputs.device))
    computed = inputs.repeat_interleave(count_tensor)
    yield exactly(f"repeat_interleave by counts {label}", computed, exact)

    # Subtract from each number the number before it.
    exact = list(map(float.__sub__, values[1:], values))
    computed = inputs.diff()
    yield exactly(f"diff {label}", computed, exact)
    exact = [first * second for first, second in product(values[:5], values[:9])]
    computed = torch.outer(inputs[:5], inputs[:9])
    yield exactly(f"outer {label}", computed, exact)
