"""Undoes the side effects of a training attempt that ran out of memory."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from gpusetup.errors import UsageError
from gpusetup.tune.recover.parts import BATCH_NORM


def trained_leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that receive a gradient in the backward pass of this loss."""
    waiting = [loss.grad_fn]
    visited = set()
    while waiting:
        node = waiting.pop()
        # Skip inputs without a node, which need no gradient.
        if node is None or node in visited:
            continue
        visited.add(node)
        waiting += [next_node for next_node, _ in node.next_functions]
        # Only nodes that accumulate the gradient of a leaf have a variable.
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            yield variable


MOST_NAMES = 3


def listed(names: list[str]) -> str:
    """The first names of a list, and how many more there are, as text.

    >>> listed(["a", "b", "c", "d"]), listed([""])
    ('a, b, c and 1 more', 'the model itself')
    """
    # `named_modules` gives the model itself an empty name.
    text = ", ".join(name or "the model itself" for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{text} and {more} more" if more > 0 else text


def random_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Pairs of functions that read and set the state of each random number generator in use."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    # A program that did not import numpy cannot have drawn random numbers with it.
    numpy = sys.modules.get("numpy")
    if numpy:
        yield numpy.random.get_state, numpy.random.set_state
    # Leave CUDA's generators out if CUDA is not in use, because reading their state would
    # initialise CUDA.
    uses_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    if uses_cuda:
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


def equal_states(first: Any, second: Any) -> bool:
    """Whether two states of random number generators are equal, including nested tuples and
    arrays."""
    if isinstance(first, tuple | list):
        return all(map(equal_states, first, second))
    # Tensors and arrays are compared element by element.
    return bool((first == second).all() if hasattr(first, "shape") else first == second)


class SavedBuffer(NamedTuple):
    """A buffer of a module, with a copy of its content."""

    path: str
    module: torch.nn.Module
    name: str
    buffer: torch.Tensor
    copied: torch.Tensor

    def is_changed(self) -> bool:
        """Whether the buffer was replaced or its content has changed since the copy."""
        is_replaced = self.module._buffers.get(self.name) is not self.buffer
        return is_replaced or not torch.equal(self.buffer, self.copied)


class TrainingState:
    """A copy of a model's buffers and of the states of all random number generators."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.random = [(put, get()) for get, put in random_generators()]
        self.buffers: list[SavedBuffer] = []
        for module_path, module in model.named_modules():
            for name, buffer in module._buffers.items():
                # A registered buffer may be None.
                if buffer is not None:
                    path = f"{module_path}.{name}".lstrip(".")
                    copied = buffer.detach().clone()
                    self.buffers.append(SavedBuffer(path, module, name, buffer, copied))

    def restore(self) -> None:
        """Restore the buffers and random number generators to the saved state."""
        for put, state in self.random:
            put(state)
        for saved in self.buffers:
            # Put the saved tensor back first, because the module may have replaced it.
            saved.module._buffers[saved.name] = saved.buffer
            saved.buffer.data.copy_(saved.copied)

    def random_was_drawn(self) -> bool:
        """Whether random numbers were drawn since the state was saved."""
        # numpy may have been imported since, so the lists may differ in length.
        pairs = zip(self.random, random_generators(), strict=False)
        return not all(equal_states(before, get()) for (_, before), (get, _) in pairs)

    def changed_buffers(self) -> list[str]:
        """The paths of buffers that have changed since the copy, without BatchNorm's, which are
        reported separately."""
        return [
            saved.path
            for saved in self.buffers
            # BatchNorm does not update its statistics in evaluation mode.
            if not (isinstance(saved.module, BATCH_NORM) and saved.module.training)
            and saved.is_changed()
        ]


class Undo:
    """Saves gradients, random states and buffers before the attempts to train a batch, so that a
    failed one can be undone.

    Gradients from before are set aside, so that the gradients of a failed attempt can be dropped.
    The states of the random number generators (torch, Python, numpy) and the buffers are restored.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in self.parameters:
            # A hook that runs after a gradient is accumulated may run an optimizer step, which
            # cannot be undone.
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise UsageError(
                    "A hook changes the gradients during the backward pass (perhaps an optimizer)",
                    hint="gpusetup could not undo it if memory runs out half-way",
                )
        self.state = TrainingState(model)
        self._saved_gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def check_leaves(self, loss: torch.Tensor) -> None:
        """Raise UsageError if the loss trains tensors that are not parameters of the model."""
        held_ids = {id(parameter) for parameter in self.parameters}
        for leaf in trained_leaves(loss):
            # Refuse other tensors, because gpusetup could not undo their gradients.
            if id(leaf) not in held_ids:
                raise UsageError(
                    "The loss trains parameters that are not in the model",
                    hint="pass all trained modules: `model=torch.nn.ModuleList([model, head])`",
                )

    def backward(self, backward: Callable[[torch.Tensor], None], loss: torch.Tensor) -> None:
        """Run a backward pass; UsageError if it changes parameters, because they would then be
        updated once per part instead of once per batch."""
        before = [parameter._version for parameter in self.parameters]
        backward(loss)
        if before != [parameter._version for parameter in self.parameters]:
            raise UsageError(
                "`backward` changes the parameters (perhaps by an optimizer step)",
                hint="call `optimizer.step()` after `recover_from_oom`, once for the batch",
            )

    def rescale(self, factor: float) -> None:
        """Multiply all accumulated gradients by a factor."""
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def reset(self) -> None:
        """Undo a failed attempt: free memory, drop its gradients, and restore random states and
        buffers."""
        for parameter in self.parameters:
            parameter.grad = None
        self.state.restore()
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    @contextmanager
    def preserved_state(self) -> Iterator[None]:
        """A context manager that restores buffers and random states to what they were on entry."""
        now = TrainingState(self._model)
        try:
            yield
        finally:
            now.restore()

    def restore(self) -> None:
        """Undo everything, so that gradients, random states and buffers are as before the call."""
        self.reset()
        for parameter, gradient in zip(self.parameters, self._saved_gradients, strict=True):
            parameter.grad = gradient

    def commit(self) -> None:
        """Keep the new gradients and add them to those from before the call, as autograd would have
        done."""
        for parameter, previous in zip(self.parameters, self._saved_gradients, strict=True):
            if previous is None:
                continue
            # A parameter that this batch did not use has no new gradient.
            if parameter.grad is not None:
                previous.add_(parameter.grad)
            parameter.grad = previous
