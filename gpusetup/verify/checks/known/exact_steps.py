"""SGD steps that are exact in every format, with several parameter groups. Part of the check
`optimizer-steps`.

Parameters are multiples of 1/32, gradients are multiples of 1/2, and the learning rate and momentum
are powers of two. So in three steps every number needs at most eight binary digits, which bfloat16
can hold.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.refusals import lacks_form, refuses
from ...judging.tolerance import Part
from ...values import kind
from .answers import HALVES, dtype_name_of, exactly, formats_on, tensor_of
from .number_lists import Number, repeated

PERIOD = 59
"""Parameters and gradients repeat after this many elements. It is a prime, so it differs from the
length of any kernel's vector."""
RATE, MOMENTUM = 0.25, 0.5
"""The learning rate and the momentum. They are powers of two, so that each step is exact."""
STEPS = 3
LENGTHS = (1, 17, 1025, 70_003)
"""Lengths of the parameters. The last one fills one chunk of a fused kernel (65,536 elements on a
GPU) and part of a second one."""
FORMS: Dict[str, Dict[str, bool]] = {
    "plain": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
"""Torch's three implementations of an optimizer, each with the options that select it."""


def start_of(position: int) -> float:
    """The parameter's initial value at this position, from -29/32 to 29/32."""
    step = position % PERIOD - 29
    return step / 32


def gradient_of(position: int, number: int) -> float:
    """The gradient at this position in step `number`: -1, -0.5, 0, 0.5 or 1, different in each
    step."""
    turn = 3 * (position % PERIOD) + number
    halves = turn % 5
    return halves / 2 - 1


class Rates(NamedTuple):
    """The direction and the learning rates of a test case."""

    sign: float = 1.0
    """1, or -1 if the optimizer maximizes (`maximize=True`)."""
    first: float = RATE
    last: float = RATE
    """The learning rate of the last step, which a schedule may have changed."""


def trained_in_python(rates: Rates) -> List[float]:
    """The exact parameters after all steps, for one period of positions."""
    parameters: List[float] = []
    for position in range(PERIOD):
        parameter = start_of(position)
        velocity = 0.0
        for number in range(1, STEPS + 1):
            gradient = rates.sign * gradient_of(position, number)
            velocity = MOMENTUM * velocity + gradient
            is_last = number == STEPS
            rate = rates.last if is_last else rates.first
            parameter -= rate * velocity
        parameters.append(parameter)
    return parameters


class Parameters(NamedTuple):
    """The parameters on a device: several that are trained, and two that must not change."""

    learning: List[Any]
    transposed: Any
    """A matrix in column-major order, which is trained too."""
    zero_rate: Any
    """A parameter with gradients, in a group with learning rate 0."""
    no_gradient: Any
    """A parameter in the trained group whose gradient is None."""


MATRIX_HEIGHT, MATRIX_WIDTH = 33, 17
"""Both lengths are odd, so neither is a multiple of a kernel's vector length."""
MATRIX_SIZE = MATRIX_HEIGHT * MATRIX_WIDTH
UNCHANGED_LENGTH = 1025
"""The length of the two parameters that must not change: one more than a block of 1,024 elements.
"""


def made_parameters(dtype_name: str, device: str) -> Parameters:
    """All parameters with their values before the first step."""
    start = [start_of(position) for position in range(PERIOD)]
    learning: List[Any] = []
    for length in LENGTHS:
        # The longest parameter takes most of the time, so test it in two formats only.
        if length > 5000 and dtype_name not in ("float32", "bfloat16"):
            continue
        learning.append(tensor_of(repeated(start, length), dtype_name, device))
    matrix = matrix_by_columns(start, dtype_name, device)
    zero_rate = tensor_of(repeated(start, UNCHANGED_LENGTH), dtype_name, device)
    no_gradient = zero_rate.clone()
    # All parameters require gradients, but `give_gradients` gives none to `no_gradient`.
    for tensor in (*learning, matrix, zero_rate, no_gradient):
        tensor.requires_grad_()
    return Parameters(learning, matrix, zero_rate, no_gradient)


def matrix_by_columns(period: List[Number], dtype_name: str, device: str) -> Any:
    """A matrix in column-major order."""
    values = repeated(period, MATRIX_SIZE)
    columns = tensor_of(values, dtype_name, device, MATRIX_WIDTH, MATRIX_HEIGHT)
    return columns.t()


def give_gradients(parameters: Parameters, number: int) -> None:
    """Set the gradients for one step. The matrix's gradient is in column-major order, like the
    matrix; `no_gradient` gets no gradient."""
    dtype_name = dtype_name_of(parameters.zero_rate)
    device = str(parameters.zero_rate.device)
    period: List[Number] = []
    for position in range(PERIOD):
        period.append(gradient_of(position, number))

    # `zero_rate` has a gradient too: only its learning rate keeps it from changing.
    for tensor in (*parameters.learning, parameters.zero_rate):
        gradient = repeated(period, len(tensor))
        tensor.grad = tensor_of(gradient, dtype_name, device)
    matrix_gradient = matrix_by_columns(period, dtype_name, device)
    parameters.transposed.grad = matrix_gradient


Train = Callable[[Parameters, Dict[str, bool]], None]
"""Runs all steps of the optimizer, with these options, and changes the parameters in place."""


def plainly(parameters: Parameters, options: Dict[str, bool]) -> None:
    """Train with the same learning rate in all steps."""
    train(parameters, options, last_rate=RATE)


def by_schedule(parameters: Parameters, options: Dict[str, bool]) -> None:
    """Train with a learning rate that is halved before the last step."""
    train(parameters, options, last_rate=RATE / 2)


def with_reloaded_state(parameters: Parameters, options: Dict[str, bool]) -> None:
    """Train, and before the last step replace the optimizer with a new one that loads the saved
    state."""
    train(parameters, options, last_rate=RATE, reload_before=STEPS)


def train(
    parameters: Parameters, options: Dict[str, bool], last_rate: float, reload_before: int = 0
) -> None:
    """Run all steps of SGD with momentum, and change the parameters in place."""
    optimizer = sgd_of(parameters, options)
    for number in range(1, STEPS + 1):
        if number == reload_before:
            state = optimizer.state_dict()
            optimizer = sgd_of(parameters, options)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        give_gradients(parameters, number)
        if number == STEPS:
            optimizer.param_groups[0]["lr"] = last_rate
        optimizer.step()


def sgd_of(parameters: Parameters, options: Dict[str, bool]) -> Any:
    """An SGD optimizer with two groups: one that is trained, and one with learning rate 0."""
    # The group also contains a parameter without a gradient, which the optimizer must skip.
    trained = [*parameters.learning, parameters.transposed, parameters.no_gradient]
    trained_group = {"params": trained}
    zero_rate_group = {"params": [parameters.zero_rate], "lr": 0.0}
    groups = [trained_group, zero_rate_group]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, **options)


