"""What is no plain exchange of tensors: barriers, Python objects, gradients, and how fast it goes.

Who must hold what stands in the table of the collectives.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist

from ..values import PASSED, SKIPPED, Outcome, asked
from .collectives import Turn, end
from .draws import COLLECTIVES, SUM, Draw
from .group import Group, Members, Part, State, begin, check, each_part, shared, together

LATE_SECONDS = 0.05
NO_NUMPY = "numpy is not installed, or torch cannot use this one"


def _barriers(group: Group) -> List[Part]:
    return [
        (f"{name} {mode} {turn}", partial(_waited, group, members, f"{name} {mode} {turn}", turn))
        for turn, (name, members) in enumerate([*State.groups.items()] * 2)
        for mode in ("async", "sync")[:: 1 if turn % 2 else -1]
    ]


def _waited(group: Group, members: Members, place: str, turn: int) -> str:
    """One member comes late and says through the store that it has; the others must see that."""
    late = members.ranks[(turn + turn // 4) % len(members.ranks)]
    if group.rank == late:
        time.sleep(LATE_SECONDS)
        group.store.add(f"barrier/{place}/{late}", 1)
    end(dist.barrier(group=members.handle, async_op="async" in place))
    if group.backend == "nccl":
        torch.cuda.synchronize(group.device)
    came = group.store.add(f"barrier/{place}/{late}", 0)
    return "" if came else f"it did not wait for rank {late}"


barrier = check("barrier", _barriers)


# --- objects --------------------------------------------------------------------------------------

OBJECTS = {
    "all_gather": "all_gather_object found mine handle",
    "broadcast": "broadcast_object_list found place handle",
    "gather": "gather_object mine found_at_root place handle",
    "scatter": "scatter_object_list found things place handle",
}
"""Collective -> its form for objects, and what that is given."""


def objects(device: str) -> Outcome:
    """Python objects arrive as they were sent, from and at the ranks that were named."""
    return together("objects", _with_numpy)


def _with_numpy(group: Group) -> Outcome:
    """torch unpacks objects by numpy: no rank begins where one has none."""
    lacks = ""
    try:
        torch.zeros(1).numpy()
    except RuntimeError:
        lacks = NO_NUMPY
    if any(shared(group, "no-numpy", lacks)):
        return Outcome(SKIPPED, NO_NUMPY)
    parts = [
        (f"{op} {name}", partial(_handed, members, op, turn + 1))
        for turn, (name, members) in enumerate(State.groups.items())
        for op in OBJECTS
    ]
    return each_part(group, "objects", parts)


def _handed(members: Members, op: str, turn: int) -> str:
    """Objects are exchanged; what this rank has then must be what the table says."""
    handle, ranks, me = members
    world, root = len(ranks), turn % len(ranks)

    def thing(whose: int, part: int) -> Any:
        """It tells whose it is and for whom, longer on each rank."""
        return {"rank": whose, "for": [(part, None)], "text": "x" * (whose * 1037 % 5000)}

    found: List[Any] = (
        [thing(me, 0)] if op == "broadcast" else [None] * (world if "gather" in op else 1)
    )
    given = {
        "handle": handle,
        "place": ranks[root],
        "mine": thing(me, 0),
        "things": [thing(me, part) for part in range(world)],
        "found": found,
        "found_at_root": found if me == root else None,
    }
    name, *words = OBJECTS[op].split()
    getattr(dist, name)(*map(given.__getitem__, words))
    exact = [thing(*piece) for piece in COLLECTIVES[op].after(me, root, world)]
    return "" if not exact or found == exact else f"got {str(found)[:60]}, not {str(exact)[:60]}"


# --- gradients through collectives ----------------------------------------------------------------

THROUGH: Dict[str, Callable[..., Any]] = {
    "all_reduce": lambda f, x: f.all_reduce(x),
    "broadcast": lambda f, x: f.broadcast(x, 0),
    "all_gather": lambda f, x: torch.cat(f.all_gather(x)),
    "reduce_scatter": lambda f, x: f.reduce_scatter(x[:1] * 0, list(x.split(1))),
    "all_to_all": lambda f, x: f.all_to_all_single(x * 0, x),
}


def _gradients(group: Group) -> List[Part]:
    return [(op, partial(_handed_back, group, op)) for op in THROUGH]


def _handed_back(group: Group, op: str) -> str:
    """The gradient of the answers' product with each rank's weights: of a number the weights of
    all places, on all ranks, where it arrived."""
    import torch.distributed.nn.functional as through

    world, me, row = group.world, group.rank, COLLECTIVES[op]
    maker = torch.Generator().manual_seed(asked().seed % 2**63)
    numbers = torch.randint(-9, 10, (2, world, world, 5), generator=maker).double()
    inputs, weights = numbers.to(group.device)
    mine = inputs[me, : world if row.parts else 1].clone().requires_grad_()
    answer, back = THROUGH[op](through, mine), torch.zeros_like(mine)
    held = [row.after(rank, 0, world) for rank in range(world)]
    (answer * weights[me, : len(held[me])]).sum().backward()
    for rank, pieces in enumerate(held):
        for place, (whose, part) in enumerate(pieces):
            if whose in (me, SUM):
                back[part] += weights[rank, place]
    return "" if torch.equal(mine.grad, back) else "the gradient is wrong"


gradients = check("gradients", _gradients)


# --- rates ----------------------------------------------------------------------------------------

RATED = (1 << 18, 1 << 22, 1 << 24, 1 << 27)
"""Bytes of a message; the last one between GPUs alone."""
REPEATS = 5


def bandwidth(device: str) -> Outcome:
    """The bus bandwidth of all_reduce by message size; `--baseline` compares runs."""
    return together("bandwidth", _swept)


def _swept(group: Group) -> Outcome:
    rates, noise = [0.0], [0.0]
    sizes = RATED if group.backend == "nccl" else RATED[:3]
    for size in sizes:
        begin(f"bandwidth/{size}")
        turn, times = Turn(group, "all_reduce", Draw("plain", ("float32", "sum"), size // 4)), []
        for _ in range(REPEATS + 1):  # the first one sets buffers up
            began = time.perf_counter()
            turn.start()
            if turn.nccl:
                torch.cuda.synchronize(group.device)
            times.append(max(time.perf_counter() - began, 1e-9))
        times = sorted(times[1:])
        # Bytes over the bus for each one of the message, as nccl-tests count them.
        moved = 2 * size * (group.world - 1) / group.world / 1e9
        rates.append(moved / times[REPEATS // 2])
        noise.append(times[-1] / times[0] - 1)
    told = "/".join(f"{rate:.2g}" for rate in rates[1:])
    label = "/".join(f"{size / 2**20:g}" for size in sizes)
    best = rates.index(max(rates))
    detail = f"all_reduce, bus bandwidth in GB/s at {label} MiB: {told}; the best"
    return Outcome(PASSED, detail, rates[best], None, "GB/s", spread=noise[best])
