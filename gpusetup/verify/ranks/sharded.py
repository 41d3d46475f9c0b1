"""Training with parameters that are spread over the ranks: FSDP2, and DTensor's tensor parallel."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

from ..values import SKIPPED, Outcome, asked
from .group import Group, together
from .training import Batch, apart, batch, batches_of, loss, net, steps, whole
from .waiting import Part, told

NO_FSDP = "this torch has no FSDP2 (fully_shard came with torch 2.6)"
NO_DTENSOR = "this torch has no tensor parallel by DTensor (it came with torch 2.5)"


def fsdp_step(device: str) -> Outcome:
    """FSDP2 gives the parameters of one process with the whole batch."""
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        return Outcome(SKIPPED, NO_FSDP)
    return together("fsdp_step", lambda group: told(group, "fsdp_step", _fsdp(group)))


def tp_step(device: str) -> Outcome:
    """Tensor parallel layers give the parameters of one process; tensors are laid out anew."""
    try:
        from torch.distributed.tensor import parallel  # noqa: F401
    except ImportError:
        return Outcome(SKIPPED, NO_DTENSOR)
    return together("tp_step", lambda group: told(group, "tp_step", _tensor_parallel(group)))


def mesh_of(group: Group, *shape: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    names = {"mesh_dim_names": ("repeated", "sharded")} if len(shape) == 2 else {}
    return init_device_mesh(group.device.partition(":")[0], shape or (group.world,), **names)


# --- FSDP2 ----------------------------------------------------------------------------------------


def _fsdp(group: Group) -> Iterator[Part]:
    import torch

    mesh = mesh_of(group)
    yield "steps", lambda: _stepped(torch, group, mesh, {})
    yield (
        "kept after forward",
        lambda: _stepped(torch, group, mesh, {"reshard_after_forward": False}),
    )
    yield "clipped", lambda: _stepped(torch, group, mesh, {}, clip=0.5)
    yield "accumulated", lambda: _accumulated(torch, group, mesh)
    yield "in bfloat16", lambda: _mixed(torch, group, mesh)
    if group.world >= 4 and group.world % 2 == 0:
        both = mesh_of(group, 2, group.world // 2)
        yield "sharded and repeated", lambda: _stepped(torch, group, both, {})


def _wrapped(model: Any, mesh: Any, options: Dict[str, Any]) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def _odd(torch: Any, group: Group) -> Any:
    """A net of which no length can be shared out evenly."""
    torch.manual_seed(7)
    layers = (torch.nn.Linear(24, 47), torch.nn.Tanh(), torch.nn.Linear(47, 8))
    return torch.nn.Sequential(*layers).double().to(group.device)


def _stepped(torch: Any, group: Group, mesh: Any, options: Dict[str, Any], clip: Any = None) -> str:
    nets: Tuple[Callable[[], Any], ...] = (
        lambda: net(torch, group.device),
        lambda: _odd(torch, group),
    )
    for made in nets:
        alone = made()
        exact = steps(torch, alone, batches_of(torch, group, 0, group.world), clip=clip)
        model = _wrapped(made(), mesh, options)
        said = apart(steps(torch, model, batches_of(torch, group, group.rank, 1), clip=clip), exact)
        if said:
            return said
    return ""


def _accumulated(torch: Any, group: Group, mesh: Any) -> str:
    """Two batches a step, the gradients of the first not yet exchanged."""
    model, alone = _wrapped(net(torch, group.device), mesh, {}), net(torch, group.device)
    for step in range(2):
        model.zero_grad()
        alone.zero_grad()
        for turn in (0, 1):
            model.set_requires_gradient_sync(turn == 1)
            loss(torch, model, batch(torch, group, 2 * step + turn, group.rank, 1)).backward()
            loss(torch, alone, batch(torch, group, 2 * step + turn, 0, group.world)).backward()
        said = apart(_whole_gradients(model), _whole_gradients(alone))
        if said:
            return said
    return ""


def _whole_gradients(model: Any) -> Dict[str, Any]:
    return {name: whole(value.grad) for name, value in model.named_parameters()}


def _mixed(torch: Any, group: Group, mesh: Any) -> str:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    alone = net(torch, group.device).float()
    model = _wrapped(net(torch, group.device).float(), mesh, {"mp_policy": policy})
    mine, everything = batch(torch, group, 0, group.rank, 1), batch(torch, group, 0, 0, group.world)
    loss(torch, model, _single(mine)).backward()
    loss(torch, alone, _single(everything)).backward()
    return apart(_whole_gradients(model), _whole_gradients(alone), 0.03)


def _single(each: Batch) -> Batch:
    return Batch(each.inputs.float(), each.targets.float())


# --- tensor parallel ------------------------------------------------------------------------------


def _tensor_parallel(group: Group) -> Iterator[Part]:
    import torch

    mesh = mesh_of(group)
    yield "columns and rows", lambda: _columns_and_rows(torch, group, mesh, False)
    yield "sequence parallel", lambda: _columns_and_rows(torch, group, mesh, True)
    yield "embedding by rows", lambda: _embedding(torch, group, mesh)
    for name, run in _layouts(torch, group, mesh):
        yield name, run


def _block(torch: Any, group: Group) -> Any:
    torch.manual_seed(7)
    hidden = 16 * group.world
    layers = (torch.nn.Linear(24, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, 8))
    return torch.nn.Sequential(*layers).double().to(group.device)


def _columns_and_rows(torch: Any, group: Group, mesh: Any, sequence: bool) -> str:
    """The first layer split by columns, the last by rows; with the inputs split too or not."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    layout = Shard(0) if sequence else Replicate()
    model = parallelize_module(
        _block(torch, group),
        mesh,
        {
            "0": ColwiseParallel(input_layouts=layout),
            "2": RowwiseParallel(output_layouts=Replicate()),
        },
    )
    everything = batches_of(torch, group, 0, group.world)
    mine = batches_of(torch, group, group.rank, 1) if sequence else everything
    given = [Batch(one.inputs, all_.targets) for one, all_ in zip(mine, everything)]
    exact = steps(torch, _block(torch, group), everything)
    return apart(steps(torch, model, given), exact)


