"""Data parallel training on the ranks against what one process gets from the whole batch.

The gradients are integers that every format holds exactly, so that a bucket which is left out, or
sent late, or taken from the step before, is off by far more than any rounding.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from ..values import Outcome, asked
from .group import Group, together
from .waiting import Part, told

TOLERANCE = 1e-9
"""float64 sums in another order: about 1e-15 a step, far below what a lost gradient makes."""


def ddp_step(device: str) -> Outcome:
    """DistributedDataParallel gives the parameters of one process with the whole batch."""
    return together("ddp_step", lambda group: told(group, "ddp_step", _ddp(group)))


def _ddp(group: Group) -> Iterator[Part]:
    for name, options in WRAPPED:
        yield f"exact gradients, {name}", partial(_exact, group, options)
    for name, options in WRAPPED:
        yield f"steps, {name}", partial(_stepped, group, options)
    yield "a large model", lambda: _exact(group, {}, LARGE)
    yield "accumulated", lambda: _accumulated(group)


WRAPPED: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ("plain", {}),
    ("many buckets", {"bucket_cap_mb": 0.001}),
    ("static graph", {"static_graph": True, "bucket_cap_mb": 0.01}),
    ("buckets as views", {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}),
    ("find unused", {"find_unused_parameters": True, "bucket_cap_mb": 0.01}),
)
STEPS = 4
SIZES: Tuple[Tuple[int, str], ...] = (
    *((1, "float32"), (3, "float32"), (1023, "float64"), (1025, "float32"), (257, "bfloat16")),
    *((4097, "float32"), (33, "float16"), (70_001, "float32"), (2, "float64"), (513, "float16")),
)
"""Elements and format of each parameter."""
LARGE: Tuple[Tuple[int, str], ...] = (
    (3_000_017, "float32"),
    (5, "float32"),
    (4_000_037, "float32"),
)
"""More than the first bucket (1 MiB) and the next one (25 MiB) hold."""


def wrapped(model: Any, group: Group, options: Dict[str, Any]) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    ids = [group.device] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model, device_ids=ids, **options)


def _exact(group: Group, options: Dict[str, Any], sizes: Any = SIZES) -> str:
    """The mean of the ranks' gradients, element by element, in each step."""
    import torch

    model = _weighted(torch, group, sizes)
    before = [value.detach().clone() for value in model.parameters()]
    shared = wrapped(model, group, options)
    for value, start in zip(model.parameters(), before):
        if not torch.equal(value.detach() - start, torch.full_like(start, -float(group.rank))):
            return "the parameters of rank 0 did not arrive at the start"
    for step in range(STEPS if sizes is SIZES else 2):
        model.zero_grad()
        shared(step, group.rank).backward()
        exact = [_mean(torch, group, step, place, size) for place, size in enumerate(sizes)]
        for place, (value, mean) in enumerate(zip(model.parameters(), exact)):
            if value.grad is None:
                return f"parameter {place} of {len(exact)} has no gradient in step {step + 1}"
            wrong = int((value.grad != mean).sum().item())
            if wrong:
                return f"{wrong} gradients of parameter {place} are wrong in step {step + 1}"
    return ""


def _weighted(torch: Any, group: Group, sizes: Any) -> Any:
    """A model whose gradients are the inputs; its parameters tell the rank."""

    class Weighted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made = [
                torch.full((size,), float(group.rank), dtype=getattr(torch, dtype))
                for size, dtype in sizes
            ]
            self.values = torch.nn.ParameterList([torch.nn.Parameter(each) for each in made])

        def forward(self, step: int, rank: int) -> Any:
            return sum(
                (value * _input(torch, group, step, place, size, rank)).double().sum()
                for place, (value, size) in enumerate(zip(self.values, sizes))
            )

    return Weighted().to(group.device)


