"""Recurrent nets, step by step in Python, as their papers write them."""

from __future__ import annotations

import functools
from math import exp, tanh
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import HALVES, Limit, ask_all, dice, formats_on, near, offered, roundoff, tensor_of

Vector = List[float]
Matrix = List[Vector]


class Net(NamedTuple):
    """The sizes of one recurrent net."""

    steps: int
    inputs: int
    hidden: int
    layers: int = 1
    both_directions: bool = False


NETS = (Net(5, 3, 4), Net(33, 17, 9), Net(3, 2, 33, layers=2), Net(7, 5, 6, both_directions=True))


class Weights(NamedTuple):
    """What one layer learns, for one direction: a block of rows for each gate."""

    from_input: Matrix
    from_state: Matrix
    input_bias: Vector
    state_bias: Vector


class State(NamedTuple):
    """What a step hands on."""

    hidden: Vector
    cell: Vector


Step = Callable[[Weights, Vector, State], State]


def recurrent(device: str) -> Outcome:
    """LSTM, GRU and plain recurrent nets make the steps that Python makes."""
    return ask_all(device, (outputs_of_nets,), "the same steps in Python")


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def affine(rows: Matrix, vector: Vector, bias: Vector) -> Vector:
    """Each row times the vector, plus the bias."""
    sums: Vector = []
    for row, start in zip(rows, bias):
        sums.append(start + sum(map(float.__mul__, row, vector)))
    return sums


def gate(values: Vector, number: int, size: int) -> Vector:
    """The block of one gate."""
    return values[number * size : (number + 1) * size]


def plain_step(weights: Weights, inputs: Vector, state: State) -> State:
    """h = tanh(W x + b + U h + c)."""
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    hidden = [tanh(x + h) for x, h in zip(from_input, from_state)]
    return State(hidden, state.cell)


def lstm_step(weights: Weights, inputs: Vector, state: State) -> State:
    """The gates lie in the order input, forget, candidate, output."""
    size = len(state.hidden)
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    sums = [x + h for x, h in zip(from_input, from_state)]
    let_in = [sigmoid(value) for value in gate(sums, 0, size)]
    kept = [sigmoid(value) for value in gate(sums, 1, size)]
    candidates = [tanh(value) for value in gate(sums, 2, size)]
    let_out = [sigmoid(value) for value in gate(sums, 3, size)]
    cell: Vector = []
    for position in range(size):
        remembered = kept[position] * state.cell[position]
        cell.append(remembered + let_in[position] * candidates[position])
    hidden = [share * tanh(value) for share, value in zip(let_out, cell)]
    return State(hidden, cell)


def gru_step(weights: Weights, inputs: Vector, state: State) -> State:
    """The gates lie in the order reset, update, candidate."""
    size = len(state.hidden)
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    hidden: Vector = []
    for position in range(size):
        reset = sigmoid(from_input[position] + from_state[position])
        update = sigmoid(from_input[size + position] + from_state[size + position])
        of_input, of_state = from_input[2 * size + position], from_state[2 * size + position]
        candidate = tanh(of_input + reset * of_state)
        hidden.append((1 - update) * candidate + update * state.hidden[position])
    return State(hidden, state.cell)


class Kind(NamedTuple):
    """One of torch's recurrent nets, with its step in Python."""

    module: str
    step: Step
    gates: int


KINDS = (Kind("RNN", plain_step, 1), Kind("LSTM", lstm_step, 4), Kind("GRU", gru_step, 3))


def outputs_of_nets(device: str) -> Iterator[Part]:
    """Catches exchanged gates, a lost bias or last step, and a direction that is not turned."""
    for kind in KINDS:
        for net in NETS:
            weights = weights_of(kind, net)
            sequence = small_matrix(net.steps, net.inputs, f"{net} sequence")
            outputs = outputs_in_python(kind, net, weights, sequence)
            exact = [value for row in outputs for value in row]
            for name in formats_on(device):
                case = (kind, net, sequence, (name, device))
                computed = offered(functools.partial(computed_by_torch, *case))
                if computed is None:
                    continue
                label = f"{kind.module} {tuple(net)} of {name}"
                # Sums of up to 33 products in each step, and errors that a step hands on.
                digits = 8 if name in HALVES else 128
                yield near(label, computed, exact, Limit(absolute=digits * roundoff(name)))


def small_matrix(rows: int, columns: int, salt: str) -> Matrix:
    """Multiples of 1/16 below a half: exact in every format."""
    chance = dice(f"recurrent {rows} {columns} {salt}")
    matrix: Matrix = []
    for _ in range(rows):
        matrix.append([chance.randint(-7, 7) / 16 for _ in range(columns)])
    return matrix


def weights_of(kind: Kind, net: Net) -> Dict[str, Weights]:
    """The weights of each layer and direction, by the end of torch's names for them."""
    weights: Dict[str, Weights] = {}
    height = kind.gates * net.hidden
    directions = ("", "_reverse") if net.both_directions else ("",)
    for layer in range(net.layers):
        width = net.inputs if layer == 0 else net.hidden * len(directions)
        for direction in directions:
            name = f"l{layer}{direction}"
            biases = small_matrix(2, height, f"{kind.module} {name} bias")
            weights[name] = Weights(
                small_matrix(height, width, f"{kind.module} {name} input"),
                small_matrix(height, net.hidden, f"{kind.module} {name} state"),
                biases[0],
                biases[1],
            )
    return weights


def outputs_in_python(
    kind: Kind, net: Net, weights: Dict[str, Weights], sequence: Matrix
) -> Matrix:
    """The output of the last layer at each step."""
    rows = sequence
    for layer in range(net.layers):
        forward = walked(kind.step, weights[f"l{layer}"], rows, net.hidden)
        if net.both_directions:
            turned = walked(kind.step, weights[f"l{layer}_reverse"], rows[::-1], net.hidden)
            forward = [first + second for first, second in zip(forward, turned[::-1])]
        rows = forward
    return rows


def walked(step: Step, weights: Weights, rows: Sequence[Vector], size: int) -> Matrix:
    """The hidden state after each step, from a state of zeros."""
    state = State([0.0] * size, [0.0] * size)
    outputs: Matrix = []
    for row in rows:
        state = step(weights, row, state)
        outputs.append(state.hidden)
    return outputs


def computed_by_torch(kind: Kind, net: Net, sequence: Matrix, where: Sequence[str]) -> Any:
    """What torch's module makes of the sequence, in a format on a device."""
    name, device = where
    module = getattr(torch.nn, kind.module)(
        net.inputs, net.hidden, net.layers, bidirectional=net.both_directions
    )
    with torch.no_grad():
        for suffix, weights in weights_of(kind, net).items():
            getattr(module, f"weight_ih_{suffix}").copy_(torch.tensor(weights.from_input))
            getattr(module, f"weight_hh_{suffix}").copy_(torch.tensor(weights.from_state))
            getattr(module, f"bias_ih_{suffix}").copy_(torch.tensor(weights.input_bias))
            getattr(module, f"bias_hh_{suffix}").copy_(torch.tensor(weights.state_bias))
        module = module.to(device, getattr(torch, name))
        flat = [value for row in sequence for value in row]
        inputs = tensor_of(flat, name, device, net.steps, 1, net.inputs)
        return module(inputs)[0]
