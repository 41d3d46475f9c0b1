"""Training on several ranks against the same steps on one process: one table of ways to share it.

The one process computes what all ranks compute, one after the other.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..values import asked
from .group import Group, Members, Part, State, check, hold
from .numbers import signature

TOLERANCE = 1e-9
"""float64 sums in another order: about 1e-15 a step, far below what a lost gradient makes."""
ROWS, WIDTH, OUT = 8, 24, 8
"""Of the inputs that one rank computes, and of the outputs."""


class Form(NamedTuple):
    """A way to share a training."""

    share: Callable[..., Any]
    """What makes the model on these ranks of a net, the group, its members and the options."""
    options: Dict[str, Any] = {}
    net: str = "plain"
    group: str = "world"
    turns: int = 1
    """Backward passes a step, of which the last one exchanges."""
    clip: Optional[float] = None
    kind: str = "float64"
    limit: float = TOLERANCE
    rows: str = "own"
    """What a rank is given: its `own` rows; `all`; its own for an answer to all (`split`)."""
    steps: int = 4


def net(form: Form, world: int, seed: int) -> Any:
    """A net of one or several branches; called with the inputs and the branch's number."""
    torch.manual_seed(seed)

    class Branches(nn.Module):  # type: ignore[misc]
        def __init__(self, *ways: Any) -> None:
            super().__init__()
            self.ways = nn.ModuleList(ways)

        def forward(self, inputs: Any, way: int) -> Any:
            return self.ways[way % len(self.ways)](inputs)

    def mixed(hidden: int, *between: Any) -> Any:
        return nn.Sequential(nn.Linear(WIDTH, hidden), *between, nn.Linear(hidden, OUT))

    # Of the plain one no length can be shared out evenly; the large one fills several buckets.
    made = {
        "plain": lambda: mixed(47, nn.Tanh(), nn.LayerNorm(47)),
        "large": lambda: mixed(130_001, nn.Tanh()),
        "block": lambda: mixed(16 * world, nn.GELU()),
        # Its values are those of the last rows alone.
        "batch norm": lambda: nn.Sequential(
            nn.BatchNorm1d(WIDTH, 1e-5, 1.0), nn.Linear(WIDTH, OUT)
        ),
    }
    names = ["plain"] * 3 if form.net == "branches" else [form.net]
    return Branches(*(made[name]() for name in names)).to(getattr(torch, form.kind))


# --- ways to share --------------------------------------------------------------------------------


def ddp(model: Any, group: Group, members: Members, **options: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    ids = [group.device] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model, ids, process_group=members.handle, **options)


def mesh_of(group: Group) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(group.device.partition(":")[0], (group.world,))


def fsdp(model: Any, group: Group, members: Members, **options: Any) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if options.pop("narrow", False):
        narrow = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        options["mp_policy"] = narrow
    mesh = mesh_of(group)
    for layer in model.ways[0]:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def tensor_parallel(model: Any, group: Group, members: Members, inputs: str = "") -> Any:
    """The first layer split by columns (the inputs too, or not), the last one by rows."""
    from torch.distributed.tensor import Replicate, Shard, parallel

    layout = Shard(0) if inputs == "split" else Replicate()
    rows = parallel.RowwiseParallel(output_layouts=Replicate())
    plan = {"ways.0.0": parallel.ColwiseParallel(input_layouts=layout), "ways.0.2": rows}
    return parallel.parallelize_module(model, mesh_of(group), plan)


SMALL = {"bucket_cap_mb": 0.01}
FORMS: Dict[str, Dict[str, Form]] = {
    "ddp_step": {
        "plain": Form(ddp, clip=0.5),
        "many buckets": Form(ddp, {"bucket_cap_mb": 0.001}),
        "buckets as views": Form(ddp, {"gradient_as_bucket_view": True, **SMALL}),
        "float32": Form(ddp, SMALL, kind="float32", limit=1e-4),
        "bfloat16": Form(ddp, kind="bfloat16", limit=0.1),
        "a large model": Form(ddp, net="large", kind="float32", limit=1e-4, steps=2),
        "accumulated": Form(ddp, SMALL, turns=2),
        "unused parameters": Form(ddp, {"find_unused_parameters": True, **SMALL}, "branches"),
        "batch norm's values": Form(ddp, net="batch norm"),
        "in a sub-group": Form(ddp, SMALL, group="stripes"),
    },
    "fsdp_step": {
        "steps": Form(fsdp),
        "kept after forward": Form(fsdp, {"reshard_after_forward": False}),
        "clipped": Form(fsdp, clip=0.5),
        "accumulated": Form(fsdp, turns=2),
        "in bfloat16": Form(fsdp, {"narrow": True}, kind="float32", limit=0.05),
    },
    "tp_step": {
        "columns and rows": Form(tensor_parallel, net="block", rows="all"),
        "sequence parallel": Form(tensor_parallel, {"inputs": "split"}, "block", rows="split"),
    },
}
"""Check -> the ways that it tries."""


