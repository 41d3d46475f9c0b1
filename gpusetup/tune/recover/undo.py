"""What one call of the recovery may leave behind, how it is taken back, and how ranks agree.

An attempt runs without synchronisation, so that a rank that runs out of memory leaves no other one
waiting in DDP's all-reduce. Then every rank says whether it succeeded, and only if all did are
the gradients averaged, as DDP would have done it.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from gpusetup.errors import UsageError
from gpusetup.tune.recover.parts import NORMS


def leaves_of(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a backward of this loss gives a gradient."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [one for one, _ in node.next_functions]
            if isinstance(variable := getattr(node, "variable", None), torch.Tensor):
                yield variable


def named(names: list[str]) -> str:
    shown = ", ".join(name or "the model itself" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


class Buffers:
    """A model's buffers as they are, with copies of their numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.rows = [
            (f"{path}.{name}".lstrip("."), module, name, buffer, buffer.detach().clone())
            for path, module in model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def put_back(self) -> None:
        for _, module, name, buffer, copied in self.rows:
            module._buffers[name] = buffer
            buffer.data.copy_(copied)

    def changed(self) -> list[str]:
        """Those that are not what they were, but for BatchNorm's, of which something else is
        said."""
        return [
            path
            for path, module, name, buffer, copied in self.rows
            if not (isinstance(module, NORMS) and module.training)
            and (module._buffers.get(name) is not buffer or not torch.equal(buffer, copied))
        ]


def generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """How the state of each generator of random numbers is read and set."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.get_state, numpy.random.set_state
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


def same(one: Any, two: Any) -> bool:
    """Whether two states are equal, with all that is in them."""
    if isinstance(one, tuple | list):
        return all(map(same, one, two))
    return bool((one == two).all()) if hasattr(one, "shape") else one == two


class Randomness:
    """The state of torch's CPU and CUDA generators, of Python, and of numpy where it is in use."""

    def __init__(self) -> None:
        self.kept = [(put, get()) for get, put in generators()]

    def moved(self) -> bool:
        return not all(same(*pair) for pair in zip(self.kept, Randomness().kept, strict=False))

    def put_back(self) -> None:
        for put, state in self.kept:
            put(state)


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
                "A hook works on the gradients during the backward (an optimizer in it?)",
                hint="out of memory half-way through could not be taken back",
            )
        self.buffers, self._random, self.random_moved = Buffers(model), Randomness(), False
        self._aside = [one.grad for one in self.parameters]
        for one in self.parameters:
            one.grad = None

    def check(self, loss: torch.Tensor) -> None:
        """Refuse a loss that gives a gradient to what the model does not hold."""
        known = {id(one) for one in self.parameters}
        if any(id(one) not in known for one in leaves_of(loss)):
            raise UsageError(
                "The loss trains parameters that are not in the model",
                hint="put all of them into it: `model=torch.nn.ModuleList([model, head])`",
            )

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

    def rescale(self, factor: float) -> None:
        """Multiply what the parts have gathered."""
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def look_at_random(self) -> None:
        """Whether an attempt has drawn random numbers."""
        self.random_moved |= self._random.moved()

    def attempt(self) -> None:
        """Take back a failed attempt: memory, gradients, random numbers, statistics."""
        for parameter in self.parameters:
            parameter.grad = None
        self._random.put_back()
        self.buffers.put_back()
        torch.clear_autocast_cache()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    @contextmanager
    def as_now(self) -> Iterator[None]:
        """Buffers and random numbers are afterwards what they are now."""
        now, buffers = Randomness(), Buffers(self._model)
        try:
            yield
        finally:
            now.put_back()
            buffers.put_back()

    def everything(self) -> None:
        """As it was before the call."""
        self.attempt()
        for parameter, grad in zip(self.parameters, self._aside, strict=True):
            parameter.grad = grad

    def nothing(self) -> None:
        """It worked: what was set aside is added, in place, as autograd would have done."""
        for parameter, grad in zip(self.parameters, self._aside, strict=True):
            if grad is not None:
                if parameter.grad is not None:
                    grad.add_(parameter.grad)
                parameter.grad = grad


