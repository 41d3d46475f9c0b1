"""Gradients of functions, of broadcast operands, and of elements that are selected along an axis.

Most of them are sums of small whole numbers, so they are exact in every format.
"""

from __future__ import annotations

from itertools import accumulate, product
from math import prod
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import torch
from torch.utils.checkpoint import checkpoint

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    Limit,
    ask_all,
    dice,
    dtype_name_of,
    exactly,
    flat_list,
    formats_on,
    near,
    roundoff,
    tensor_of,
)
from .number_lists import (
    ONE,
    columns_of,
    joined,
    products_of_pairs,
    rows_of_length,
    sawtooth,
    scaled,
    there_and_back,
)
from .slopes import slopes_of_functions


def gradients(device: str) -> Outcome:
    """Check that gradients agree with slopes computed in Python and reach the right elements."""
    questions = (
        slopes_of_functions,
        gradients_of_spread_operands,
        gradients_of_products,
        gradients_of_many_rows,
        gradients_of_picked_elements,
        gradients_along_rows,
        gradients_of_copies,
        gradients_of_checkpoints,
        second_derivatives,
    )
    return ask_all(device, questions, "slopes in Python")


# --- broadcast operands ---------------------------------------------------------------------------


class SpreadPair(NamedTuple):
    """The shapes of two operands, at least one of which is broadcast."""

    first: Sequence[int]
    second: Sequence[int]

    @property
    def dimensions(self) -> int:
        return max(len(self.first), len(self.second))

    def padded(self) -> List[Sequence[int]]:
        """Both shapes with the same number of axes, after adding axes of length 1 in front."""
        shapes: List[Sequence[int]] = []
        for shape in (self.first, self.second):
            missing_count = self.dimensions - len(shape)
            missing_axes = [1] * missing_count
            shapes.append((*missing_axes, *shape))
        return shapes


SPREAD_PAIRS = (
    SpreadPair((5, 17), (17,)),
    SpreadPair((7, 1, 3), (4, 1)),
    SpreadPair((33, 65), (33, 1)),
    SpreadPair((2, 1026), ()),
)
"""Pairs of shapes in which a row, both operands, a column, or a single number is broadcast."""


def gradients_of_spread_operands(device: str) -> Iterator[Part]:
    """Catches a gradient that is not summed over the axes along which its operand was broadcast."""
    for dtype_name in formats_on(device):
        for pair in SPREAD_PAIRS:
            first = whole_leaf(pair.first, dtype_name, device)
            second = whole_leaf(pair.second, dtype_name, device)
            product_sum = (first * second).sum()
            computed = torch.autograd.grad(product_sum, (first, second))
            operands = [flat_list(first), flat_list(second)]
            exact = product_gradients(operands, pair)
            label = f"{pair.first} times {pair.second} of {dtype_name}"
            # In 16-bit formats the long sum is rounded.
            limit = Limit(4 * roundoff(dtype_name))
            yield near(f"gradient 0 of {label}", computed[0], exact[0], limit)
            yield near(f"gradient 1 of {label}", computed[1], exact[1], limit)


def whole_leaf(shape: Sequence[int], dtype_name: str, device: str) -> Any:
    """A tensor of small random whole numbers that requires a gradient."""
    chance = dice(f"leaf {shape}")
    values = [chance.choice((-1, 0, 1, 2)) for _ in range(prod(shape))]
    leaf = tensor_of(values, dtype_name, device)
    # The shape of a single number is empty.
    return leaf.reshape(tuple(shape)).requires_grad_()


def product_gradients(operands: Sequence[List[float]], pair: SpreadPair) -> List[List[float]]:
    """The exact gradients of the sum of a broadcast product. The gradient of an element is the sum
    of all factors that it is multiplied by."""
    first_shape, second_shape = pair.padded()
    spread_shape = list(map(max, first_shape, second_shape))
    first_gradient = [0.0] * len(operands[0])
    second_gradient = [0.0] * len(operands[1])
    for index in product(*map(range, spread_shape)):
        # Many elements of the product use the same element of a broadcast operand.
        first = flat_position(index, first_shape)
        second = flat_position(index, second_shape)
        first_gradient[first] += operands[1][second]
        second_gradient[second] += operands[0][first]
    return [first_gradient, second_gradient]


