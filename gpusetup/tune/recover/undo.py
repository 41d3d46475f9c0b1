"""Undoes the side effects of a training attempt that ran out of memory."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gpusetup.errors import UsageError

BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm


def random_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Pairs of functions that read and set the state of each random number generator in use."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    # A program that did not import numpy cannot have drawn random numbers with it.
    numpy = sys.modules.get("numpy")
    if numpy:
        yield numpy.random.get_state, numpy.random.set_state
    # Reading the state of CUDA's generators would initialise CUDA.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


class Undo:
    """Saves gradients, random states and buffers before the attempts to train a batch, so that a
    failed one can be undone.

    Gradients from before are set aside, so that the gradients of a failed attempt can be dropped.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._random = [(put, get()) for get, put in random_generators()]
        # A registered buffer may be None.
        self._buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._saved_gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def check_leaves(self, loss: torch.Tensor) -> None:
        """Raise UsageError if the loss trains tensors that are not parameters of the model, whose
        gradients could not be undone."""
        held_ids = {id(parameter) for parameter in self.parameters}
        waiting, visited = [loss.grad_fn], set()
        while waiting:
            node = waiting.pop()
            # Inputs that need no gradient have no node.
            if node is None or node in visited:
                continue
            visited.add(node)
            waiting += [next_node for next_node, _ in node.next_functions]
            # Only nodes that accumulate the gradient of a leaf have a variable.
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor) and id(leaf) not in held_ids:
                raise UsageError(
                    "The loss trains parameters that are not in the model",
                    hint="pass all trained modules: `model=torch.nn.ModuleList([model, head])`",
                )

    def backward(self, backward: Callable[[torch.Tensor], None], loss: torch.Tensor) -> None:
        """Run a backward pass; UsageError if it or a hook changes parameters, because they would
        then be updated once per part instead of once per batch, and could not be undone."""
        before = [parameter._version for parameter in self.parameters]
        try:
            backward(loss)
        finally:
            if before != [parameter._version for parameter in self.parameters]:
                raise UsageError(
                    "The backward pass changes the parameters (perhaps by an optimizer step)",
                    hint="call `optimizer.step()` after `recover_from_oom`, once for the batch",
                )

    def reset(self) -> None:
        """Undo a failed attempt: drop its gradients, free its memory, and restore random states and
        buffers."""
        for parameter in self.parameters:
            parameter.grad = None
        for put, state in self._random:
            put(state)
        for module, name, buffer, copied in self._buffers:
            # Put the saved tensor back first, because the module may have replaced it.
            module._buffers[name] = buffer
            buffer.data.copy_(copied)
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

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
