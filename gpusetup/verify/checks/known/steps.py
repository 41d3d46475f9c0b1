"""Steps of every optimizer, in its plain, foreach and fused form, against a few lines of Python.

The longest parameter has more elements than one chunk of a fused kernel (65,536 on a GPU). Its
elements come again after a prime number of them, so Python trains only so many.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.refusals import lacks_form, refuses
from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, near, roundoff, tensor_of
from .exact_steps import FORMS, exact_steps

PERIOD = 61
SIZES: Dict[str, Tuple[int, ...]] = {"float32": (1, 33, 70_003, 7), "float64": (1, 33, 1030, 7)}
"""Elements of the parameters; 70,003 are two chunks, the last one not full."""
STEPS = 4
State = Dict[str, float]
Step = Callable[[float, float, State, int], float]
"""(parameter, gradient, state, number of the step from 1 on) -> the parameter after the step."""


def start_of(position: int) -> float:
    """Where a parameter starts: from -0.3 to 0.3, exact in float32."""
    return (position % PERIOD - 30) / 128


def gradient_of(position: int, step: int) -> float:
    """Gradients of either sign; none is zero."""
    size = (17 * (position % PERIOD) + 29 * step) % 41 - 20
    return (size + 0.5) / 16


# --- the optimizers as their papers write them ----------------------------------------------------


def sgd(parameter: float, gradient: float, state: State, number: int) -> float:
    """With momentum 0.9, Nesterov and weight decay 0.1."""
    gradient += 0.1 * parameter
    velocity = gradient if number == 1 else 0.9 * state["velocity"] + gradient
    state["velocity"] = velocity
    return parameter - 0.1 * (gradient + 0.9 * velocity)


def plain_sgd(parameter: float, gradient: float, state: State, number: int) -> float:
    return parameter - 0.1 * gradient


def adam_move(gradient: float, state: State, number: int) -> float:
    """The direction of Adam: both moments, each without the weight of its empty start."""
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
    state["square"] = 0.999 * state.get("square", 0.0) + 0.001 * gradient**2
    mean = state["mean"] / (1 - 0.9**number)
    square = state["square"] / (1 - 0.999**number)
    return mean / (sqrt(square) + 1e-8)


def adam(parameter: float, gradient: float, state: State, number: int) -> float:
    """With weight decay 0.1, which is part of the gradient."""
    decayed_gradient = gradient + 0.1 * parameter
    move = adam_move(decayed_gradient, state, number)
    return parameter - 0.01 * move


def rising_adam(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adam up the slope (`maximize`)."""
    return parameter - 0.01 * adam_move(-gradient, state, number)


def unmoved(parameter: float, gradient: float, state: State, number: int) -> float:
    """With a rate of 0."""
    return parameter


def adamw(parameter: float, gradient: float, state: State, number: int) -> float:
    """With weight decay 0.1, apart from the gradient."""
    move = adam_move(gradient, state, number)
    decayed = parameter * (1 - 0.01 * 0.1)
    return decayed - 0.01 * move