def flat_position(index: Sequence[int], shape: Sequence[int]) -> int:
    """The position in memory of the element at this index; an axis of length 1 is broadcast.

    >>> flat_position((2, 3), (5, 1)), flat_position((2, 3), (5, 4))
    (2, 11)
    """
    position = 0
    for number, length in zip(index, shape):
        position *= length
        if length > 1:
            position += number
    return position


class Linear(NamedTuple):
    """The tensors of a linear layer, and the upstream gradient of its outputs."""

    inputs: Any
    weight: Any
    bias: Any
    arriving: Any


class LinearShape(NamedTuple):
    """The number of rows, inputs and outputs of a linear layer."""

    rows: int
    inner: int
    columns: int


LINEAR_SHAPES = (LinearShape(5, 17, 3), LinearShape(33, 65, 9), LinearShape(130, 3, 31))


def linear_of(shape: LinearShape, dtype_name: str, device: str) -> Linear:
    """A linear layer of small random whole numbers."""
    rows, inner, columns = shape
    inputs = whole_leaf((rows, inner), dtype_name, device)
    weight = whole_leaf((columns, inner), dtype_name, device)
    bias = whole_leaf((columns,), dtype_name, device)
    # The upstream gradient itself needs no gradient.
    arriving = whole_leaf((rows, columns), dtype_name, device).detach()
    return Linear(inputs, weight, bias, arriving)


def gradients_of_products(device: str) -> Iterator[Part]:
    """Catches a linear layer whose gradients leave out rows, columns or the bias."""
    for dtype_name in formats_on(device):
        for shape in LINEAR_SHAPES:
            layer = linear_of(shape, dtype_name, device)
            size = f"{shape.rows} x {shape.inner} x {shape.columns}"
            label = f"linear {size} of {dtype_name}"
            yield from gradients_of_linear(layer, label)
            yield gradient_of_batch(layer, label)


def gradients_of_linear(layer: Linear, label: str) -> Iterator[Part]:
    """Compare a linear layer's gradients. For an input X, weight W and upstream gradient G, they
    are G W for the input, G' X for the weight, and the column sums of G for the bias."""
    leaves = (layer.inputs, layer.weight, layer.bias)
    outputs = torch.nn.functional.linear(*leaves)
    computed = torch.autograd.grad(outputs, leaves, layer.arriving)
    arriving_rows = layer.arriving.tolist()
    arriving_columns = columns_of(arriving_rows)
    limit = product_limit(layer.arriving)

    weight_columns = columns_of(layer.weight.tolist())
    exact = product_of_rows(arriving_rows, weight_columns)
    yield near(f"gradient of the input of {label}", computed[0], exact, limit)
    input_columns = columns_of(layer.inputs.tolist())
    exact = product_of_rows(arriving_columns, input_columns)
    yield near(f"gradient of the weight of {label}", computed[1], exact, limit)
    exact = list(map(sum, arriving_columns))
    yield near(f"gradient of the bias of {label}", computed[2], exact, limit)


def gradient_of_batch(layer: Linear, label: str) -> Part:
    """Compare the weight's gradient for a batch that contains the same product twice. It must be
    twice as large."""
    inputs = layer.inputs.expand(2, -1, -1)
    columns = layer.weight.t().expand(2, -1, -1)
    arriving = layer.arriving.expand(2, -1, -1)
    outputs = torch.bmm(inputs, columns)
    (computed,) = torch.autograd.grad(outputs, layer.weight, arriving)

    arriving_columns = columns_of(layer.arriving.tolist())
    input_columns = columns_of(layer.inputs.tolist())
    exact = scaled(product_of_rows(arriving_columns, input_columns), 2)
    limit = product_limit(layer.arriving)
    return near(f"gradient of bmm, {label}", computed, exact, limit)