# --- several ranks ------------------------------------------------------------------------------

DDP = torch.nn.parallel.DistributedDataParallel


def ddp_of(model: torch.nn.Module) -> Any:
    """The DDP that trains a model: itself or inside of it; None without ranks. Refuses what
    synchronises elsewhere than in DDP's backward."""
    inside = [one for one in model.modules() if isinstance(one, DDP)]
    others = [one for one in model.modules() if hasattr(one, "_orig_mod")]
    kinds = " ".join(type(one).__name__ for one in model.modules() if one.training)
    ranks = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    refused = (
        ("FullyShardedDataParallel" in kinds or "FSDP" in kinds,
         "FSDP gathers parameters in every forward: ranks cannot split on their own",
         "`gpusetup plan` finds a recipe that fits"),
        ("SyncBatchNorm" in kinds,
         "SyncBatchNorm synchronises in its forward: ranks cannot split on their own",
         "use a smaller batch and gradient accumulation"),
        (ranks and len(inside) != 1,
         f"The model holds {len(inside)} DistributedDataParallel ones, and several ranks train",
         "give the one that trains it, not what it wraps"),
        (any(inside[0] in one.modules() for one in others if inside),
         "torch.compile is around DistributedDataParallel: its ranks cannot split alone",
         "compile inside: DistributedDataParallel(torch.compile(model))"),
        (any(one.static_graph or getattr(one, "_comm_hooks", ()) for one in inside),
         "DistributedDataParallel with static_graph=True or a communication hook expects one"
         " backward for each batch", "leave them out"),
    )  # fmt: skip
    for wrong, said, hint in refused:
        if wrong:
            raise UsageError(said, hint=hint)
    return inside[0] if inside else None


class Ranks:
    """The ranks that train with a DDP model; without one (None) there is one rank."""

    def __init__(self, ddp: Any) -> None:
        self._ddp: Any = ddp
        if ddp is not None:
            self._group, self._synchronises = ddp.process_group, ddp.require_backward_grad_sync
            self._trained = [one for one in ddp.parameters() if one.requires_grad]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing is synchronised while it lasts: DDP's `no_sync`; the buffers that its forward
        would broadcast are sent before it."""
        ddp = self._ddp
        if ddp is None:
            yield
            return
        before = ddp.require_forward_param_sync
        if before and ddp.broadcast_buffers:
            first = dist.get_global_rank(self._group, 0)
            for buffer in ddp.module.buffers():
                dist.broadcast(buffer.detach(), first, group=self._group)
        ddp.require_forward_param_sync = False
        try:
            with ddp.no_sync():
                yield
        finally:
            ddp.require_forward_param_sync = before

    def agreed(self, *, failed: bool) -> int:
        """How many ranks failed; waits until all have said so."""
        return sum(self._sums([failed])) if self._ddp is not None else int(failed)

    def _sums(self, numbers: list[bool]) -> list[int]:
        """Each number, added up over the ranks."""
        device = next(self._ddp.parameters()).device
        told = torch.tensor(numbers, dtype=torch.int32, device=device)
        dist.all_reduce(told, group=self._group)
        return [int(one) for one in told.tolist()]

    def average(self) -> None:
        """The mean of the gradients over the ranks, where this backward was to synchronise; of
        parameters that only other ranks used too."""
        if self._ddp is None or not self._synchronises:
            return
        used = self._sums([one.grad is not None for one in self._trained])
        for one, count in zip(self._trained, used, strict=True):
            if count:
                one.grad = torch.zeros_like(one) if one.grad is None else one.grad
                dist.all_reduce(one.grad, group=self._group)
                one.grad.div_(dist.get_world_size(self._group))
