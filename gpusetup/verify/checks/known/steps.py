"""Steps of each optimizer in its plain, foreach and fused implementation, compared with a few lines
of Python.

The longest parameter has more elements than one chunk of a fused kernel (65,536 on a GPU). The
elements repeat with a period that is a prime number, so Python only has to train one period.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.refusals import lacks_form, refuses
from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, near, roundoff, tensor_of
from .clipping import gradient_norms
from .exact_steps import FORMS, exact_steps
from .number_lists import repeated

PERIOD = 61
"""Parameters and gradients repeat after this many elements. It is a prime, so it differs from the
length of any kernel's vector."""
SIZES: Dict[str, Tuple[int, ...]] = {"float32": (1, 33, 70_003, 7), "float64": (1, 33, 1030, 7)}
"""Lengths of the parameters, by format. 70,003 elements fill one chunk of a fused kernel and part
of a second one."""
STEPS = 4
State = Dict[str, float]
"""The state that an optimizer keeps for a parameter between steps, by name."""
Step = Callable[[float, float, State, int], float]
"""Takes a parameter, its gradient, the state, and the number of the step (the first is 1), and
returns the parameter after the step."""


def start_of(position: int) -> float:
    """The parameter's initial value at this position, from -30/128 to 30/128, which float32 holds
    exactly."""
    step = position % PERIOD - 30
    return step / 128


def gradient_of(position: int, step: int) -> float:
    """The gradient at this position in this step. It is never zero."""
    # Multiplying by primes varies the gradient over positions and steps. `whole` is from -20 to 20.
    mixed = 17 * (position % PERIOD) + 29 * step
    whole = mixed % 41 - 20
    return (whole + 0.5) / 16


# --- the optimizers as their papers define them ---------------------------------------------------


def averaged(state: State, key: str, value: float, share: float) -> float:
    """Update a running average, in which the new value has the weight `share`, and return it.

    The average starts at zero and is stored in `state`.
    """
    average_before = state.get(key, 0.0)
    kept_part = (1 - share) * average_before
    average = kept_part + share * value
    state[key] = average
    return average


def sgd(parameter: float, gradient: float, state: State, number: int) -> float:
    """SGD with Nesterov momentum 0.9 and weight decay 0.1."""
    gradient += 0.1 * parameter
    velocity = 0.9 * state.get("velocity", 0.0) + gradient
    state["velocity"] = velocity
    # Nesterov's momentum looks one step ahead.
    move = gradient + 0.9 * velocity
    return parameter - 0.1 * move


def plain_sgd(parameter: float, gradient: float, state: State, number: int) -> float:
    return parameter - 0.1 * gradient


def adam_move(gradient: float, state: State, number: int) -> float:
    """Adam's step without the learning rate: the corrected mean, divided by the root of the
    corrected mean square."""
    mean = averaged(state, "mean", gradient, 0.1)
    square = averaged(state, "square", gradient**2, 0.001)
    # Adam's bias correction: both averages start at zero, so divide by the total weight that real
    # gradients have in them.
    mean /= 1 - 0.9**number
    square /= 1 - 0.999**number
    height = sqrt(square) + 1e-8
    return mean / height


