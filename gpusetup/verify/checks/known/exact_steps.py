"""Steps of SGD that are exact in every format, with several parameter groups; used by
`optimizer-steps`.

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
    """The start value of the parameter at this position, from -29/32 to 29/32."""
    step = position % PERIOD - 29
    return step / 32


def gradient_of(position: int, number: int) -> float:
    """The gradient at this position in step `number`: -1, -0.5, 0, 0.5 or 1, different in each
    step."""
    turn = 3 * (position % PERIOD) + number
    halves = turn % 5
    return halves / 2 - 1


class Rates(NamedTuple):
    """The direction and learning rates of a case."""

    sign: float = 1.0
    """-1: the optimizer climbs (`maximize`)."""
    first: float = RATE
    last: float = RATE
    """The rate of the last step, as a schedule may change it."""


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
    """Parameters on a device: those that are trained, and two that must not change."""

    learning: List[Any]
    transposed: Any
    """A matrix stored by columns; trained too."""
    zero_rate: Any
    """Has gradients, but is in a group with learning rate 0."""
    no_gradient: Any
    """Is in the group that is trained, but its gradient is None."""


MATRIX_HEIGHT, MATRIX_WIDTH = 33, 17
"""Odd, so that no vector of a kernel divides it."""
MATRIX_SIZE = MATRIX_HEIGHT * MATRIX_WIDTH
UNCHANGED_LENGTH = 1025
"""Numbers in each of the two parameters that must not change: one more than a block of 1,024."""


def made_parameters(dtype_name: str, device: str) -> Parameters:
    """All parameters with their values before the first step."""
    start = [start_of(position) for position in range(PERIOD)]
    learning: List[Any] = []
    for length in LENGTHS:
        # Two formats are enough for the long one, which takes most of the time.
        if length > 5000 and dtype_name not in ("float32", "bfloat16"):
            continue
        learning.append(tensor_of(repeated(start, length), dtype_name, device))
    matrix = matrix_by_columns(start, dtype_name, device)
    zero_rate = tensor_of(repeated(start, UNCHANGED_LENGTH), dtype_name, device)
    no_gradient = zero_rate.clone()
    # All of them may get gradients; `give_gradients` leaves one out.
    for tensor in (*learning, matrix, zero_rate, no_gradient):
        tensor.requires_grad_()
    return Parameters(learning, matrix, zero_rate, no_gradient)


def matrix_by_columns(period: List[Number], dtype_name: str, device: str) -> Any:
    """A matrix that is stored column by column."""
    values = repeated(period, MATRIX_SIZE)
    columns = tensor_of(values, dtype_name, device, MATRIX_WIDTH, MATRIX_HEIGHT)
    return columns.t()


def give_gradients(parameters: Parameters, number: int) -> None:
    """Set the gradients of one step. The gradient of the matrix is stored by columns, like the
    matrix itself; `no_gradient` gets none."""
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
"""(parameters, options of the optimizer): all steps, in place."""


def plainly(parameters: Parameters, options: Dict[str, bool]) -> None:
    """All steps with the same rate."""
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
    # The optimizer must skip a parameter without a gradient, and go on with the next one.
    trained = [*parameters.learning, parameters.transposed, parameters.no_gradient]
    trained_group = {"params": trained}
    zero_rate_group = {"params": [parameters.zero_rate], "lr": 0.0}
    groups = [trained_group, zero_rate_group]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, **options)


class Case(NamedTuple):
    """A way to train: the function for torch, and the rates for the exact steps in Python."""

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
    """Catches a group with another group's rate, a lost state, and a change of parameters that must
    not change.

    One parameter is stored by columns, and one has no gradient.
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
    """Whether the error means that this torch or device lacks the form of the optimizer, e.g. the
    fused one in older releases."""
    has_no_option = "unexpected keyword" in str(problem)
    return has_no_option or lacks_form(problem) or refuses(problem)


def parameters_after_steps(
    parameters: Parameters, period: List[float], label: str
) -> Iterator[Part]:
    """Compare the trained parameters with the exact steps, and the two others with their values
    before the first step."""
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
