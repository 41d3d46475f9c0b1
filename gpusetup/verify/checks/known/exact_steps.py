"""Steps of SGD that are exact in every format, in groups of parameters; asked by `optimizer-steps`.

Parameters are multiples of 1/32, gradients of 1/2, rate and momentum powers of two. So each number
of three steps has at most eight binary digits, and bfloat16 holds it.
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
"""After so many elements parameters and gradients repeat; a prime, unlike any vector."""
RATE, MOMENTUM = 0.25, 0.5
"""Powers of two, which keep each step exact."""
STEPS = 3
LENGTHS = (1, 17, 1025, 70_003)
"""The last one is two chunks of a fused kernel (65,536 elements on a GPU), the second not full."""
FORMS: Dict[str, Dict[str, bool]] = {
    "plain": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
"""The three implementations that torch has of an optimizer, by its own options."""


def start_of(position: int) -> float:
    """Where a parameter starts: from -29/32 to 29/32."""
    step = position % PERIOD - 29
    return step / 32


def gradient_of(position: int, number: int) -> float:
    """-1, -0.5, 0, 0.5 or 1, another one in each step."""
    turn = 3 * (position % PERIOD) + number
    halves = turn % 5
    return halves / 2 - 1


class Rates(NamedTuple):
    """How a parameter learns."""

    sign: float = 1.0
    """-1: the optimizer climbs (`maximize`)."""
    first: float = RATE
    last: float = RATE
    """The rate of the last step, as a schedule may change it."""


def trained_in_python(rates: Rates) -> List[float]:
    """One period of a parameter after all steps."""
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
    """Parameters on a device: what learns, in two groups, and what must stay as it is."""

    learning: List[Any]
    transposed: Any
    """A matrix that lies by columns in memory."""
    resting: Any
    """In a group whose rate is 0."""
    without_gradient: Any


MATRIX_HEIGHT, MATRIX_WIDTH = 33, 17
"""Odd, so that no vector of a kernel fits."""
MATRIX_SIZE = MATRIX_HEIGHT * MATRIX_WIDTH
RESTING_LENGTH = 1025


def made_parameters(dtype_name: str, device: str) -> Parameters:
    """Parameters as they are before the first step."""
    start = [start_of(position) for position in range(PERIOD)]
    learning: List[Any] = []
    for length in LENGTHS:
        # Two formats are enough for the long one, which takes most of the time.
        if length > 5000 and dtype_name not in ("float32", "bfloat16"):
            continue
        learning.append(tensor_of(repeated(start, length), dtype_name, device))
    matrix = matrix_by_columns(start, dtype_name, device)
    resting = tensor_of(repeated(start, RESTING_LENGTH), dtype_name, device)
    without_gradient = resting.clone()
    for tensor in (*learning, matrix, resting, without_gradient):
        tensor.requires_grad_()
    return Parameters(learning, matrix, resting, without_gradient)


def matrix_by_columns(period: List[Number], dtype_name: str, device: str) -> Any:
    """A matrix whose columns lie side by side in memory."""
    values = repeated(period, MATRIX_SIZE)
    columns = tensor_of(values, dtype_name, device, MATRIX_WIDTH, MATRIX_HEIGHT)
    return columns.t()


def give_gradients(parameters: Parameters, number: int) -> None:
    """The gradients of one step; the transposed matrix has one that lies as it does."""
    dtype_name = dtype_name_of(parameters.resting)
    device = str(parameters.resting.device)
    period: List[Number] = []
    for position in range(PERIOD):
        period.append(gradient_of(position, number))

    # The resting parameter has a gradient too: only its rate keeps it as it is.
    for tensor in (*parameters.learning, parameters.resting):
        gradient = repeated(period, len(tensor))
        tensor.grad = tensor_of(gradient, dtype_name, device)
    matrix_gradient = matrix_by_columns(period, dtype_name, device)
    parameters.transposed.grad = matrix_gradient


Train = Callable[[Parameters, Dict[str, bool]], None]
"""(parameters, options of the optimizer): all steps, in place."""


def plainly(parameters: Parameters, options: Dict[str, bool]) -> None:
    train(parameters, options, last_rate=RATE)


def by_schedule(parameters: Parameters, options: Dict[str, bool]) -> None:
    """The rate is halved before the last step."""
    train(parameters, options, last_rate=RATE / 2)


def with_reloaded_state(parameters: Parameters, options: Dict[str, bool]) -> None:
    """Another optimizer goes on from the saved state."""
    train(parameters, options, last_rate=RATE, reload_before=STEPS)


def train(
    parameters: Parameters, options: Dict[str, bool], last_rate: float, reload_before: int = 0
) -> None:
    """All steps of SGD with momentum; the parameters are changed in place."""
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
    """An optimizer with two groups, of which the second one has a rate of 0."""
    # A parameter without a gradient is skipped, and must not end the step.
    moving = [*parameters.learning, parameters.transposed, parameters.without_gradient]
    moving_group = {"params": moving}
    resting_group = {"params": [parameters.resting], "lr": 0.0}
    groups = [moving_group, resting_group]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, **options)


class Case(NamedTuple):
    """A way to train, and how torch and Python are told of it."""

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
    """Catches a group with another group's rate, a lost state, and parameters that must not move.

    Also a parameter that lies by columns, and one whose gradient is none.
    """
    for case in CASES:
        period = trained_in_python(case.rates)
        for dtype_name in formats_on(device):
            for form, form_options in FORMS.items():
                # A fault of torch 2.13: the CPU's fused SGD with momentum steps in 16 bits only
                # the last elements of a parameter, those behind its whole vectors.
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
    """Whether torch lacks a form of the optimizer, as older ones lack the fused one."""
    has_no_option = "unexpected keyword" in str(problem)
    return has_no_option or lacks_form(problem) or refuses(problem)


def parameters_after_steps(
    parameters: Parameters, period: List[float], label: str
) -> Iterator[Part]:
    """What has learned, and what must be as it was."""
    for tensor in parameters.learning:
        length = len(tensor)
        yield exactly(f"{label}, {length} numbers", tensor, repeated(period, length))
    columns = parameters.transposed.t()
    exact = repeated(period, MATRIX_SIZE)
    yield exactly(f"{label}, a matrix by columns", columns, exact)

    # As before the first step.
    start = [start_of(position) for position in range(PERIOD)]
    exact = repeated(start, RESTING_LENGTH)
    yield exactly(f"{label}, a group with rate 0", parameters.resting, exact)
    still = parameters.without_gradient
    yield exactly(f"{label}, a parameter without a gradient", still, exact)