def adam(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adam with weight decay 0.1, which Adam adds to the gradient."""
    decayed_gradient = gradient + 0.1 * parameter
    move = adam_move(decayed_gradient, state, number)
    return parameter - 0.01 * move


def rising_adam(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adam that maximizes (`maximize=True`)."""
    move = adam_move(-gradient, state, number)
    return parameter - 0.01 * move


def unmoved(parameter: float, gradient: float, state: State, number: int) -> float:
    """An optimizer with learning rate 0, which leaves the parameter unchanged."""
    return parameter


def adamw(parameter: float, gradient: float, state: State, number: int) -> float:
    """AdamW with weight decay 0.1, applied separately from the gradient."""
    move = adam_move(gradient, state, number)
    decayed = parameter * (1 - 0.01 * 0.1)
    return decayed - 0.01 * move


def amsgrad(parameter: float, gradient: float, state: State, number: int) -> float:
    """AMSGrad: Adam with the largest second moment so far."""
    mean = averaged(state, "mean", gradient, 0.1)
    square = averaged(state, "square", gradient**2, 0.001)
    largest = max(state.get("largest", 0.0), square)
    state["largest"] = largest
    # The state keeps the uncorrected maximum; the bias correction applies only here.
    mean /= 1 - 0.9**number
    largest /= 1 - 0.999**number
    height = sqrt(largest) + 1e-8
    return parameter - 0.01 * mean / height


def adagrad(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adagrad with a learning rate decay of 0.1."""
    total = state.get("sum", 0.0) + gradient**2
    state["sum"] = total
    steps_before = number - 1
    rate = 0.01 / (1 + steps_before * 0.1)
    # Torch's default eps for Adagrad is smaller than for the other optimizers.
    height = sqrt(total) + 1e-10
    return parameter - rate * gradient / height


def rmsprop(parameter: float, gradient: float, state: State, number: int) -> float:
    """RMSprop, centered, with momentum 0.9."""
    square = averaged(state, "square", gradient**2, 0.01)
    mean = averaged(state, "mean", gradient, 0.01)
    # "Centered" means that the variance is used instead of the mean square.
    variance = square - mean**2
    height = sqrt(variance) + 1e-8
    velocity = 0.9 * state.get("velocity", 0.0) + gradient / height
    state["velocity"] = velocity
    return parameter - 0.01 * velocity


def adadelta(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adadelta, whose step size depends on the running average of earlier steps."""
    square = averaged(state, "square", gradient**2, 0.1)
    moved = state.get("moved", 0.0)
    rate = sqrt((moved + 1e-6) / (square + 1e-6))
    move = rate * gradient
    averaged(state, "moved", move**2, 0.1)
    return parameter - move


def adamax(parameter: float, gradient: float, state: State, number: int) -> float:
    """AdaMax: Adam with a decaying maximum of the absolute gradients instead of the second
    moment."""
    mean = averaged(state, "mean", gradient, 0.1)
    faded_largest = 0.999 * state.get("largest", 0.0)
    size = abs(gradient) + 1e-8
    largest = max(faded_largest, size)
    state["largest"] = largest
    # Only the mean needs the bias correction.
    rate = 0.01 / (1 - 0.9**number)
    return parameter - rate * (mean / largest)


def nadam_weight(number: int) -> float:
    """NAdam's momentum in a step. It grows from 0.45 toward 0.9 (momentum decay 0.004)."""
    faded: float = 0.96 ** (number * 0.004)
    return 0.9 * (1 - 0.5 * faded)


def nadam(parameter: float, gradient: float, state: State, number: int) -> float:
    """NAdam: Adam with a Nesterov momentum that grows from step to step."""
    weight = nadam_weight(number)
    next_weight = nadam_weight(number + 1)
    product = state.get("product", 1.0) * weight
    state["product"] = product
    mean = averaged(state, "mean", gradient, 0.1)
    square = averaged(state, "square", gradient**2, 0.001)
    square /= 1 - 0.999**number
    height = sqrt(square) + 1e-8
    # Apply the bias correction to both parts.
    from_gradient = gradient * (1 - weight) / (1 - product)
    from_mean = mean * next_weight / (1 - product * next_weight)
    move = (from_gradient + from_mean) / height
    return parameter - 0.01 * move


def rprop(parameter: float, gradient: float, state: State, number: int) -> float:
    """Rprop. The step depends only on the gradient's sign: it grows while the sign stays the same,
    and shrinks when the sign changes."""
    turn = gradient * state.get("before", 0.0)
    size = state.get("size", 0.01)
    if turn > 0:
        size = min(size * 1.2, 50.0)
    elif turn < 0:
        size = max(size * 0.5, 1e-6)
        # After a change of sign, Rprop skips one step.
        gradient = 0.0
    state["size"] = size
    state["before"] = gradient
    if gradient > 0:
        return parameter - size
    if gradient < 0:
        return parameter + size
    return parameter


class OptimizerForm(NamedTuple):
    """A torch optimizer, its options, and its step in Python."""

    name: str
    options: Dict[str, Any]
    step: Step
    stored: str = ""
    """The format in which torch always stores one of the numbers in the optimizer's state; empty if
    there is no such number."""


OPTIMIZERS: Tuple[OptimizerForm, ...] = (
    OptimizerForm("SGD", {"lr": 0.1}, plain_sgd),
    OptimizerForm("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, sgd),
    OptimizerForm("Adam", {"lr": 0.01, "weight_decay": 0.1}, adam),
    OptimizerForm("Adam", {"lr": 0.01, "amsgrad": True}, amsgrad),
    OptimizerForm("Adam", {"lr": 0.01, "maximize": True}, rising_adam),
    OptimizerForm("Adam", {"lr": 0.0}, unmoved),
    OptimizerForm("AdamW", {"lr": 0.01, "weight_decay": 0.1}, adamw),
    OptimizerForm("Adagrad", {"lr": 0.01, "lr_decay": 0.1}, adagrad),
    OptimizerForm("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.9}, rmsprop),
    OptimizerForm("Adadelta", {"lr": 1.0}, adadelta),
    OptimizerForm("Adamax", {"lr": 0.01}, adamax),
    OptimizerForm("NAdam", {"lr": 0.01}, nadam, stored="float32"),
    OptimizerForm("Rprop", {"lr": 0.01}, rprop),
)
DIGITS_LOST = 64
"""The error allowed in a parameter, in unit roundoffs times the learning rate. A step takes about a
dozen operations, some of which divide by small numbers."""


def steps(device: str) -> Outcome:
    """Check that each implementation of each optimizer changes every element of a parameter as
    Python does."""
    questions = (trained_parameters, exact_steps, gradient_norms)
    return ask_all(device, questions, "the same steps in Python")


def trained_parameters(device: str) -> Iterator[Part]:
    """Catches an optimizer that skips the last chunk of a parameter or a small tensor, or that
    computes a wrong step."""
    for dtype_name in ("float32", "float64"):
        for optimizer in OPTIMIZERS:
            # Older torch releases lack some optimizers.
            if not hasattr(torch.optim, optimizer.name):
                continue
            period = trained_in_python(optimizer.step)
            limit = limit_of(optimizer, dtype_name)
            for form, form_options in FORMS.items():
                try:
                    parameters = trained(optimizer, form_options, dtype_name, device)
                except Exception as problem:
                    if is_missing_form(problem):
                        continue
                    raise
                for parameter in parameters:
                    size = len(parameter)
                    label = f"{form} {optimizer.name} of {size} {dtype_name} numbers"
                    yield near(label, parameter, repeated(period, size), limit)


def limit_of(optimizer: OptimizerForm, dtype_name: str) -> Limit:
    """The rounding error allowed in a parameter after all steps."""
    unit = roundoff(dtype_name)
    if optimizer.stored:
        unit = max(unit, roundoff(optimizer.stored))
    # The parameters are rounded too. They are below 0.5, so allow at least as much as for a rate of
    # 0.5.
    rate = max(0.5, optimizer.options["lr"])
    return Limit(8 * unit, DIGITS_LOST * unit * rate)


def is_missing_form(problem: Exception) -> bool:
    """Whether the error means that torch lacks this implementation of the optimizer on this
    device."""
    return lacks_form(problem) or refuses(problem) or has_no_option(problem)


def has_no_option(problem: Exception) -> bool:
    """Whether the error says that the optimizer does not have this option. Some optimizers have no
    fused implementation."""
    return isinstance(problem, TypeError) and "unexpected keyword argument" in str(problem)


def trained_in_python(step: Step) -> List[float]:
    """The exact parameters after all steps, for one period of positions."""
    parameters: List[float] = []
    for position in range(PERIOD):
        parameter = start_of(position)
        state: State = {}
        for number in range(1, STEPS + 1):
            gradient = gradient_of(position, number)
            parameter = step(parameter, gradient, state, number)
        parameters.append(parameter)
    return parameters


def trained(
    optimizer: OptimizerForm, form_options: Dict[str, bool], dtype_name: str, device: str
) -> Sequence[Any]:
    """Train with torch's optimizer, and return the parameters after all steps."""
    start = [start_of(position) for position in range(PERIOD)]
    parameters = []
    for size in SIZES[dtype_name]:
        parameter = tensor_of(repeated(start, size), dtype_name, device)
        parameters.append(parameter.requires_grad_())
    optimizer_class = getattr(torch.optim, optimizer.name)
    torch_optimizer = optimizer_class(parameters, **optimizer.options, **form_options)
    for number in range(1, STEPS + 1):
        gradient = [gradient_of(position, number) for position in range(PERIOD)]
        for parameter in parameters:
            size = len(parameter)
            parameter.grad = tensor_of(repeated(gradient, size), dtype_name, device)
        torch_optimizer.step()
    return parameters