def amsgrad(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adam with the largest second moment so far."""
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
    state["square"] = 0.999 * state.get("square", 0.0) + 0.001 * gradient**2
    state["largest"] = max(state.get("largest", 0.0), state["square"])
    mean = state["mean"] / (1 - 0.9**number)
    square = state["largest"] / (1 - 0.999**number)
    height = sqrt(square) + 1e-8
    return parameter - 0.01 * mean / height


def adagrad(parameter: float, gradient: float, state: State, number: int) -> float:
    """With a rate that falls by 0.1 a step."""
    state["sum"] = state.get("sum", 0.0) + gradient**2
    rate = 0.01 / (1 + (number - 1) * 0.1)
    height = sqrt(state["sum"]) + 1e-10
    return parameter - rate * gradient / height


def rmsprop(parameter: float, gradient: float, state: State, number: int) -> float:
    """Centered, with momentum 0.9."""
    state["square"] = 0.99 * state.get("square", 0.0) + 0.01 * gradient**2
    state["mean"] = 0.99 * state.get("mean", 0.0) + 0.01 * gradient
    variance = state["square"] - state["mean"] ** 2
    height = sqrt(variance) + 1e-8
    state["velocity"] = 0.9 * state.get("velocity", 0.0) + gradient / height
    return parameter - 0.01 * state["velocity"]


def adadelta(parameter: float, gradient: float, state: State, number: int) -> float:
    state["square"] = 0.9 * state.get("square", 0.0) + 0.1 * gradient**2
    distance = state.get("moved", 0.0) + 1e-6
    rate = sqrt(distance / (state["square"] + 1e-6))
    move = rate * gradient
    state["moved"] = 0.9 * state.get("moved", 0.0) + 0.1 * move**2
    return parameter - move


def adamax(parameter: float, gradient: float, state: State, number: int) -> float:
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
    state["largest"] = max(0.999 * state.get("largest", 0.0), abs(gradient) + 1e-8)
    rate = 0.01 / (1 - 0.9**number)
    move = state["mean"] / state["largest"]
    return parameter - rate * move


def nadam(parameter: float, gradient: float, state: State, number: int) -> float:
    """Adam with Nesterov's momentum, whose weight grows from step to step (decay 0.004)."""
    weight: float = 0.9 * (1 - 0.5 * 0.96 ** (number * 0.004))
    next_weight: float = 0.9 * (1 - 0.5 * 0.96 ** ((number + 1) * 0.004))
    product = state["product"] = state.get("product", 1.0) * weight
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
    state["square"] = 0.999 * state.get("square", 0.0) + 0.001 * gradient**2
    height = sqrt(state["square"] / (1 - 0.999**number)) + 1e-8
    from_gradient = gradient * (1 - weight) / (1 - product)
    from_mean = state["mean"] * next_weight / (1 - product * next_weight)
    return parameter - 0.01 * (from_gradient + from_mean) / height


def rprop(parameter: float, gradient: float, state: State, number: int) -> float:
    """Steps by signs alone: longer while the sign stays, shorter after a change."""
    turn = gradient * state.get("before", 0.0)
    size = state.get("size", 0.01)
    if turn > 0:
        size = min(size * 1.2, 50.0)
    elif turn < 0:
        size = max(size * 0.5, 1e-6)
        gradient = 0.0  # after a change of sign it waits a step
    state["size"], state["before"] = size, gradient
    if gradient == 0.0:
        return parameter
    return parameter - size if gradient > 0 else parameter + size


class Optimizer(NamedTuple):
    """One of torch's optimizers, its options, and the step in Python."""

    name: str
    options: Dict[str, Any]
    step: Step
    stored: str = ""
    """The format in which it keeps a number of its own, whatever that of the parameters."""


OPTIMIZERS: Tuple[Optimizer, ...] = (
    Optimizer("SGD", {"lr": 0.1}, plain_sgd),
    Optimizer("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, sgd),
    Optimizer("Adam", {"lr": 0.01, "weight_decay": 0.1}, adam),
    Optimizer("Adam", {"lr": 0.01, "amsgrad": True}, amsgrad),
    Optimizer("Adam", {"lr": 0.01, "maximize": True}, rising_adam),
    Optimizer("Adam", {"lr": 0.0}, unmoved),
    Optimizer("AdamW", {"lr": 0.01, "weight_decay": 0.1}, adamw),
    Optimizer("Adagrad", {"lr": 0.01, "lr_decay": 0.1}, adagrad),
    Optimizer("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.9}, rmsprop),
    Optimizer("Adadelta", {"lr": 1.0}, adadelta),
    Optimizer("Adamax", {"lr": 0.01}, adamax),
    Optimizer("NAdam", {"lr": 0.01}, nadam, stored="float32"),
    Optimizer("Rprop", {"lr": 0.01}, rprop),
)
DIGITS_LOST = 64
"""Roundoffs by which a step may be off, as a share of the greatest gradient's step: a dozen
operations, some of which divide by small numbers."""


def steps(device: str) -> Outcome:
    """Each form of each optimizer trains every element of a parameter as its paper says."""
    return ask_all(device, (trained_parameters, exact_steps), "the same steps in Python")


def trained_parameters(device: str) -> Iterator[Part]:
    """Catches an optimizer that leaves a last chunk, a small tensor or a whole form behind."""
    for name in ("float32", "float64"):
        for optimizer in OPTIMIZERS:
            exact = trained_in_python(optimizer.step)
            for form, option in FORMS.items():
                if not hasattr(torch.optim, optimizer.name):
                    continue
                try:
                    parameters = trained(optimizer, option, name, device)
                except Exception as problem:
                    if lacks_form(problem) or refuses(problem) or has_no_option(problem):
                        continue
                    raise
                for parameter, size in zip(parameters, SIZES[name]):
                    expected = (exact * (size // PERIOD + 1))[:size]
                    label = f"{form} {optimizer.name} of {size} {name} numbers"
                    yield near(label, parameter, expected, limit_of(optimizer, name))


def limit_of(optimizer: Optimizer, name: str) -> Limit:
    """What rounding may change: of the parameter, and of steps about as long as the rate."""
    unit = max(roundoff(name), roundoff(optimizer.stored or name))
    return Limit(8 * unit, DIGITS_LOST * unit * max(0.5, optimizer.options["lr"]))


def has_no_option(problem: Exception) -> bool:
    """Whether an optimizer has no argument of this name: not each one has a fused form."""
    return isinstance(problem, TypeError) and "unexpected keyword argument" in str(problem)


def trained_in_python(step: Step) -> List[float]:
    """The parameters of one period after all steps."""
    parameters: List[float] = []
    for position in range(PERIOD):
        parameter = start_of(position)
        state: State = {}
        for number in range(1, STEPS + 1):
            parameter = step(parameter, gradient_of(position, number), state, number)
        parameters.append(parameter)
    return parameters


def trained(optimizer: Optimizer, form: Dict[str, bool], name: str, device: str) -> Sequence[Any]:
    """The parameters that torch's optimizer leaves."""
    parameters = []
    for size in SIZES[name]:
        start = one_period([start_of(position) for position in range(PERIOD)], size)
        parameters.append(tensor_of(start, name, device).requires_grad_())
    made = getattr(torch.optim, optimizer.name)(parameters, **optimizer.options, **form)
    for number in range(1, STEPS + 1):
        gradient = [gradient_of(position, number) for position in range(PERIOD)]
        for parameter, size in zip(parameters, SIZES[name]):
            parameter.grad = tensor_of(one_period(gradient, size), name, device)
        made.step()
    return parameters


def one_period(values: List[float], size: int) -> List[float]:
    """So many numbers, of which the first ones come again and again."""
    periods = size // PERIOD + 1
    longer = values * periods
    return longer[:size]
