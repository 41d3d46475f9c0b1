"""The ranks together: they meet, each collective is compared with its exact answer, and timed.

Every rank holds integers that float32 holds exactly, so that the answer of a sum over ranks is
exact too and no rounding hides a lost rank. Ranks agree on the outcome of each check through the
store, never through the collective that is on trial, and one that does not come is named.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..device.identity import gpu_uuid
from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome

ARRIVE_SECONDS = 8.0
"""How long the ranks wait for one another before each check."""
COLLECTIVE_SECONDS = 10
"""How long one collective may take before the ranks give it up."""
ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 24}
"""The size of a timed message, in float32 values a rank: 4 MiB, 64 MiB."""
REPEATS = 5


class Group(NamedTuple):
    """The process group of this process."""

    store: Any
    rank: int
    world: int
    device: str
    backend: str


_GROUP: List[Group] = []


def meet(device: str) -> Outcome:
    """All ranks form a group, and no two of them use the same GPU."""
    import datetime

    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return Outcome(SKIPPED, "this torch is built without torch.distributed")
    on_gpu = device.startswith("cuda")
    if on_gpu and not dist.is_nccl_available():
        return Outcome(SKIPPED, "this torch is built without NCCL (Windows, Jetson)", hint=NO_NCCL)
    if on_gpu:
        torch.cuda.set_device(device)
    backend = "nccl" if on_gpu else "gloo"
    limit = datetime.timedelta(seconds=COLLECTIVE_SECONDS)
    try:
        dist.init_process_group(backend, timeout=limit)
    except Exception as problem:  # its kind differs between backends and releases
        return Outcome(FAILED, f"the ranks do not meet: {first_line(problem)}", hint=NETWORK)
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    group = Group(store, rank, world, device, backend)
    _GROUP[:] = [group]
    return agreed(group, "meet", lambda: _alone(torch, group))


NO_NCCL = "`--device cpu` proves the ranks over gloo"
NETWORK = "name the interface that joins the hosts: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"


def _alone(torch: Any, group: Group) -> Outcome:
    """No other rank has this GPU."""
    detail = f"{group.world} ranks by {group.backend}"
    if group.backend != "nccl":
        return Outcome(PASSED, detail)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    place = f"{os.uname().nodename} {visible} {group.device}"
    mine = gpu_uuid(torch, group.device) or place
    group.store.set(f"gpu/{group.rank}", mine)
    for other in range(group.world):
        if other != group.rank and group.store.get(f"gpu/{other}").decode() == mine:
            return Outcome(
                FAILED,
                f"rank {group.rank} and rank {other} use the same GPU {mine}",
                hint="give each rank a GPU of its own: one rank a GPU, LOCAL_RANK chooses it",
            )
    return Outcome(PASSED, f"{detail}, each on a GPU of its own")


# --- agreement ------------------------------------------------------------------------------------


def agreed(group: Group, name: str, work: Callable[[], Outcome]) -> Outcome:
    """Do the work when all ranks have come; fail on every rank where it fails on one."""
    late = missing(group, f"{name}/come", ARRIVE_SECONDS)
    if late:
        return Outcome(FAILED, f"{_ranks(late)} did not come to {name} within {ARRIVE_SECONDS:g} s")
    try:
        own = work()
    except Exception as problem:  # whatever the backend raises is this rank's answer
        own = Outcome(FAILED, first_line(problem), hint=NETWORK)
    failed = own.detail if own.status == FAILED else ""
    group.store.set(f"{name}/said/{group.rank}", failed or own.status)
    late = missing(group, f"{name}/went", 5.0 if failed else COLLECTIVE_SECONDS + 5.0)
    said = [failed] if failed else []
    said += [f"rank {other}: {text}" for other, text in _others(group, name, late)]
    if late:
        said.insert(0, f"{_ranks(late)} hangs in {name}")
    return own._replace(status=FAILED, detail="; ".join(said)) if said else own


def _others(group: Group, name: str, late: List[int]) -> Iterator[Tuple[int, str]]:
    """What the other ranks say that failed on them."""
    for other in range(group.world):
        if other != group.rank and other not in late:
            said = group.store.get(f"{name}/said/{other}").decode()
            if said not in (PASSED, SKIPPED):
                yield other, said


def missing(group: Group, place: str, seconds: float) -> List[int]:
    """The ranks that have not come to a place after so long; this one has.

    Asked by adding nothing: the store of every torch can, `check` came later.
    """
    group.store.add(f"{place}/{group.rank}", 1)
    until = time.monotonic() + seconds
    waited = list(range(group.world))
    while waited and time.monotonic() < until:
        waited = [other for other in waited if not group.store.add(f"{place}/{other}", 0)]
        if waited:
            time.sleep(0.01)
    return waited


def _ranks(numbers: List[int]) -> str:
    """
    >>> _ranks([1]), _ranks([1, 3])
    ('rank 1', 'ranks 1, 3')
    """
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


# --- the collectives ------------------------------------------------------------------------------


class Trial(NamedTuple):
    """One collective on this rank's tensors."""

    run: Callable[[], Any]
    """Does it once; the tensor that it leaves."""
    exact: Any
    """What that must be, element by element."""
    share: float
    """Bytes over the bus for each byte of the message (nccl-tests' factor)."""


