"""Recurrent networks, computed step by step in Python from their definitions."""

from __future__ import annotations

import functools
from math import exp, tanh
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import HALVES, Limit, ask_all, dice, formats_on, near, offered, roundoff, tensor_of
from .number_lists import joined, products_of_pairs, random_wholes, scaled, sums_of_pairs

Vector = List[float]
Matrix = List[Vector]


class Net(NamedTuple):
    """The sizes of a recurrent network."""

    steps: int
    inputs: int
    hidden: int
    layers: int = 1
    both_directions: bool = False


NETS = (Net(5, 3, 4), Net(33, 17, 9), Net(3, 2, 33, layers=2), Net(7, 5, 6, both_directions=True))
"""Networks with few and many steps, two layers, and two directions."""


class Weights(NamedTuple):
    """The weights and biases of one layer in one direction. Each gate has its block of rows."""

    from_input: Matrix
    from_state: Matrix
    input_bias: Vector
    state_bias: Vector


class State(NamedTuple):
    """The hidden and cell state after a step."""

    hidden: Vector
    cell: Vector


Step = Callable[[Weights, Vector, State], State]
"""Takes weights, inputs and the state, and returns the state after one step."""


def recurrent(device: str) -> Outcome:
    """Check that torch's LSTM, GRU and plain RNN agree with Python."""
    return ask_all(device, (outputs_of_nets,), "the same steps in Python")


# --- one step of each net -------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def affine(rows: Matrix, vector: Vector, bias: Vector) -> Vector:
    """The matrix times the vector, plus the bias."""
    sums: Vector = []
    for row, start in zip(rows, bias):
        products = products_of_pairs(row, vector)
        sums.append(start + sum(products))
    return sums


def gate(values: Vector, number: int, size: int) -> Vector:
    """The block of values that belongs to gate `number`."""
    start = number * size
    return values[start : start + size]


def plain_step(weights: Weights, inputs: Vector, state: State) -> State:
    """One step of a plain recurrent network: h = tanh(W x + b + U h + c)."""
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    sums = sums_of_pairs(from_input, from_state)
    hidden = list(map(tanh, sums))
    return State(hidden, state.cell)


def lstm_step(weights: Weights, inputs: Vector, state: State) -> State:
    """One step of an LSTM; the gates are in the order input, forget, candidate, output."""
    size = len(state.hidden)
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    sums = sums_of_pairs(from_input, from_state)
    input_gate = list(map(sigmoid, gate(sums, 0, size)))
    forget_gate = list(map(sigmoid, gate(sums, 1, size)))
    candidates = list(map(tanh, gate(sums, 2, size)))
    output_gate = list(map(sigmoid, gate(sums, 3, size)))

    # The new cell state is a part of the old one plus a part of the candidates.
    remembered = products_of_pairs(forget_gate, state.cell)
    learned = products_of_pairs(input_gate, candidates)
    cell = sums_of_pairs(remembered, learned)
    hidden = products_of_pairs(output_gate, map(tanh, cell))
    return State(hidden, cell)


def gru_step(weights: Weights, inputs: Vector, state: State) -> State:
    """One step of a GRU; the gates are in the order reset, update, candidate."""
    size = len(state.hidden)
    from_input = affine(weights.from_input, inputs, weights.input_bias)
    from_state = affine(weights.from_state, state.hidden, weights.state_bias)
    hidden: Vector = []
    for position in range(size):
        # The blocks of the gates follow each other, so these are the positions of the same element
        # in the blocks of the update gate and of the candidate.
        update_position = size + position
        candidate_position = 2 * size + position
        reset = sigmoid(from_input[position] + from_state[position])
        update = sigmoid(from_input[update_position] + from_state[update_position])
        # In torch, the reset gate multiplies the contribution of the state including its bias.
        kept_state = reset * from_state[candidate_position]
        candidate = tanh(from_input[candidate_position] + kept_state)
        hidden.append((1 - update) * candidate + update * state.hidden[position])
    return State(hidden, state.cell)


class Kind(NamedTuple):
    """A torch module, its step in Python, and its number of gates."""

    module: str
    step: Step
    gates: int


KINDS = (Kind("RNN", plain_step, 1), Kind("LSTM", lstm_step, 4), Kind("GRU", gru_step, 3))


# --- whole nets -----------------------------------------------------------------------------------


