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
from .answers import HALVES, Number, exactly, formats_on, repeated, tensor_of

PERIOD = 59
RATE, MOMENTUM = 0.25, 0.5
STEPS = 3
LENGTHS = (1, 17, 1025, 70_003)
"""The last one is two chunks of a fused kernel (65,536 elements on a GPU), the second not full."""
FORMS: Dict[str, Dict[str, bool]] = {
    "plain": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def start_of(position: int) -> float:
    return (position % PERIOD - 29) / 32


def gradient_of(position: int, number: int) -> float:
    """-1, -0.5, 0, 0.5 or 1, another one in each step."""
    return (3 * (position % PERIOD) + number) % 5 / 2 - 1


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
            rate = rates.last if number == STEPS else rates.first
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


def made_parameters(name: str, device: str) -> Parameters:
    lengths = [length for length in LENGTHS if length < 5000 or name in ("float32", "bfloat16")]
    start = [start_of(position) for position in range(PERIOD)]
    learning = [tensor_of(repeated(start, length), name, device) for length in lengths]
    columns = tensor_of(repeated(start, 33 * 17), name, device, 17, 33).t()
    resting = tensor_of(repeated(start, 1025), name, device)
    tensors = [*learning, columns, resting, resting.clone()]
    for tensor in tensors:
        tensor.requires_grad_()
    return Parameters(learning, tensors[-3], tensors[-2], tensors[-1])


def give_gradients(parameters: Parameters, number: int) -> None:
    """The gradients of one step; the transposed matrix has one that lies as it does."""
    period = [gradient_of(position, number) for position in range(PERIOD)]
    for tensor in (*parameters.learning, parameters.resting):
        name, device = format_of(tensor), str(tensor.device)
        tensor.grad = tensor_of(repeated(period, len(tensor)), name, device)
    matrix = parameters.transposed
    name, device = format_of(matrix), str(matrix.device)
    by_columns = tensor_of(repeated(period, 33 * 17), name, device, 17, 33)
    matrix.grad = by_columns.t()


def format_of(tensor: Any) -> str:
    return str(tensor.dtype).replace("torch.", "")


Train = Callable[[Parameters, Dict[str, bool]], None]


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
    moving = [*parameters.learning, parameters.transposed, parameters.without_gradient]
    groups = [{"params": moving}, {"params": [parameters.resting], "lr": 0.0}]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, **options)


class Case(NamedTuple):
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
        exact = trained_in_python(case.rates)
        start: List[Number] = [start_of(position) for position in range(PERIOD)]
        for name in formats_on(device):
            for form, form_options in FORMS.items():
                if form == "fused" and name in HALVES and kind(device) == "cpu":
                    # A fault of torch 2.13: the CPU's fused SGD with momentum steps in 16 bits only
                    # the last elements of a parameter, those behind its whole vectors.
                    continue
                parameters = made_parameters(name, device)
                try:
                    case.train(parameters, {**form_options, **case.options})
                except Exception as problem:
                    is_missing = "unexpected keyword" in str(problem)
                    if is_missing or lacks_form(problem) or refuses(problem):
                        continue
                    raise
                label = f"{form} {case.label}, {name}"
                for tensor in parameters.learning:
                    expected = repeated(exact, len(tensor))
                    yield exactly(f"{label}, {len(tensor)} numbers", tensor, expected)
                by_columns = parameters.transposed.t()
                expected = repeated(exact, 33 * 17)
                yield exactly(f"{label}, a matrix by columns", by_columns, expected)
                unmoved = repeated(start, 1025)
                yield exactly(f"{label}, a group with rate 0", parameters.resting, unmoved)
                still = parameters.without_gradient
                yield exactly(f"{label}, a parameter without a gradient", still, unmoved)
