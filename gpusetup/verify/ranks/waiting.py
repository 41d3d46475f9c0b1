"""The checks of what is no plain exchange of tensors: barriers, objects, gradients."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any, Callable, Iterator, List, Tuple

from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome, asked
from .group import COLLECTIVE_SECONDS, GAVE_NOTHING, Group, begin, missing, together
from .scene import Members, groups_of

LATE_SECONDS = 0.05
NO_NUMPY = "numpy is not installed, or torch cannot use this one"


def barrier(device: str) -> Outcome:
    """No rank leaves a barrier before every rank has come to it."""
    return together("barrier", lambda group: told(group, "barrier", _barriers(group)))


def objects(device: str) -> Outcome:
    """Python objects arrive as they were sent, from and at the ranks that were named."""
    return together("objects", _objects_told)


def gradients(device: str) -> Outcome:
    """A collective within a model hands each gradient back to the rank that it is for."""
    return together("gradients", lambda group: told(group, "gradients", _gradients(group)))


Part = Tuple[str, Callable[[], str]]


def told(group: Group, name: str, parts: Iterator[Part]) -> Outcome:
    """Do the parts in their order; what each says is wrong."""
    wrong: List[str] = []
    lacking: List[str] = []
    count = 0
    for part, run in parts:
        count += 1
        begin(f"{name}/{part}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                said = run()
        except (ImportError, AttributeError, NotImplementedError) as problem:
            if GAVE_NOTHING in str(problem):
                raise
            lacking.append(f"{part} ({first_line(problem)})")
            continue
        if said:
            wrong.append(f"{part}: {said}")
    if wrong:
        return Outcome(FAILED, f"rank {group.rank}: " + "; ".join(wrong[:3]))
    less = f"; not offered: {', '.join(lacking[:3])}" if lacking else ""
    status = PASSED if len(lacking) < count else SKIPPED
    return Outcome(status, f"{count - len(lacking)} kinds on {group.world} ranks{less}")


# --- barriers -------------------------------------------------------------------------------------


def _barriers(group: Group) -> Iterator[Part]:
    import torch.distributed as dist

    groups = groups_of(group)
    for turn, name in enumerate(("world", "again", "world", "halves", "stripes", "ends", "world")):
        members = groups.of(name)
        # In turns, lest what is wrong every second time is always met by the same one.
        for mode in ("sync", "async") if turn % 2 else ("async", "sync"):
            yield f"{name} {mode} {turn}", _barrier(dist, group, members, name, turn, mode)
    if group.backend == "gloo":
        for late in range(min(group.world, 4)):
            yield f"monitored {late}", _monitored(dist, group, groups.all, late)


def _barrier(
    dist: Any, group: Group, members: Members, name: str, turn: int, mode: str
) -> Callable[[], str]:
    def wait() -> None:
        work = dist.barrier(group=members.handle, async_op=mode == "async")
        if mode == "async":
            work.wait()
        if group.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(group.device)

    late = (turn + (mode == "async")) % len(members.ranks)
    return lambda: waited(group, members, f"barrier/{name}/{turn}/{mode}", late, wait)


def _monitored(dist: Any, group: Group, members: Members, late: int) -> Callable[[], str]:
    return lambda: waited(
        group, members, f"monitored/{late}", late, lambda: dist.monitored_barrier(members.handle)
    )


def waited(group: Group, members: Members, place: str, late: int, wait: Callable[[], None]) -> str:
    """One member comes late and says through the store that it has; the others must see that."""
    key = f"{place}/{members.ranks[late]}"
    if members.me == late:
        time.sleep(LATE_SECONDS)
        group.store.add(key, 1)
    wait()
    if group.store.add(key, 0):
        return ""
    return f"it did not wait for rank {members.ranks[late]}"


# --- objects --------------------------------------------------------------------------------------


def _thing(rank: int, seed: int) -> Any:
    """An object that tells whose it is, longer on each rank."""
    return {"rank": rank, "seed": seed, "text": "x" * (rank * 37 % 5000), "nested": [(rank, None)]}


def _objects_told(group: Group) -> Outcome:
    """torch unpacks objects by numpy: no rank begins where one has none."""
    import torch

    try:
        torch.zeros(1).numpy()
    except RuntimeError:
        group.store.add("no-numpy", 1)
    missing(group, "objects/looked", COLLECTIVE_SECONDS)
    if group.store.add("no-numpy", 0):
        return Outcome(SKIPPED, NO_NUMPY)
    return told(group, "objects", _objects(group))


def _objects(group: Group) -> Iterator[Part]:
    import torch.distributed as dist

    groups = groups_of(group)
    for turn, name in enumerate(("world", "again", "halves", "stripes", "ends", "world")):
        members = groups.of(name)
        yield f"all_gather_object {name}", partial(_all_objects, dist, members, turn)
        root = (turn + 1) % len(members.ranks)
        yield f"broadcast_object_list {name}", partial(_sent_to_all, dist, members, root, turn)
        yield f"gather_object {name}", partial(_gathered, dist, group, members, root, turn)
        yield f"scatter_object_list {name}", partial(_scattered, dist, members, root, turn)
        if hasattr(dist, "send_object_list"):
            yield f"send_object_list {name}", partial(_passed_on, dist, members, turn)


def _unlike(found: Any, exact: Any) -> str:
    return "" if found == exact else f"got {str(found)[:60]}, must be {str(exact)[:60]}"


def _things(members: Members, turn: int) -> List[Any]:
    return [_thing(rank, asked().seed + turn) for rank in members.ranks]


def _all_objects(dist: Any, members: Members, turn: int) -> str:
    things = _things(members, turn)
    found: List[Any] = [None] * len(things)
    dist.all_gather_object(found, things[members.me], group=members.handle)
    return _unlike(found, things)


def _sent_to_all(dist: Any, members: Members, root: int, turn: int) -> str:
    things = _things(members, turn)
    found = [things[members.me], members.me]
    dist.broadcast_object_list(found, members.ranks[root], group=members.handle)
    return _unlike(found, [things[root], root])


def _gathered(dist: Any, group: Group, members: Members, root: int, turn: int) -> str:
    things = _things(members, turn)
    found: Any = [None] * len(things) if members.me == root else None
    dist.gather_object(things[members.me], found, members.ranks[root], group=members.handle)
    return _unlike(found, things if members.me == root else None)


def _scattered(dist: Any, members: Members, root: int, turn: int) -> str:
    things = _things(members, turn)
    found: List[Any] = [None]
    given = things if members.me == root else [None] * len(things)
    dist.scatter_object_list(found, given, members.ranks[root], group=members.handle)
    return _unlike(found[0], things[members.me])


def _passed_on(dist: Any, members: Members, turn: int) -> str:
    """From the first member to the last."""
    things, last = _things(members, turn), len(members.ranks) - 1
    found: List[Any] = [None]
    if last == 0:
        return ""
    if members.me == 0:
        dist.send_object_list([things[0]], members.ranks[last], group=members.handle)
    if members.me != last:
        return ""
    dist.recv_object_list(found, members.ranks[0], group=members.handle)
    return _unlike(found[0], things[0])


# --- gradients through collectives ----------------------------------------------------------------


def _gradients(group: Group) -> Iterator[Part]:
    import torch
    import torch.distributed.nn.functional as through

    world, me = group.world, group.rank
    maker = torch.Generator().manual_seed(asked().seed % 2**63)
    inputs = torch.randint(-9, 10, (world, world, 5), generator=maker).double().to(group.device)
    weights = torch.randint(-9, 10, (world, world, 5), generator=maker).double().to(group.device)
    root = world - 1

    def both(run: Callable[[Any], Any], exact: Any, back: Any, use: Any = None) -> str:
        """The answer, and the gradient of its product with this rank's weights."""
        mine = inputs[me].clone().requires_grad_()
        answer = run(mine)
        if exact is not None and not torch.equal(answer.detach().reshape(exact.shape), exact):
            return "the answer is wrong"
        (answer * (weights[me] if use is None else use).reshape(answer.shape)).sum().backward()
        return "" if torch.equal(mine.grad, back) else "the gradient is wrong"

    rows = torch.stack([weights[rank] for rank in range(world)])
    yield (
        "all_reduce",
        lambda: both(lambda x: through.all_reduce(x), inputs.sum(0), weights.sum(0)),
    )
    yield (
        "all_gather",
        lambda: both(
            lambda x: torch.stack(through.all_gather(x[0])),
            inputs[:, 0],
            torch.cat((rows.sum(0)[me : me + 1], torch.zeros_like(inputs[0][1:]))),
        ),
    )
    yield (
        "broadcast",
        lambda: both(
            lambda x: through.broadcast(x, root),
            inputs[root],
            weights.sum(0) if me == root else torch.zeros_like(inputs[0]),
        ),
    )
    yield (
        "reduce_scatter",
        lambda: both(
            lambda x: through.reduce_scatter(torch.empty_like(x[0]), list(x.unbind(0))),
            inputs.sum(0)[me],
            rows[:, 0],
            weights[me][0],
        ),
    )
    yield (
        "all_to_all",
        lambda: both(
            lambda x: through.all_to_all_single(torch.empty_like(x), x),
            inputs[:, me],
            rows[:, me],
        ),
    )
