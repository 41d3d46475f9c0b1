"""Data parallel training in its other forms: branches, buffers, sub-groups, samplers."""

from __future__ import annotations

from typing import Any, Dict, Iterator

from ..values import Outcome, asked
from .group import Group, together
from .training import (
    Batch,
    apart,
    batch,
    batches_of,
    loss,
    net,
    steps,
    wrapped,
)
from .waiting import Part, told


def ddp_forms(device: str) -> Outcome:
    """Branches, buffers, a sub-group, a sampler."""
    return together("ddp_forms", lambda group: told(group, "ddp_forms", _forms(group)))


def _forms(group: Group) -> Iterator[Part]:
    yield "unused parameters", lambda: _branches(group)
    yield "batch norm's values", lambda: _buffers(group)
    yield "in a sub-group", lambda: _in_a_sub_group(group)
    yield "sampler", lambda: _sampled(group)


def _branches(group: Group) -> str:
    """In each step, and on each rank, another branch is used."""
    import torch

    class Branches(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.ways = torch.nn.ModuleList([net(torch, "cpu", 3 + way) for way in range(3)])

        def forward(self, inputs: Any, way: int) -> Any:
            return self.ways[way](inputs)

    model, alone = Branches().to(group.device), Branches().to(group.device)
    shared = wrapped(model, group, {"find_unused_parameters": True, "bucket_cap_mb": 0.01})
    for step in range(4):
        model.zero_grad()
        alone.zero_grad()
        ways = [(step + rank) % 3 if step else 0 for rank in range(group.world)]
        mine = batch(torch, group, step, group.rank, 1)
        torch.nn.functional.mse_loss(shared(mine.inputs, ways[group.rank]), mine.targets).backward()
        for rank, way in enumerate(ways):
            each = batch(torch, group, step, rank, 1)
            part = torch.nn.functional.mse_loss(alone(each.inputs, way), each.targets)
            (part / group.world).backward()
        said = apart(_or_zero(torch, model), _or_zero(torch, alone))
        if said:
            return f"{said} in step {step + 1}"
    return ""


def _or_zero(torch: Any, model: Any) -> Dict[str, Any]:
    return {
        name: torch.zeros_like(value) if value.grad is None else value.grad
        for name, value in model.named_parameters()
    }


def _buffers(group: Group) -> str:
    """Before each step the running values of rank 0 are sent to all."""
    import torch

    def made(seed: int) -> Any:
        torch.manual_seed(seed)
        norm = torch.nn.BatchNorm1d(24)
        norm.running_mean.normal_()
        return torch.nn.Sequential(norm, torch.nn.Linear(24, 8)).double().to(group.device)

    model, alone = made(3 + group.rank), made(3)
    shared = wrapped(model, group, {})
    for step in range(3):
        if step:
            model[0].running_mean += float(group.rank)
        first = batch(torch, group, step, 0, 1)
        alone[0].running_mean.copy_(alone[0].running_mean)
        mine = batch(torch, group, step, group.rank, 1)
        shared.eval()(mine.inputs)
        said = apart(
            {"running_mean": model[0].running_mean}, {"running_mean": alone[0].running_mean}
        )
        if said:
            return said
        loss(torch, shared.train(), mine).backward()
        alone.train()(first.inputs)
        if group.rank == 0:
            said = apart(
                {"running_mean": model[0].running_mean}, {"running_mean": alone[0].running_mean}
            )
        if said:
            return said
    return ""


def _in_a_sub_group(group: Group) -> str:
    """Each half trains a model of its own."""
    import torch

    from .scene import groups_of

    members = groups_of(group).of("stripes")
    model = net(torch, group.device, 7 + group.rank)
    shared = wrapped(model, group, {"process_group": members.handle, "bucket_cap_mb": 0.01})
    alone = net(torch, group.device, 7 + members.ranks[0])
    found = steps(torch, shared, batches_of(torch, group, group.rank, 1))
    rows = [[batch(torch, group, step, rank, 1) for rank in members.ranks] for step in range(4)]
    whole = [
        Batch(torch.cat([r.inputs for r in row]), torch.cat([r.targets for r in row]))
        for row in rows
    ]
    return apart(found, steps(torch, alone, whole))


def _sampled(group: Group) -> str:
    """The ranks' shares of a data set: each sample once, in another order each epoch."""
    import torch
    from torch.utils.data.distributed import DistributedSampler

    data = list(range(24 * group.world))
    orders = []
    for epoch in (0, 1):
        mine = DistributedSampler(data, group.world, group.rank, seed=asked().seed % 2**31)
        mine.set_epoch(epoch)
        share = torch.tensor(list(mine), device=group.device)
        shares = [torch.empty_like(share) for _ in range(group.world)]
        torch.distributed.all_gather(shares, share)
        everything = torch.cat(shares).tolist()
        if sorted(everything) != data:
            return "the ranks' shares overlap"
        orders.append(everything)
    return "an epoch repeats the order of the one before" if orders[0] == orders[1] else ""