def all_reduce(device: str) -> Outcome:
    """The sum over all ranks."""
    return _tried("all_reduce", _all_reduce)


def all_gather(device: str) -> Outcome:
    """Every rank's part, in the order of the ranks."""
    return _tried("all_gather", _all_gather)


def reduce_scatter(device: str) -> Outcome:
    """Each rank's part of the sum."""
    return _tried("reduce_scatter", _reduce_scatter)


def broadcast(device: str) -> Outcome:
    """The last rank's values on every rank."""
    return _tried("broadcast", _broadcast)


def all_to_all(device: str) -> Outcome:
    """From every rank the part meant for this one."""
    return _tried("all_to_all", _all_to_all)


def _tried(name: str, trial: Callable[[Any, Group, int], Trial]) -> Outcome:
    group = _GROUP[0]
    return agreed(group, name, lambda: _compared(trial, group))


def _compared(trial: Callable[[Any, Group, int], Trial], group: Group) -> Outcome:
    import torch

    size = ELEMENTS[group.device.partition(":")[0]] // group.world * group.world
    made = trial(torch, group, size)
    try:
        found = made.run()
    except (RuntimeError, NotImplementedError) as problem:
        lacks = any(word in str(problem) for word in ("not support", "No backend type", "not impl"))
        if not lacks:
            raise
        return Outcome(SKIPPED, f"{group.backend} has none in torch {torch.__version__}")
    wrong = int((found != made.exact).sum().item())
    if wrong:
        return Outcome(
            FAILED, f"{wrong} of {found.numel()} elements are wrong on rank {group.rank}"
        )
    rate, spread = _rate(torch, group, made, 4 * size)
    detail = f"exact on {group.world} ranks, {4 * size >> 20} MiB, bus bandwidth in GB/s"
    return Outcome(PASSED, detail, rate, None, "GB/s", spread=spread)


