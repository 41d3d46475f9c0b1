"""Faults of the ranks' collectives: one function of torch goes wrong in one way, sometimes.

A fault is {"on": function, "how": what goes wrong, "when": conditions, "rank": where (None: all)}.
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as home


class Ready:
    """A handle of a call that is done already, or was never made."""

    def wait(self, timeout=None):
        return True


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in tensors_of(part)]
    return []


def one(last, before):
    flat = last.view(-1) if last.is_contiguous() else last.t().view(-1)
    old = flat[len(flat) * 2 // 3].clone()
    flat[len(flat) * 2 // 3] = ~old if last.dtype == torch.bool else old + 1 if old == old else 0


def stale(last, before):
    last.copy_(before)


def swap(last, before):
    last.copy_(last.flip(0).clone())


def drift(last, before):
    """Another order of the sum: the last bit of each fraction."""
    if last.dtype in (torch.float32, torch.float64):
        last.copy_(torch.where(last != last.round(), torch.nextafter(last, last * 2), last))


def coarse(last, before):
    if last.dtype == torch.float32:
        last.copy_(last.to(torch.bfloat16))


HOW = {each.__name__: each for each in (one, stale, swap, drift, coarse)}


def holds(when, calls, tensors, later):
    """Whether this call is one that goes wrong."""
    known = {
        "from_call": lambda n: calls >= n,
        "at_least": lambda n: sum(each.numel() for each in tensors) >= n,
        "dtype": lambda name: any(str(each.dtype) == f"torch.{name}" for each in tensors),
        "later": lambda wanted: later == wanted,
    }
    return all(known[name](value) for name, value in when.items())


def broken(real, fault):
    how, calls = fault["how"], [-1]

    def stands_in(*arguments, **named):
        filled = 1 if fault["on"] == "gather" else 0
        tensors = tensors_of(arguments[filled : filled + 1])
        later = named.get("async_op", any(each is True for each in arguments))
        calls[0] += 1
        if not holds(fault.get("when", {}), calls[0], tensors, later):
            return real(*arguments, **named)
        if how == "skip":
            return Ready() if later else None
        if how == "raise":
            raise RuntimeError("Connection reset by peer")
        if how == "root":  # the other one of two
            arguments = tuple(
                1 - each if type(each) is int and each in (0, 1) else each for each in arguments
            )
        before = [each.detach().clone() for each in tensors]
        done = real(*arguments, **named)
        if how == "early":
            return Ready() if done is not None else None
        if hasattr(done, "wait"):
            done.wait()
        for last, old in list(zip(tensors, before, strict=True))[-1:]:
            if how in HOW and last.numel():
                HOW[how](last.detach(), old)
        return done

    return stands_in


def put(fault, rank):
    """Break torch in this process as the fault says: in every module that holds the function."""
    if fault.get("rank") not in (None, rank):
        return
    if fault["on"] == "ddp":
        ddp()
        return
    real = getattr(home, fault["on"])
    new = broken(real, fault)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch"):
            for key, value in list(vars(module).items()):
                if value is real:
                    setattr(module, key, new)


def ddp():
    """The second bucket of gradients is not exchanged."""
    from torch.nn.parallel import DistributedDataParallel as Wrapped

    real = Wrapped.__init__

    def hook(_, bucket):
        if bucket.index() == 1:
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / dist.get_world_size())

    hook.__annotations__ = {}

    def made(self, module, *arguments, **named):
        real(self, module, *arguments, **named)
        self.register_comm_hook(None, hook)

    Wrapped.__init__ = made