def product_limit(tensor: Any) -> Limit:
    """The relative error allowed in gradients of products. It is two roundoffs, because bfloat16
    rounds long sums."""
    dtype_name = dtype_name_of(tensor)
    return Limit(2 * roundoff(dtype_name))


def product_of_rows(
    rows: Sequence[Sequence[float]], columns: Sequence[Sequence[float]]
) -> List[float]:
    """The product of every row with every column, row by row."""
    sums: List[float] = []
    for row in rows:
        for column in columns:
            products = products_of_pairs(row, column)
            sums.append(sum(products))
    return sums


def gradients_of_many_rows(device: str) -> Iterator[Part]:
    """Catches a bias gradient that is summed over the rows in 16 bits."""
    # Six columns make fewer than 32,768 numbers. With more, a CPU splits the sum between threads,
    # each of which rounds its part. 4,224 steps are a multiple of 32, the length of a run of 16
    # steps up and a run of 16 steps down.
    steps, width = 4224, 6
    for dtype_name in formats_on(device):
        # Short runs make the partial sums of single vector lanes large; long runs make the partial
        # sums of whole blocks large.
        for run in (1, 16, steps // 2):
            column = there_and_back(steps, run)
            arriving = tensor_of(column, dtype_name, device, -1, 1).expand(-1, width).contiguous()
            inputs = arriving.new_zeros(len(column), 3)
            weight = arriving.new_zeros(width, 3)
            bias = arriving.new_zeros(width).requires_grad_()
            label = f"of {len(column)} {dtype_name} rows, runs of {run}"

            outputs = torch.nn.functional.linear(inputs, weight, bias)
            (computed,) = torch.autograd.grad(outputs, bias, arriving)
            yield exactly(f"gradient of the bias of linear {label}", computed, [ONE] * width)
            outputs = torch.zeros_like(arriving) + bias
            (computed,) = torch.autograd.grad(outputs, bias, arriving)
            yield exactly(f"gradient of a spread bias {label}", computed, [ONE] * width)


# --- selected elements ----------------------------------------------------------------------------


def gradients_of_picked_elements(device: str) -> Iterator[Part]:
    """Catches a gradient that reaches another element than the selected one."""
    for dtype_name in formats_on(device):
        for length in (17, 257, 1025, 4099):
            # bfloat16 holds whole numbers exactly only up to 256, and float16 up to 2,048.
            has_gaps = dtype_name in HALVES and length > 256
            exact_name = "float32" if has_gaps else dtype_name
            # Every number occurs once, so that exactly one element is selected.
            order = list(range(length))
            dice(f"picked {length}").shuffle(order)
            leaf = tensor_of(order, exact_name, device).requires_grad_()
            label = f"{length} {exact_name} numbers"
            yield from gradients_of_largest(leaf, order, label)
            yield from gradients_of_sorted(leaf, order, label)


def gradients_of_largest(leaf: Any, order: List[int], label: str) -> Iterator[Part]:
    """Compare the gradients of max and amax. Only the largest element may get a gradient."""
    largest = len(order) - 1
    exact = [0.0] * len(order)
    exact[order.index(largest)] = 1.0
    of_all = leaf.max()
    (computed,) = torch.autograd.grad(of_all, leaf)
    yield exactly(f"gradient of max, {label}", computed, exact)
    # Along an axis torch uses another kernel, which also returns the largest element's index.
    along_row, _ = leaf.max(0)
    (computed,) = torch.autograd.grad(along_row, leaf)
    yield exactly(f"gradient of max along a row, {label}", computed, exact)
    # amax would divide the gradient among equal elements, but here all elements differ.
    shared = leaf.amax(0)
    (computed,) = torch.autograd.grad(shared, leaf)
    yield exactly(f"gradient of amax, {label}", computed, exact)


def gradients_of_sorted(leaf: Any, order: List[int], label: str) -> Iterator[Part]:
    """Compare the gradients of sort and topk. Each upstream value must reach the element that was
    sorted to its position."""
    length = len(order)
    weights = sawtooth(length, period=7)
    arriving = leaf.new_tensor(weights)
    (computed,) = torch.autograd.grad(leaf.sort()[0], leaf, arriving)
    exact = [weights[value] for value in order]
    yield exactly(f"gradient of sort, {label}", computed, exact)

    count = length // 3 + 1
    largest = leaf.topk(count)[0]
    (computed,) = torch.autograd.grad(largest, leaf, arriving[:count])
    exact = [0.0] * length
    for position, value in enumerate(order):
        # The order is descending, so the largest number has rank 0.
        rank = length - 1 - value
        if rank < count:
            exact[position] = weights[rank]
    yield exactly(f"gradient of topk, {label}", computed, exact)


# --- rows, copies, checkpoints --------------------------------------------------------------------


def gradients_along_rows(device: str) -> Iterator[Part]:
    """Catches gradients of cumsum, mean, norm and variance that leave out the end of a row."""
    for dtype_name in ("float32", "float64"):
        for length in (17, 1025, 4099):
            leaf = whole_leaf((2, length), dtype_name, device)
            unit = roundoff(dtype_name)
            label = f"2 x {length} {dtype_name} numbers"
            # The limits differ: running sums are exact, a mean's quotient is rounded once, and a
            # norm is a root of rounded squares.
            yield gradient_of_running_sums(leaf, label)
            yield gradient_of_means(leaf, label, Limit(4 * unit))
            yield gradient_of_norm(leaf, label, Limit(64 * unit))
            yield gradient_of_variance(leaf, label, unit)


def gradient_of_running_sums(leaf: Any, label: str) -> Part:
    """Compare the gradient of cumsum. An element is part of the running sum at its own position and
    of all later ones."""
    weights = sawtooth(leaf.numel(), period=3)
    arriving = leaf.new_tensor(weights).reshape(leaf.shape)
    running_sums = leaf.cumsum(1)
    (computed,) = torch.autograd.grad(running_sums, leaf, arriving)
    rows = rows_of_length(weights, leaf.shape[1])
    exact = joined(map(sums_from_here, rows))
    return exactly(f"gradient of cumsum, {label}", computed, exact)


def gradient_of_means(leaf: Any, label: str, limit: Limit) -> Part:
    """Compare the gradient of the means of two rows, with upstream gradients 1 and -3."""
    length = leaf.shape[1]
    arriving = leaf.new_tensor([1.0, -3.0])
    means = leaf.mean(1)
    (computed,) = torch.autograd.grad(means, leaf, arriving)
    # All elements of a row contribute equally to its mean.
    first_row = [1 / length] * length
    second_row = [-3 / length] * length
    exact = first_row + second_row
    return near(f"gradient of mean, {label}", computed, exact, limit)


def gradient_of_norm(leaf: Any, label: str, limit: Limit) -> Part:
    """Compare the gradient of a vector's norm, which is the vector divided by its norm."""
    norm = torch.linalg.vector_norm(leaf)
    (computed,) = torch.autograd.grad(norm, leaf)
    values = flat_list(leaf)
    squares = products_of_pairs(values, values)
    size = sum(squares) ** 0.5
    # The gradient has a norm of 1.
    exact = [value / size for value in values]
    return near(f"gradient of vector_norm, {label}", computed, exact, limit)


def gradient_of_variance(leaf: Any, label: str, unit: float) -> Part:
    """Compare the gradient of the variance, which is twice the distance from the mean, divided by n
    - 1."""
    variance = leaf.var()
    (computed,) = torch.autograd.grad(variance, leaf)
    values = flat_list(leaf)
    count = len(values)
    mean = sum(values) / count
    exact: List[float] = []
    for value in values:
        distance = value - mean
        exact.append(2 * distance / (count - 1))
    # A distance close to zero has the absolute error of the mean, so allow an absolute error too.
    limit = Limit(64 * unit, 64 * unit / count)
    return near(f"gradient of var, {label}", computed, exact, limit)


def sums_from_here(row: Sequence[float]) -> List[float]:
    """For each element, the sum of that element and all later ones.

    >>> sums_from_here([1, 2, 3])
    [6, 5, 3]
    """
    sums = list(accumulate(reversed(row)))
    return sums[::-1]


COPIES: Dict[str, Callable[[Any], Any]] = {
    "a transposed copy": lambda x: x.t().contiguous().t(),
    "two parts joined": lambda x: torch.cat([x[:, :5], x[:, 5:]], 1),
    "rows joined again": lambda x: torch.stack(list(x.unbind(0))),
    "a mirrored mirror": lambda x: x.flip(1).flip(1),
    "a rolled row": lambda x: x.roll(3, 1).roll(-3, 1),
    "a cast to float64": lambda x: x.double(),
    "padded and cut": lambda x: torch.nn.functional.pad(x, (2, 1))[:, 2:-1],
    "a condition": lambda x: torch.where(x == x, x, torch.zeros_like(x)),
    "a filled mask": lambda x: x.masked_fill(x != x, 7.0),
    "a clone": lambda x: x.clone(),
    "a written copy": lambda x: torch.zeros_like(x).copy_(x),
}
"""Operations that return the same matrix, so the gradient of the leaf must equal the upstream
gradient."""


def gradients_of_copies(device: str) -> Iterator[Part]:
    """Catches a gradient that a transposition, slice, join, cast or condition sends to the wrong
    element."""
    for dtype_name in formats_on(device):
        for shape in ((3, 17), (33, 1025)):
            leaf = whole_leaf(shape, dtype_name, device)
            # The random numbers depend on the shape, so the additional axis makes them differ from
            # those of the leaf.
            arriving = whole_leaf((*shape, 1), dtype_name, device).detach()[..., 0]
            exact = flat_list(arriving)
            for method, copy in COPIES.items():
                outputs = copy(leaf)
                upstream = arriving.to(outputs.dtype)
                (computed,) = torch.autograd.grad(outputs, leaf, upstream)
                yield exactly(f"gradient of {method}, {shape} {dtype_name}", computed, exact)


def gradients_of_checkpoints(device: str) -> Iterator[Part]:
    """Catches activation checkpointing that recomputes a part with inputs that the forward pass did
    not have."""
    for dtype_name in formats_on(device):
        for length in (17, 1025):
            leaf = whole_leaf((length,), dtype_name, device)
            exact = scaled(flat_list(leaf), 6)
            # torch has two implementations of checkpointing.
            for method, is_reentrant in (("reentrant", True), ("plain", False)):
                leaf.grad = None
                outputs = checkpoint(three_squares, leaf, use_reentrant=is_reentrant)
                outputs.sum().backward()
                label = f"gradient of a {method} checkpoint of {length} {dtype_name} numbers"
                yield exactly(label, leaf.grad, exact)


def three_squares(x: Any) -> Any:
    """Returns 3 * x * x, whose gradient 6 * x is exact in every format."""
    return x * x * 3


def second_derivatives(device: str) -> Iterator[Part]:
    """Catches a wrong gradient of a gradient, which gradient penalties need.

    The first derivative of x * x * x is 3 * x * x, and the second is 6 * x.
    """
    for dtype_name in ("float32", "float64"):
        leaf = whole_leaf((1025,), dtype_name, device)
        cubes = leaf * leaf * leaf
        # With `create_graph` the gradient can be differentiated again.
        (first,) = torch.autograd.grad(cubes.sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), leaf)
        exact = scaled(flat_list(leaf), 6)
        yield exactly(f"second derivative of {dtype_name} numbers", second, exact)