def _rate(torch: Any, group: Group, made: Trial, message: int) -> Tuple[float, float]:
    """Bus bandwidth in GB/s (the median), and by which part the repeats differed."""
    rates = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        made.run()
        if group.device.startswith("cuda"):
            torch.cuda.synchronize(group.device)
        rates.append(message * made.share / (time.perf_counter() - began) / 1e9)
    rates.sort()
    middle = rates[len(rates) // 2]
    return middle, (rates[-1] - rates[0]) / middle


def _values(torch: Any, size: int, rank: int, device: str) -> Any:
    """Integers that differ by rank and place; sums over thousands of ranks stay exact."""
    return (torch.arange(size, device=device) % 997 + rank).float()


def _sum(torch: Any, group: Group, size: int) -> Any:
    base = _values(torch, size, 0, group.device)
    return base * group.world + group.world * (group.world - 1) // 2


def _all_reduce(torch: Any, group: Group, size: int) -> Trial:
    import torch.distributed as dist

    source = _values(torch, size, group.rank, group.device)

    def run() -> Any:
        work = source.clone()
        dist.all_reduce(work)
        return work

    return Trial(run, _sum(torch, group, size), 2 * (group.world - 1) / group.world)


def _all_gather(torch: Any, group: Group, size: int) -> Trial:
    import torch.distributed as dist

    part = size // group.world
    source = _values(torch, part, group.rank, group.device)
    rows = [torch.empty_like(source) for _ in range(group.world)]

    def run() -> Any:
        dist.all_gather(rows, source)
        return torch.cat(rows)

    exact = torch.cat([_values(torch, part, r, group.device) for r in range(group.world)])
    return Trial(run, exact, (group.world - 1) / group.world)


def _reduce_scatter(torch: Any, group: Group, size: int) -> Trial:
    import torch.distributed as dist

    source = _values(torch, size, group.rank, group.device)
    part = torch.empty(size // group.world, device=group.device)

    def run() -> Any:
        dist.reduce_scatter(part, list(source.chunk(group.world)))
        return part

    exact = _sum(torch, group, size).chunk(group.world)[group.rank]
    return Trial(run, exact, (group.world - 1) / group.world)


def _broadcast(torch: Any, group: Group, size: int) -> Trial:
    import torch.distributed as dist

    last = group.world - 1
    work = _values(torch, size, group.rank, group.device)

    def run() -> Any:
        dist.broadcast(work, src=last)
        return work

    return Trial(run, _values(torch, size, last, group.device), 1.0)


def _all_to_all(torch: Any, group: Group, size: int) -> Trial:
    import torch.distributed as dist

    source = _values(torch, size, group.rank, group.device)
    found = torch.empty_like(source)

    def run() -> Any:
        dist.all_to_all_single(found, source)
        return found

    rows = [_values(torch, size, r, group.device) for r in range(group.world)]
    exact = torch.cat([row.chunk(group.world)[group.rank] for row in rows])
    return Trial(run, exact, (group.world - 1) / group.world)


# --- training together ----------------------------------------------------------------------------


def ddp_step(device: str) -> Outcome:
    """One DistributedDataParallel step gives the parameters of one process with the whole batch."""
    return agreed(_GROUP[0], "ddp_step", lambda: _trained(_wrapped_ddp, "DDP"))


def fsdp_step(device: str) -> Outcome:
    """One FSDP2 step gives the parameters of one process with the whole batch."""
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        return Outcome(SKIPPED, "this torch has no FSDP2 (fully_shard came with torch 2.6)")
    return agreed(_GROUP[0], "fsdp_step", lambda: _trained(_wrapped_fsdp, "FSDP2"))


TOLERANCE = 1e-9
"""float64 sums in another order: about 1e-15 a step, far below what a lost gradient makes."""


def _trained(wrap: Callable[[Any, Group], Any], name: str) -> Outcome:
    import torch

    group = _GROUP[0]
    alone = _stepped(torch, _net(torch, group.device), _batch(torch, group, 0, group.world))
    together = _net(torch, group.device)
    found = _stepped(torch, wrap(together, group), _batch(torch, group, group.rank, 1))
    errors = [
        float((found[name] - value).abs().max().item() / max(1.0, float(value.abs().max().item())))
        for name, value in alone.items()
    ]
    worst = max(errors)
    detail = f"a {name} step on {group.world} ranks against one process, float64"
    status = PASSED if worst <= TOLERANCE else FAILED
    return Outcome(status, detail, worst, TOLERANCE, "of the largest parameter")


def _net(torch: Any, device: str) -> Any:
    torch.manual_seed(7)
    layers = (torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 8))
    return torch.nn.Sequential(*layers).double().to(device)


def _batch(torch: Any, group: Group, first: int, ranks: int) -> Tuple[Any, Any]:
    """The rows of so many ranks, beginning with one."""
    made = torch.Generator().manual_seed(11)
    inputs = torch.randn(8 * group.world, 24, generator=made, dtype=torch.float64)
    targets = torch.randn(8 * group.world, 8, generator=made, dtype=torch.float64)
    rows = slice(8 * first, 8 * (first + ranks))
    return inputs[rows].to(group.device), targets[rows].to(group.device)


def _stepped(torch: Any, model: Any, batch: Tuple[Any, Any]) -> Dict[str, Any]:
    """The parameters after one step of AdamW, whole, by name."""
    inputs, targets = batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    return {
        name.replace("module.", ""): _whole(value.detach())
        for name, value in model.named_parameters()
    }


def _whole(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _wrapped_ddp(model: Any, group: Group) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    ids = [group.device] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model, device_ids=ids)


def _wrapped_fsdp(model: Any, group: Group) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(group.device.partition(":")[0], (group.world,))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)
