"""What one call of the recovery may leave behind, and how it is taken back."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpusetup.errors import UsageError
from gpusetup.tune.recover.parts import BATCH_NORM


def trained_leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a backward of this loss gives a gradient."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [one for one, _ in node.next_functions]
            if isinstance(variable := getattr(node, "variable", None), torch.Tensor):
                yield variable


def listed(names: list[str]) -> str:
    shown = ", ".join(name or "the model itself" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def random_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """How the state of each generator of random numbers is read and set."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.get_state, numpy.random.set_state
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


def equal_states(one: Any, two: Any) -> bool:
    """Whether two states are equal, with all that is in them."""
    if isinstance(one, tuple | list):
        return all(map(equal_states, one, two))
    return bool((one == two).all()) if hasattr(one, "shape") else one == two


class TrainingState:
    """A model's buffers, and the generators of random numbers, as they are."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.random = [(put, get()) for get, put in random_generators()]
        self.buffers = [
            (f"{path}.{name}".lstrip("."), module, name, buffer, buffer.detach().clone())
            for path, module in model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        for put, state in self.random:
            put(state)
        for _, module, name, buffer, copied in self.buffers:
            module._buffers[name] = buffer
            buffer.data.copy_(copied)

    def random_was_drawn(self) -> bool:
        """Whether random numbers were drawn since."""
        now = [get() for get, _ in random_generators()]
        return not all(
            equal_states(one, two) for (_, one), two in zip(self.random, now, strict=False)
        )

    def changed_buffers(self) -> list[str]:
        """The buffers that are not what they were, but for BatchNorm's, of which something else
        is said."""
        return [
            path
            for path, module, name, buffer, copied in self.buffers
            if not (isinstance(module, BATCH_NORM) and module.training)
            and (module._buffers.get(name) is not buffer or not torch.equal(buffer, copied))
        ]


class Undo:
    """Gradients, random numbers and buffers around the attempts of one batch.

    Gradients that are there already are set aside, so that an attempt that fails half-way can be
    dropped; random numbers (torch's, Python's, numpy's) and buffers go back to what they were.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.parameters = [one for one in model.parameters() if one.requires_grad]
        if any(getattr(one, "_post_accumulate_grad_hooks", None) for one in self.parameters):
            raise UsageError(
                "A hook changes the gradients during the backward pass (perhaps an optimizer)",
                hint="gpusetup could not undo it if memory runs out half-way",
            )
        self.state = TrainingState(model)
        self._saved_gradients = [one.grad for one in self.parameters]
        for one in self.parameters:
            one.grad = None

    def check_leaves(self, loss: torch.Tensor) -> None:
        """Refuse a loss that gives a gradient to what the model does not hold."""
        known = {id(one) for one in self.parameters}
        if any(id(one) not in known for one in trained_leaves(loss)):
            raise UsageError(
                "The loss trains parameters that are not in the model",
                hint="pass all trained modules: `model=torch.nn.ModuleList([model, head])`",
            )

    def backward(self, backward: Callable[[torch.Tensor], None], loss: torch.Tensor) -> None:
        """Run a backward, and refuse one that changes the parameters: it would step for each
        part."""
        before = [parameter._version for parameter in self.parameters]
        backward(loss)
        if before != [parameter._version for parameter in self.parameters]:
            raise UsageError(
                "`backward` changes the parameters (perhaps by an optimizer step)",
                hint="call `optimizer.step()` after `recover_from_oom`, once for the batch",
            )

    def rescale(self, factor: float) -> None:
        """Multiply what the parts have gathered."""
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def reset(self) -> None:
        """Take back a failed attempt: memory, gradients, random numbers, statistics."""
        for parameter in self.parameters:
            parameter.grad = None
        self.state.restore()
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    @contextmanager
    def preserved_state(self) -> Iterator[None]:
        """Give buffers and random numbers their present state again afterwards."""
        now = TrainingState(self._model)
        try:
            yield
        finally:
            now.restore()

    def restore(self) -> None:
        """Take everything back, to what it was before the call."""
        self.reset()
        for parameter, grad in zip(self.parameters, self._saved_gradients, strict=True):
            parameter.grad = grad

    def commit(self) -> None:
        """Keep the gradients: add the previous ones, in place, as autograd would have done."""
        for parameter, grad in zip(self.parameters, self._saved_gradients, strict=True):
            if grad is not None:
                if parameter.grad is not None:
                    grad.add_(parameter.grad)
                parameter.grad = grad
