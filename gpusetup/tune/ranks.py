"""How the ranks of a DistributedDataParallel training agree before any collective.

An attempt runs without synchronisation, so that a rank that runs out of memory leaves no other one
waiting in an all-reduce. Then every rank says through the store whether it succeeded, and only
where all did are the gradients averaged, as DDP would have done it.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gpusetup.errors import UsageError

BUCKET_BYTES = 25 << 20
"""How much is averaged in one all-reduce: DDP's own default."""


class Ranks(Protocol):
    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, nothing is synchronised."""
        ...

    def failed(self) -> None:
        """Tell the others that this rank gives up; waits for nobody."""
        ...

    def succeeded(self) -> int:
        """How many ranks failed; waits until all have said so."""
        ...

    def average(self) -> None:
        """The mean of the gradients over the ranks, where this backward was to synchronise."""
        ...


def ranks_of(model: torch.nn.Module) -> Ranks:
    """Of a DDP model; of any other model there is one. Refuses what synchronises in its forward."""
    for module in model.modules():
        kind = type(module).__name__
        if "FullyShardedDataParallel" in kind or kind.startswith("FSDP"):
            raise UsageError(
                "FSDP gathers parameters in every forward: ranks cannot split on their own",
                hint="`gpusetup plan` finds a recipe that fits",
            )
        if isinstance(module, torch.nn.SyncBatchNorm) and module.training:
            raise UsageError(
                "SyncBatchNorm synchronises in its forward: ranks cannot split on their own",
                hint="use a smaller batch and gradient accumulation",
            )
    found = _ddp_of(model)
    return Alone() if found is None else Together(found)


DDP = torch.nn.parallel.DistributedDataParallel
AROUND: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Any] | None] = (
    weakref.WeakKeyDictionary()
)
"""A model without DDP in it -> the DDP that was found around it."""


def _ddp_of(model: torch.nn.Module) -> Any:
    """The DDP that trains a model: itself, inside of it, or around it (`.module` was given)."""
    inside = [one for one in model.modules() if isinstance(one, DDP)]
    if len(inside) > 1:
        raise UsageError(
            "The model holds several DistributedDataParallel ones",
            hint="recover each on its own, or wrap all of them in one",
        )
    compiled = [one for one in model.modules() if hasattr(one, "_orig_mod")]
    if inside and any(inside[0] in one.modules() for one in compiled):
        raise UsageError(
            "torch.compile stands around DistributedDataParallel: its ranks cannot split alone",
            hint="compile inside: DistributedDataParallel(torch.compile(model))",
        )
    found = inside[0] if inside else _around(model)
    if found is not None and found.static_graph:
        raise UsageError(
            "DistributedDataParallel with static_graph=True expects the same backward every time",
            hint="leave static_graph out",
        )
    return found


def _around(model: torch.nn.Module) -> Any:
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    known = AROUND.get(model)
    if known is None:
        all_of_them = [one for one in gc.get_objects() if isinstance(one, DDP)]
        found = next((one for one in all_of_them if model in one.modules()), None)
        known = AROUND[model] = weakref.ref(found) if found is not None else lambda: None  # type: ignore[assignment]
    return known() if known else None


class Alone:
    def alone(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def failed(self) -> None:
        return None

    def succeeded(self) -> int:
        return 0

    def average(self) -> None:
        return None


class Together:
    """The ranks of a DDP model."""

    rounds = 0
    """How many times ranks have agreed in this process; every rank counts alike."""

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        if getattr(model, "_comm_hooks", ()):  # an older torch keeps no list
            raise UsageError(
                "A communication hook changes how DDP averages gradients",
                hint="leave it out, or keep the batch small enough",
            )
        self._model = model
        self._group = model.process_group
        self._world = dist.get_world_size(self._group)
        self._synchronises = model.require_backward_grad_sync
        Together.rounds += 1
        self._round = f"gpusetup/oom/{Together.rounds}"
        self._store: Any = dist.distributed_c10d._get_default_store()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """DDP's `no_sync`; the buffers that its forward would broadcast are sent before it."""
        model = self._model
        before = model.require_forward_param_sync
        if before and model.broadcast_buffers:
            self._send_buffers()
        model.require_forward_param_sync = False
        try:
            with model.no_sync():
                yield
        finally:
            model.require_forward_param_sync = before

    def _send_buffers(self) -> None:
        first = dist.get_global_rank(self._group, 0)
        for buffer in self._model.module.buffers():
            dist.broadcast(buffer.detach(), first, group=self._group)

    def failed(self) -> None:
        self._say(1)
        self._leave()

    def succeeded(self) -> int:
        self._say(0)
        self._store.wait([f"{self._round}/all"])
        failed = int(self._store.get(f"{self._round}/all"))
        self._leave()
        return failed

    def _say(self, failed: int) -> None:
        """The last to speak writes down how many failed."""
        self._store.add(f"{self._round}/failed", failed)
        if self._store.add(f"{self._round}/said", 1) == self._world:
            count = self._store.add(f"{self._round}/failed", 0)
            self._store.set(f"{self._round}/all", str(count))

    def _leave(self) -> None:
        """The last to leave wipes the keys."""
        if self._store.add(f"{self._round}/left", 1) == self._world:
            for name in ("failed", "said", "all", "left"):
                self._store.delete_key(f"{self._round}/{name}")

    def average(self) -> None:
        if not self._synchronises:
            return
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        for bucket in _buckets(self._used(parameters)):
            grads = [_grad(p) for p in bucket]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            dist.all_reduce(flat, group=self._group)
            flat.div_(self._world)
            parts = flat.split([grad.numel() for grad in grads])
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.view_as(grad))

    def _used(self, parameters: Sequence[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
        """Those that any rank has a gradient for."""
        if not parameters:
            return []
        used = torch.tensor(
            [p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device
        )
        dist.all_reduce(used, group=self._group)
        return [p for p, count in zip(parameters, used.tolist(), strict=True) if count]


def _grad(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Its gradient; zeros where only other ranks used it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Parameters of one kind and device whose gradients travel together."""
    bucket: list[torch.nn.Parameter] = []
    size = 0
    for parameter in parameters:
        alike = not bucket or _kind(bucket[0]) == _kind(parameter)
        if bucket and (not alike or size >= BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel() * parameter.element_size()
    if bucket:
        yield bucket


def _kind(parameter: torch.nn.Parameter) -> tuple[Any, Any]:
    return parameter.dtype, parameter.device