def outputs_of_nets(device: str) -> Iterator[Part]:
    """Catches swapped gates, a missing bias or last step, and a backward direction that is not
    reversed."""
    for kind in KINDS:
        for net in NETS:
            layers = layers_of(kind, net)
            sequence = small_matrix(net.steps, net.inputs, f"{net} sequence")
            exact = joined(outputs_in_python(kind, layers, sequence))
            for dtype_name in formats_on(device):
                module = module_of(kind, net, layers)
                inputs = tensor_of(joined(sequence), dtype_name, device, net.steps, 1, net.inputs)
                computed = offered(functools.partial(outputs_of, module, inputs))
                if computed is None:
                    continue
                label = f"{kind.module} {tuple(net)} of {dtype_name}"
                # Each step sums up to 33 products, and passes its errors to the next step.
                digits = 8 if dtype_name in HALVES else 128
                limit = Limit(absolute=digits * roundoff(dtype_name))
                yield near(label, computed, exact, limit)


def small_matrix(rows: int, columns: int, salt: str) -> Matrix:
    """A random matrix of multiples of 1/16 between -1/2 and 1/2, which are exact in every
    format."""
    chance = dice(f"recurrent {rows} {columns} {salt}")
    matrix: Matrix = []
    for _ in range(rows):
        sixteenths = random_wholes(chance, columns, -7, 7)
        matrix.append(scaled(sixteenths, 1 / 16))
    return matrix


class RecurrentWeights(NamedTuple):
    """The weights of one layer. `backward` is None unless the network is bidirectional."""

    forward: Weights
    backward: Optional[Weights]


def layers_of(kind: Kind, net: Net) -> List[RecurrentWeights]:
    """Draw random weights for each layer and direction."""
    layers: List[RecurrentWeights] = []
    width = net.inputs
    for number in range(net.layers):
        forward = weights_of(kind, net, width, f"l{number}")
        backward = None
        if net.both_directions:
            backward = weights_of(kind, net, width, f"l{number}_reverse")
        layers.append(RecurrentWeights(forward, backward))
        # The inputs of the next layer are the outputs of this layer, in both directions if there
        # are two.
        width = 2 * net.hidden if net.both_directions else net.hidden
    return layers


def weights_of(kind: Kind, net: Net, width: int, name: str) -> Weights:
    """Draw the weights of a layer with `width` inputs. `name` is the suffix of torch's names for
    them."""
    height = kind.gates * net.hidden
    input_bias, state_bias = small_matrix(2, height, f"{kind.module} {name} bias")
    return Weights(
        small_matrix(height, width, f"{kind.module} {name} input"),
        small_matrix(height, net.hidden, f"{kind.module} {name} state"),
        input_bias,
        state_bias,
    )


def outputs_in_python(kind: Kind, layers: List[RecurrentWeights], sequence: Matrix) -> Matrix:
    """The exact output of the last layer at each step."""
    rows = sequence
    for layer in layers:
        outputs = walked(kind.step, layer.forward, rows)
        if layer.backward is not None:
            # Walk from the last step to the first, and put the outputs back into order.
            backward_outputs = walked(kind.step, layer.backward, rows[::-1])[::-1]
            outputs = [first + second for first, second in zip(outputs, backward_outputs)]
        rows = outputs
    return rows


def walked(step: Step, weights: Weights, rows: Sequence[Vector]) -> Matrix:
    """The hidden state after each step, starting from a state of zero."""
    size = len(weights.from_state[0])
    state = State([0.0] * size, [0.0] * size)
    outputs: Matrix = []
    for row in rows:
        state = step(weights, row, state)
        outputs.append(state.hidden)
    return outputs


def module_of(kind: Kind, net: Net, layers: List[RecurrentWeights]) -> Any:
    """Make a torch module with these weights, on the CPU."""
    module_class = getattr(torch.nn, kind.module)
    module = module_class(net.inputs, net.hidden, net.layers, bidirectional=net.both_directions)
    # Torch's names for the weights contain the number of the layer.
    for number, layer in enumerate(layers):
        write_weights(module, f"l{number}", layer.forward)
        if layer.backward is not None:
            write_weights(module, f"l{number}_reverse", layer.backward)
    return module


def write_weights(module: Any, name: str, weights: Weights) -> None:
    """Copy the weights of one layer and direction into the module."""
    tensors = {
        "weight_ih": weights.from_input,
        "weight_hh": weights.from_state,
        "bias_ih": weights.input_bias,
        "bias_hh": weights.state_bias,
    }
    for kind, values in tensors.items():
        parameter = getattr(module, f"{kind}_{name}")
        # torch does not allow writing to a parameter in place while gradients are recorded.
        with torch.no_grad():
            parameter.copy_(torch.tensor(values))


def outputs_of(module: Any, inputs: Any) -> Any:
    """Compute the module's outputs for a sequence, in the format and on the device of that
    sequence."""
    module = module.to(inputs.device, inputs.dtype)
    with torch.no_grad():
        outputs, _ = module(inputs)
    return outputs