def _embedding(torch: Any, group: Group, mesh: Any) -> str:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    def made() -> Any:
        torch.manual_seed(5)
        return (
            torch.nn.Sequential(torch.nn.Embedding(13 * group.world, 9)).double().to(group.device)
        )

    model, alone = made(), made()
    plan = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    model = parallelize_module(model, mesh, {"0": plan})
    places = torch.arange(13 * group.world, device=group.device).flip(0)
    found, exact = model(places), alone(places)
    return "" if torch.equal(whole(found), exact) else "a row is not the one that was asked for"


def _layouts(torch: Any, group: Group, mesh: Any) -> Iterator[Part]:
    """A tensor goes from every layout to every other one."""
    from torch.distributed.tensor import Replicate, Shard

    maker = torch.Generator().manual_seed(asked().seed % 2**63)
    for rows, columns in ((2 * group.world, 3 * group.world), (2 * group.world + 1, 5)):
        exact = torch.randint(-99, 99, (rows, columns), generator=maker).double().to(group.device)
        ways = {"whole": Replicate(), "rows": Shard(0), "columns": Shard(1)}
        for first, one in ways.items():
            for second, two in ways.items():
                yield (
                    f"{rows} x {columns} from {first} to {second}",
                    partial(_laid_anew, torch, group, mesh, exact, one, two),
                )
        for name, two in ways.items():
            yield f"{rows} x {columns}, a sum to {name}", partial(_summed, group, mesh, exact, two)


def _laid_anew(torch: Any, group: Group, mesh: Any, exact: Any, one: Any, two: Any) -> str:
    """Rank 0's tensor counts: the others give one of their own."""
    from torch.distributed.tensor import distribute_tensor

    laid = distribute_tensor(exact + group.rank, mesh, [one]).redistribute(mesh, [two])
    return _is(laid, exact, two, group)


def _summed(group: Group, mesh: Any, exact: Any, two: Any) -> str:
    from torch.distributed.tensor import DTensor, Partial

    part = DTensor.from_local(exact * (group.rank + 1), mesh, [Partial()])
    share = group.world * (group.world + 1) // 2
    return _is(part.redistribute(mesh, [two]), exact * share, two, group)


def _is(laid: Any, exact: Any, layout: Any, group: Group) -> str:
    """This rank's part is the right one, and so is the whole."""
    mine = exact
    if layout.is_shard():
        parts = exact.chunk(group.world, layout.dim)
        mine = parts[group.rank] if group.rank < len(parts) else exact.narrow(layout.dim, 0, 0)
    local = laid.to_local()
    if local.shape != mine.shape or bool((local != mine).any().item()):
        return "this rank's part is wrong"
    return "" if bool((laid.full_tensor() == exact).all().item()) else "the whole is wrong"
