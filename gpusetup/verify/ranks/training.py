"""Training on several ranks against the same steps on one process: one table of ways to share it.

The one process computes what all ranks compute, one after the other.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

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
    hidden: int = 47
    """The width between the layers; the usual one can be shared out evenly nowhere."""
    group: str = "world"
    turns: int = 1
    """Backward passes a step, of which the last one exchanges."""
    kind: str = "float64"
    limit: float = TOLERANCE
    whole: bool = False
    """Whether a rank is given the rows of all."""


def net(form: Form, world: int, seed: int) -> Any:
    torch.manual_seed(seed)
    hidden = form.hidden * world if form.whole else form.hidden
    between = (nn.Tanh(), nn.LayerNorm(hidden)) if not form.whole else (nn.GELU(),)
    made = nn.Sequential(nn.Linear(WIDTH, hidden), *between, nn.Linear(hidden, OUT))
    return made.to(getattr(torch, form.kind))


# --- ways to share --------------------------------------------------------------------------------


def ddp(model: Any, group: Group, members: Members, **options: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    ids = [group.device] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model, ids, process_group=members.handle, **options)


def mesh_of(group: Group) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(group.device.partition(":")[0], (group.world,))


def fsdp(model: Any, group: Group, members: Members, narrow: bool = False) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh, policy = mesh_of(group), MixedPrecisionPolicy()
    if narrow:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def tensor_parallel(model: Any, group: Group, members: Members) -> Any:
    """The first layer split by columns, the last one by rows."""
    from torch.distributed.tensor import parallel

    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    return parallel.parallelize_module(model, mesh_of(group), plan)


SMALL = {"bucket_cap_mb": 0.001}
FORMS: Dict[str, Dict[str, Form]] = {
    "ddp_step": {
        "plain": Form(ddp),
        "many buckets": Form(ddp, {"gradient_as_bucket_view": True, **SMALL}),
        "a large model": Form(ddp, hidden=130_001, kind="float32", limit=1e-4),
        "accumulated": Form(ddp, SMALL, turns=2),
        "in a sub-group": Form(ddp, SMALL, group="stripes"),
    },
    "fsdp_step": {
        "steps": Form(fsdp),
        "accumulated": Form(fsdp, turns=2),
        "in bfloat16": Form(fsdp, {"narrow": True}, kind="float32", limit=0.05),
    },
    "tp_step": {
        "columns and rows": Form(tensor_parallel, hidden=16, whole=True),
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
    for step in range(3 * form.turns):
        last = (step + 1) % form.turns == 0
        rows = [_rows(group, form, 1000 * step + rank) for rank in ranks]
        given = tuple(map(torch.cat, zip(*rows))) if form.whole else rows[members.me]
        if not own and form.turns > 1:
            ours.set_requires_gradient_sync(last)
        with contextlib.nullcontext() if last or not own else ours.no_sync():
            _loss(ours, given).backward()
        for each in rows:
            (_loss(alone, each) / len(ranks)).backward()
        if not last:
            continue
        found = gradients(model)
        said = apart(found, gradients(alone), form.limit)
        if said:
            return f"the gradient of {said} in step {step + 1}"
        bits.append(_bits(found))
        for each, optimizer in zip((ours, alone), both):
            nn.utils.clip_grad_norm_(each.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    if own:
        hold(members, name, bits)
    return apart(model.state_dict(), alone.state_dict(), form.limit)


def _rows(group: Group, form: Form, salt: int) -> Tuple[Any, Any]:
    """Inputs and targets of one rank."""
    maker = torch.Generator().manual_seed((asked().seed + salt) % 2**63)
    numbers = torch.randn(ROWS, WIDTH + OUT, generator=maker, dtype=torch.float64)
    inputs, targets = numbers.to(group.device, getattr(torch, form.kind)).split((WIDTH, OUT), 1)
    return inputs, targets


def _loss(model: Any, given: Tuple[Any, Any]) -> Any:
    return nn.functional.mse_loss(model(given[0]), given[1])


def whole(value: Any) -> Any:
    value = value.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def gradients(model: Any) -> Dict[str, Any]:
    return {name: value.grad for name, value in model.named_parameters()}


def _bits(found: Dict[str, Any]) -> int:
    return sum(signature(whole(value)) for value in found.values())


def apart(found: Dict[str, Any], exact: Dict[str, Any], limit: float) -> str:
    """What differs by more than rounding."""
    for name, value in exact.items():
        error = (whole(found[name]) - value).double().abs().max().item()
        error /= max(1.0, float(value.abs().max().item()))
        if not error <= limit:
            return f"{name} is off by {error:.2g} (limit {limit:g})"
    return ""
