"""Faults of the ranks' collectives: one function of torch goes wrong in one way, sometimes.

A fault is {"on": function, "how": what goes wrong, "when": conditions, "rank": where (None: all)}.
"""

import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as home

IN_PLACE = ("all_reduce", "broadcast", "reduce")
OUT_FIRST = (
    *("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_gather"),
    *("scatter", "reduce_scatter", "all_to_all", "recv"),
)


class Ready:
    """A handle of a call that is done already, or was never made."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([torch.zeros(1)])
        return future


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in tensors_of(part)]
    return []


def answers(name, arguments, named):
    """The tensors that the call fills."""
    if name == "gather":
        return tensors_of(arguments[1] if len(arguments) > 1 else named.get("gather_list"))
    first = arguments[0] if arguments else next(iter(named.values()), None)
    return tensors_of(first)


def holds(when, calls, tensors, arguments, named):
    """Whether this call is one that goes wrong."""
    numel = sum(each.numel() for each in tensors)
    group = named.get("group")
    for each in arguments:
        if isinstance(each, dist.ProcessGroup):
            group = each
    later = named.get("async_op", any(each is True for each in arguments))
    op = named.get("op", next((a for a in arguments if isinstance(a, dist.ReduceOp)), None))
    if op is None:
        op = next((a for a in arguments if type(a).__name__ in ("RedOpType", "ReduceOp")), None)
    known = {
        "from_call": lambda n: calls >= n,
        "every": lambda n: calls % n == n - 1,
        "at_least": lambda n: numel >= n,
        "at_most": lambda n: 0 < numel <= n,
        "odd": lambda _: numel % 2 == 1,
        "dtype": lambda name: any(str(t.dtype) == f"torch.{name}" for t in tensors),
        "op": lambda name: op is not None and name in str(op).upper(),
        "sub": lambda _: group is not None and group is not dist.group.WORLD,
        "later": lambda wanted: bool(later) == wanted,
        "root": lambda _: any(type(a) is int and a > 0 for a in (*arguments[1:3], *named.values())),
        "offset": lambda _: any(t.storage_offset() for t in tensors),
        "splits": lambda _: any(isinstance(a, list) and a and type(a[0]) is int for a in arguments),
    }
    return all(known[name](value) for name, value in when.items())


def hurt(how, tensors, before):
    """Change what a call has answered."""
    tensors = [each for each in tensors if each.numel()]
    if not tensors:
        return
    last = tensors[-1]
    if how == "one":
        flat = last.detach().view(-1) if last.is_contiguous() else last.detach().t().view(-1)
        place = flat.numel() * 2 // 3
        old = flat[place].clone()
        flat[place] = ~old if last.dtype == torch.bool else (old + 1 if old == old else 0)
    elif how == "stale":
        for each, old in zip(tensors, before, strict=True):
            each.detach().copy_(old)
    elif how == "swap" and last.numel() > 1:
        if len(tensors) > 1 and tensors[0].shape == last.shape:
            kept = last.detach().clone()
            last.detach().copy_(tensors[0].detach())
            tensors[0].detach().copy_(kept)
        else:
            last.detach().copy_(last.detach().flip(0).clone())
    elif how == "drift" and last.dtype in (torch.float32, torch.float64):
        fraction = last.detach() != last.detach().round()
        last.detach().copy_(torch.where(fraction, torch.nextafter(last, last * 2), last).detach())
    elif how == "coarse" and last.dtype.is_floating_point:
        last.detach().copy_(
            last.detach()
            .to(torch.bfloat16 if last.dtype != torch.bfloat16 else torch.float8_e4m3fn)
            .to(last.dtype)
        )


def broken(name, real, how, when):
    state = {"calls": -1, "kept": None}

    def stands_in(*arguments, **named):
        tensors = answers(name, arguments, named)
        state["calls"] += 1
        if not holds(when, state["calls"], tensors, arguments, named):
            return real(*arguments, **named)
        if how == "skip":
            later = named.get("async_op") or True in arguments
            return Ready() if later else None
        if how == "hang":
            time.sleep(600)
        if how == "raise":
            raise RuntimeError("Connection reset by peer")
        if how == "lost":
            for each in tensors:
                each.detach().zero_()
        if how == "early":
            done = real(*arguments, **named)
            return Ready() if done is not None and name not in ("all_gather_object",) else done
        if how == "root":
            arguments, named = other_root(name, arguments, named)
        if how == "op":
            swap = {dist.ReduceOp.SUM: dist.ReduceOp.MAX, dist.ReduceOp.MAX: dist.ReduceOp.MIN}
            arguments = tuple(
                swap.get(a, a) if type(a).__name__ == "RedOpType" else a for a in arguments
            )
            named = {k: swap.get(v, v) if k == "op" else v for k, v in named.items()}
        before = [each.detach().clone() for each in tensors]
        done = real(*arguments, **named)
        if hasattr(done, "wait"):
            done.wait()
        hurt(how, tensors, before)
        return done

    return stands_in


def other_root(name, arguments, named):
    """The root of the call, another one of the group's."""
    group = next(
        (a for a in (*arguments, *named.values()) if isinstance(a, dist.ProcessGroup)), None
    )
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)

    def other(rank):
        return ranks[(ranks.index(rank) + 1) % len(ranks)] if rank in ranks else rank

    for key in ("src", "dst"):
        if named.get(key) is not None:
            return arguments, {**named, key: other(named[key])}
    changed = [other(a) if type(a) is int and place else a for place, a in enumerate(arguments)]
    return tuple(changed), named