def _forms(name: str, group: Group) -> List[Part]:
    return [(form, partial(_trained, group, row, form)) for form, row in FORMS[name].items()]


ddp_step = check("ddp_step", partial(_forms, "ddp_step"))
fsdp_step = check("fsdp_step", partial(_forms, "fsdp_step"))
tp_step = check("tp_step", partial(_forms, "tp_step"))


# --- steps ----------------------------------------------------------------------------------------


def _trained(group: Group, form: Form, name: str) -> str:
    """Steps on the ranks and on one process; where they part.

    Each rank of DDP starts with parameters of its own: those of the first one count.
    """
    members = State.groups[form.group]
    ranks, own = members.ranks, form.share is ddp
    seeds = (group.rank if own else ranks[0], ranks[0])
    model, alone = (net(form, group.world, seed).to(group.device) for seed in seeds)
    ours = form.share(model, group, members, **form.options)
    both = [torch.optim.SGD(each.parameters(), lr=0.3) for each in (ours, alone)]
    bits = [_bits(model.state_dict())]  # of parameters at the start and of exchanged gradients
    for step in range(form.steps * form.turns):
        last = (step + 1) % form.turns == 0
        rows = [_rows(group, form, 1000 * step + rank) for rank in ranks]
        every = tuple(map(torch.cat, zip(*rows)))
        mine = rows[members.me]
        given = {"own": mine, "all": every, "split": (mine[0], every[1])}[form.rows]
        if not own and form.turns > 1:
            ours.set_requires_gradient_sync(last)
        with contextlib.nullcontext() if last or not own else ours.no_sync():
            _loss(ours, given, step and step + group.rank).backward()
        for rank, each in list(zip(ranks, rows))[::-1]:  # the first rank's buffers count
            (_loss(alone, each, step and step + rank) / len(ranks)).backward()
        if not last:
            continue
        found = gradients(model)
        said = apart(found, gradients(alone), form.limit)
        if said:
            return f"the gradient of {said} in step {step + 1}"
        bits.append(_bits(found))
        for each, optimizer in zip((ours, alone), both):
            if form.clip is not None:
                nn.utils.clip_grad_norm_(each.parameters(), form.clip)
            optimizer.step()
            optimizer.zero_grad()
    ours.eval()(given[0], 0)  # DDP sends the values of the first rank's buffers
    said = apart(model.state_dict(), alone.state_dict(), form.limit)
    if own:
        hold(members, name, bits)
    return said


def _rows(group: Group, form: Form, salt: int) -> Tuple[Any, Any]:
    """Inputs and targets of one rank."""
    maker = torch.Generator().manual_seed((asked().seed + salt) % 2**63)
    numbers = torch.randn(ROWS, WIDTH + OUT, generator=maker, dtype=torch.float64)
    inputs, targets = numbers.to(group.device, getattr(torch, form.kind)).split((WIDTH, OUT), 1)
    return inputs, targets


def _loss(model: Any, given: Tuple[Any, Any], way: int) -> Any:
    return nn.functional.mse_loss(model(given[0], way), given[1])


def whole(value: Any) -> Any:
    value = value.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def gradients(model: Any) -> Dict[str, Any]:
    """Of every parameter; 0 where there is none."""
    return {
        name: torch.zeros_like(value) if value.grad is None else value.grad
        for name, value in model.named_parameters()
    }


def _bits(found: Dict[str, Any]) -> int:
    return sum(signature(whole(value)) for value in found.values())


def apart(found: Dict[str, Any], exact: Dict[str, Any], limit: float) -> str:
    """What differs by more than rounding."""
    for name, value in exact.items():
        if not value.is_floating_point():
            continue
        error = (whole(found[name]) - value).double().abs().max().item()
        error /= max(1.0, float(value.abs().max().item()))
        if not error <= limit:
            return f"{name} is off by {error:.2g} (limit {limit:g})"
    return ""