class Case(NamedTuple):
    """A test case: the function that trains with torch, and the rates for the exact steps in
    Python."""

    label: str
    train: Train
    rates: Rates
    options: Dict[str, bool]


CASES: Sequence[Case] = (
    Case("SGD", plainly, Rates(), {}),
    Case("SGD that climbs", plainly, Rates(sign=-1.0), {"maximize": True}),
    Case("SGD by a schedule", by_schedule, Rates(last=RATE / 2), {}),
    Case("SGD from a saved state", with_reloaded_state, Rates(), {}),
)


def exact_steps(device: str) -> Iterator[Part]:
    """Catches a parameter group that uses another group's learning rate, optimizer state that is
    lost, and changes to parameters that must stay the same.

    One parameter is in column-major order, and one has no gradient.
    """
    for case in CASES:
        period = trained_in_python(case.rates)
        for dtype_name in formats_on(device):
            for form, form_options in FORMS.items():
                # Skip a case that a bug in torch 2.13 affects: in 16-bit formats, the CPU's fused
                # SGD with momentum only updates the last elements of a parameter, those after its
                # last whole vector.
                if form == "fused" and dtype_name in HALVES and kind(device) == "cpu":
                    continue
                parameters = made_parameters(dtype_name, device)
                try:
                    case.train(parameters, {**form_options, **case.options})
                except Exception as problem:
                    if is_missing_form(problem):
                        continue
                    raise
                label = f"{form} {case.label}, {dtype_name}"
                yield from parameters_after_steps(parameters, period, label)


def is_missing_form(problem: Exception) -> bool:
    """Whether the error means that this torch or device lacks this implementation of the optimizer,
    such as the fused one in older releases."""
    has_no_option = "unexpected keyword" in str(problem)
    return has_no_option or lacks_form(problem) or refuses(problem)


def parameters_after_steps(
    parameters: Parameters, period: List[float], label: str
) -> Iterator[Part]:
    """Compare the trained parameters with the exact results, and the two other parameters with
    their initial values."""
    for tensor in parameters.learning:
        length = len(tensor)
        yield exactly(f"{label}, {length} numbers", tensor, repeated(period, length))
    columns = parameters.transposed.t()
    exact = repeated(period, MATRIX_SIZE)
    yield exactly(f"{label}, a matrix by columns", columns, exact)

    start = [start_of(position) for position in range(PERIOD)]
    exact = repeated(start, UNCHANGED_LENGTH)
    yield exactly(f"{label}, a group with rate 0", parameters.zero_rate, exact)
    unchanged = parameters.no_gradient
    yield exactly(f"{label}, a parameter without a gradient", unchanged, exact)
