"""One rank of two: recovers alone, and ends with the gradient that DDP gives for the whole batch.

oom_ranks.py RANK FILE SCENARIO
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gpusetup.errors import UsageError
from gpusetup.tune.recover import CannotRecover, recover_from_oom

# Scenario -> the most samples that fit on each rank.
LIMITS = {"none": (99, 99), "one": (5, 99), "both": (5, 2), "never": (0, 99)}


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def main() -> None:
    rank, file = int(sys.argv[1]), sys.argv[2]
    gc.freeze()
    dist.init_process_group("gloo", f"file://{file}", timedelta(seconds=60), 2, rank)
    told: dict[str, Any] = {name: scenario(rank, limits[rank]) for name, limits in LIMITS.items()}
    told["wrapped"] = scenario(rank, (5, 99)[rank], Wrapper)
    told |= {name: refused(made) for name, made in REFUSED.items()}
    told["empty"] = empty(rank)
    print(json.dumps(told))
    dist.destroy_process_group()


class Wrapper(torch.nn.Module):
    """As a framework holds a DDP model, with a parameter of its own."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.own = inner, torch.nn.Parameter(torch.ones(()))


REFUSED = {
    "inside": net,
    "static": lambda: DistributedDataParallel(net(), static_graph=True),
    "two": lambda: torch.nn.ModuleList(DistributedDataParallel(net()) for _ in range(2)),
}


def refused(made: Callable[[], Any]) -> str:
    """What is said before anything was tried."""
    model = made()
    try:
        recover_from_oom(lambda part: model(part).mean(), torch.randn(4, 6), model=model)
    except UsageError as problem:
        return problem.message
    return "tried"


def empty(rank: int) -> str:
    """One rank has nothing in its batch; the other must not wait for it."""
    model = DistributedDataParallel(net())
    try:
        recover_from_oom(
            lambda part: model(part).square().mean(), torch.randn(8 * rank, 6), model=model
        )
    except (UsageError, CannotRecover) as problem:
        return problem.message
    return "went on"


def scenario(
    rank: int, limit: int, given: Callable[[Any], torch.nn.Module] = lambda ddp: ddp
) -> dict[str, object]:
    torch.manual_seed(rank)
    batches = [torch.randn(16, 6) for _ in range(3)]
    plain, careful = DistributedDataParallel(net()), DistributedDataParallel(net())

    def step(part: torch.Tensor) -> torch.Tensor:
        loss = careful(part).square().mean()
        if len(part) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss

    worst = 0.0
    model_given = given(careful)
    said: list[str] = []
    sizes: list[int] = []
    for batch in batches:
        for model in (plain, careful):
            model.zero_grad()
        plain(batch).square().mean().backward()
        try:
            done = recover_from_oom(step, batch, model=model_given, say=said.append)
        except CannotRecover as problem:
            left = sum(p.grad is not None for p in careful.parameters())
            return {"refused": problem.message, "left": left}
        sizes.append(done.micro_batch_size)
        for a, b in zip(plain.parameters(), careful.parameters(), strict=True):
            worst = max(worst, float((a.grad - b.grad).abs().max()))
    return {"close": worst < 1e-6, "said": len(said), "sizes": sizes}


if __name__ == "__main__":
    main()