def is_op(value):
    return type(value).__name__ == "RedOpType"


def replace(real, new):
    """Every module of torch that holds the function holds the other one."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch"):
            for key, value in list(vars(module).items()):
                if value is real:
                    setattr(module, key, new)


def put(fault, rank):
    """Break torch in this process as the fault says."""
    if fault.get("rank") is not None and fault["rank"] != rank:
        return
    name, how, when = fault["on"], fault["how"], fault.get("when", {})
    if name in SPECIAL:
        SPECIAL[name](how, when)
        return
    if name.startswith("functional."):
        import torch.distributed._functional_collectives as functional

        owner, name = functional, name.partition(".")[2]
        real = getattr(owner, name)
        new = after(real, how, when)
        setattr(owner, name, new)
        return
    real = getattr(home, name)
    replace(real, broken(name, real, how, when))


def after(real, how, when):
    state = {"calls": -1}

    def stands_in(*arguments, **named):
        found = real(*arguments, **named)
        state["calls"] += 1
        tensor = torch.distributed._functional_collectives.wait_tensor(found)
        if holds(when, state["calls"], [tensor], arguments, named):
            hurt(how, [tensor], [torch.zeros_like(tensor)])
        return tensor

    return stands_in


# --- training -------------------------------------------------------------------------------------


def ddp(how, when):
    """`ddp`: the reducer is told something else, or a hook leaves something out."""
    from torch.nn.parallel import DistributedDataParallel as Wrapped

    real = Wrapped.__init__
    state = {"steps": 0}

    def made(self, module, *arguments, **named):
        if how == "no start":
            named["init_sync"] = False
        if not suits(named):
            real(self, module, *arguments, **named)
            return
        real(self, module, *arguments, **named)
        if how in ("skip bucket", "stale", "drift"):
            with contextlib.suppress(RuntimeError):
                self.register_comm_hook(None, hook)

    def suits(named):
        return all(bool(named.get(key)) == wanted for key, wanted in when.items() if key != "from")

    def hook(_, bucket):
        tensor = bucket.buffer()
        state["steps"] += 1
        world = dist.get_world_size()
        skip = (how == "skip bucket" and bucket.index() == 1) or (
            how == "stale" and state["steps"] > when.get("from", 3)
        )
        if skip:
            future = torch.futures.Future()
            future.set_result(tensor)
            return future
        future = dist.all_reduce(tensor, async_op=True).get_future()

        def end(done):
            mean = done.value()[0] / world
            hurt(how, [mean], [])
            return mean

        return future.then(end)

    hook.__annotations__ = {}
    Wrapped.__init__ = made


SPECIAL = {"ddp": ddp}
