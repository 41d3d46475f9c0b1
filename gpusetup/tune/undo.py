"""What one call of the recovery may leave behind, and how it is taken back."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpusetup.errors import UsageError

NORMS = torch.nn.modules.batchnorm._BatchNorm
OUTSIDE: weakref.WeakKeyDictionary[torch.nn.Module, list[weakref.ref[torch.Tensor]]] = (
    weakref.WeakKeyDictionary()
)
"""Model -> the tensors outside of it that its losses gave a gradient; absent: not looked yet."""


def leaves_of(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a backward of this loss gives a gradient."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            yield variable
        waiting += [one for one, _ in node.next_functions]


def named(names: list[str]) -> str:
    shown = ", ".join(name or "the model itself" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


class Undo:
    """Gradients, random numbers and buffers around the attempts of one batch.

    Gradients that are there already are set aside, so that an attempt that fails half-way can be
    dropped, also those of parameters outside the model; random numbers (torch's, Python's, numpy's)
    go back to where they were; of the buffers, those of BatchNorm are copied, those assigned anew
    are put back, and any other that an attempt changed makes it refuse to go on.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        known = [one for ref in OUTSIDE.get(model, ()) if (one := ref()) is not None]
        if model in OUTSIDE:
            OUTSIDE[model] = [weakref.ref(one) for one in known]
        self.parameters = [p for p in model.parameters() if p.requires_grad] + known
        self._refuse_hooks(self.parameters)
        norms = [m for m in model.modules() if isinstance(m, NORMS) and m.training]
        kept = {id(b): b for norm in norms for b in norm.buffers(recurse=False)}
        self._copies = [(buffer, buffer.detach().clone()) for buffer in kept.values()]
        self._others = [
            (f"{path}.{name}".lstrip("."), module, name, buffer, buffer._version)
            for path, module in model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and id(buffer) not in kept
        ]
        self.random_moved = False

    def _refuse_hooks(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters:
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise UsageError(
                    "A hook works on the gradients during the backward (an optimizer in it?)",
                    hint="out of memory half-way through could not be taken back",
                )

    def __enter__(self) -> Undo:
        self._aside = [p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        self._random = _random_state()
        return self

    def __exit__(self, *how: object) -> None:
        """Nothing: `everything` or `nothing` has been called."""

    def outside(self, loss: torch.Tensor) -> None:
        """Take parameters outside the model under the same care, before the backward."""
        known = {id(p) for p in self.parameters}
        found = [one for one in leaves_of(loss) if id(one) not in known]
        self._refuse_hooks(found)
        OUTSIDE.setdefault(self._model, []).extend(weakref.ref(one) for one in found)
        for one in found:
            self.parameters.append(one)
            self._aside.append(one.grad)
            one.grad = None

    @contextmanager
    def steps_refused(self) -> Iterator[None]:
        """A backward only gathers gradients; one that steps would step once for each part."""
        before = [parameter._version for parameter in self.parameters]
        yield
        if before != [parameter._version for parameter in self.parameters]:
            raise UsageError(
                "`backward` changes the parameters (a step of the optimizer?)",
                hint="call `optimizer.step()` after `recover_from_oom`, once for the batch",
            )

    def looked_outside(self) -> bool:
        return self._model in OUTSIDE

    def rescale(self, factor: float) -> None:
        """Multiply what the parts have gathered."""
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def look_at_random(self) -> None:
        """Whether an attempt has drawn random numbers."""
        self.random_moved |= not _same(_random_state(), self._random)

    def attempt(self) -> None:
        """Take back a failed attempt: memory, gradients, random numbers, statistics."""
        for parameter in self.parameters:
            parameter.grad = None
        _set_random_state(self._random)
        self.buffers()
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def buffers(self) -> None:
        """Statistics of BatchNorm, and buffers that were assigned anew."""
        with torch.no_grad():
            for buffer, copy in self._copies:
                buffer.copy_(copy)
        for _, module, name, buffer, _ in self._others:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer

    @contextmanager
    def as_now(self) -> Iterator[None]:
        """Buffers and random numbers are afterwards what they are now."""
        now = _random_state()
        held = [(module, name, module._buffers.get(name)) for _, module, name, _, _ in self._others]
        copies = [None if one is None else one.detach().clone() for _, _, one in held]
        try:
            yield
        finally:
            _set_random_state(now)
            with torch.no_grad():
                for (module, name, buffer), copy in zip(held, copies, strict=True):
                    if buffer is not None and copy is not None and not _equal(buffer, copy):
                        buffer.copy_(copy)
                    module._buffers[name] = buffer

    def changed_buffers(self) -> list[str]:
        """Those other than BatchNorm's that are not what they were."""
        return [
            path
            for path, module, name, buffer, version in self._others
            if module._buffers.get(name) is not buffer or buffer._version != version
        ]

    def what_cannot_be_undone(self) -> list[str]:
        changed = [
            path for path, _, _, buffer, version in self._others if buffer._version != version
        ]
        return (
            [f"buffers were changed that we have no copy of ({named(changed)})"] if changed else []
        )

    def everything(self) -> None:
        """As it was before the call."""
        self.attempt()
        for parameter, grad in zip(self.parameters, self._aside, strict=True):
            parameter.grad = grad

    def nothing(self) -> None:
        """It worked: what was set aside is added, in place, as autograd would have done."""
        for parameter, grad in zip(self.parameters, self._aside, strict=True):
            if grad is None:
                continue
            if parameter.grad is not None:
                grad.add_(parameter.grad)
            parameter.grad = grad


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))


def _random_state() -> tuple[Any, ...]:
    """Of torch's CPU and CUDA generators, of Python, and of numpy where it is in use."""
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    cuda = tuple(torch.cuda.get_rng_state_all()) if used else ()
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), cuda, random.getstate(),
            numpy.random.get_state(legacy=True) if numpy else None)  # fmt: skip


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return (
        torch.equal(one[0], other[0])
        and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=False))
        and one[2] == other[2]
        and (one[3] is None or other[3] is None or _same_numpy(one[3], other[3]))
    )


def _same_numpy(one: Any, other: Any) -> bool:
    """Its state: a name, an array of words, a position, and the next Gaussian number."""
    return bool((one[1] == other[1]).all()) and one[2:] == other[2:]


def _set_random_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(list(state[1]))
    random.setstate(state[2])
    numpy = sys.modules.get("numpy")
    if numpy and state[3] is not None:
        numpy.random.set_state(state[3])