def _input(torch: Any, group: Group, step: int, place: int, size: Any, rank: int) -> Any:
    """A rank's numbers for a parameter: multiples of the number of ranks, small enough for all."""
    count, dtype = size
    maker = torch.Generator().manual_seed((asked().seed + 101 * step + 7 * place + rank) % 2**63)
    row = torch.randint(1, 6, (min(count, 1021),), generator=maker) * group.world
    full = row.repeat(count // row.numel() + 1)[:count]
    return full.to(getattr(torch, dtype)).to(group.device)


def _mean(torch: Any, group: Group, step: int, place: int, size: Any) -> Any:
    rows = [_input(torch, group, step, place, size, rank) for rank in range(group.world)]
    total = rows[0].double()
    for row in rows[1:]:
        total += row.double()
    return (total / group.world).to(rows[0].dtype)


# --- steps of an optimizer ------------------------------------------------------------------------


class Batch(NamedTuple):
    inputs: Any
    targets: Any


def net(torch: Any, device: str, seed: int = 7) -> Any:
    torch.manual_seed(seed)
    layers = (
        *(torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.LayerNorm(48)),
        *(torch.nn.Linear(48, 48), torch.nn.Tanh(), torch.nn.Linear(48, 8)),
    )
    return torch.nn.Sequential(*layers).double().to(device)


def batch(torch: Any, group: Group, step: int, first: int, ranks: int) -> Batch:
    """The rows of so many ranks, beginning with one."""
    made = torch.Generator().manual_seed((asked().seed + 11 + step) % 2**63)
    inputs = torch.randn(8 * group.world, 24, generator=made, dtype=torch.float64)
    targets = torch.randn(8 * group.world, 8, generator=made, dtype=torch.float64)
    rows = slice(8 * first, 8 * (first + ranks))
    return Batch(inputs[rows].to(group.device), targets[rows].to(group.device))


def steps(
    torch: Any,
    model: Any,
    batches: List[Batch],
    optimizer: Any = None,
    clip: Any = None,
) -> Dict[str, Any]:
    """The parameters after a step of AdamW with each batch, whole, by name."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.05)
    for each in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(each.inputs), each.targets).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return parameters(model)


def parameters(model: Any) -> Dict[str, Any]:
    return {
        name.replace("module.", ""): whole(value.detach())
        for name, value in model.named_parameters()
    }


def whole(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def apart(found: Dict[str, Any], exact: Dict[str, Any], limit: float = TOLERANCE) -> str:
    """What differs by more than rounding."""
    for name, value in exact.items():
        if found[name].shape != value.shape:
            return f"{name} has the shape {tuple(found[name].shape)}"
        scale = max(1.0, float(value.abs().max().item()))
        error = float((found[name] - value).abs().max().item()) / scale
        if not error <= limit:
            return f"{name} is off by {error:.2g} (limit {limit:g})"
    return ""


def batches_of(torch: Any, group: Group, first: int, ranks: int) -> List[Batch]:
    return [batch(torch, group, step, first, ranks) for step in range(STEPS)]


def _alone(torch: Any, group: Group, clip: Any = None) -> Dict[str, Any]:
    model = net(torch, group.device)
    return steps(torch, model, batches_of(torch, group, 0, group.world), clip=clip)


def _stepped(group: Group, options: Dict[str, Any]) -> str:
    """Each rank starts with parameters of its own: those of rank 0 count."""
    import torch

    mine = wrapped(net(torch, group.device, 7 + group.rank), group, options)
    found = steps(torch, mine, batches_of(torch, group, group.rank, 1), clip=0.5)
    return apart(found, _alone(torch, group, 0.5))


def _accumulated(group: Group) -> str:
    """Two batches a step: the first within `no_sync`, where nothing may be exchanged."""
    import torch

    model = net(torch, group.device)
    shared = wrapped(model, group, {"bucket_cap_mb": 0.01})
    alone = net(torch, group.device)
    for step in range(3):
        model.zero_grad()
        alone.zero_grad()
        one, two = (batch(torch, group, 2 * step + turn, group.rank, 1) for turn in (0, 1))
        with shared.no_sync():
            loss(torch, shared, one).backward()
        local = net(torch, group.device)
        loss(torch, local, one).backward()
        said = apart(gradients(model), gradients(local))
        if said:
            return f"within no_sync {said}"
        loss(torch, shared, two).backward()
        for turn in (0, 1):
            loss(torch, alone, batch(torch, group, 2 * step + turn, 0, group.world)).backward()
        said = apart(gradients(model), gradients(alone))
        if said:
            return said
    return ""


def loss(torch: Any, model: Any, each: Batch) -> Any:
    return torch.nn.functional.mse_loss(model(each.inputs), each.targets)


def gradients(model: Any) -> Dict[str, Any]:
    return {name: value.grad for name, value in model.named_parameters()}
