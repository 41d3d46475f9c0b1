"""Trains on several ranks with DDP, and compares with the same steps in one process, which computes
what all ranks compute."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..judging.precision import UNIT_ROUNDOFF, read_precision
from ..values import run_options
from .group import ProcessGroup, run_calls
from .numbers import problem_with, signature

LIMIT = 1e-4
"""The allowed relative difference from float64. Rounding in float32 changes a step by about 1e-6, a
lost gradient by much more than the limit."""
ROWS, WIDTH, HIDDEN, OUT = 8, 24, 47, 8
"""The examples that a rank gets in a pass, and the widths of the network. The one between its
layers is prime, so that it cannot be divided evenly among ranks."""
COARSE_ROUNDINGS = 32
"""The allowed difference in roundings, if the user permits products coarser than float32."""
STEPS = 3
PASSES = 2
"""How many backward passes a step has. The ranks exchange their gradients in the last one."""


def net(seed: int) -> Any:
    """A network of two layers; the same seed gives the same weights."""
    torch.manual_seed(seed)
    layers = [nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, OUT)]
    return nn.Sequential(*layers)


def difference_after_training(group: ProcessGroup) -> str:
    """Where training on the ranks and in one process differ; empty if they agree."""
    # Each rank starts with different parameters, which DDP must replace with the first rank's.
    model = net(group.rank).to(group.device)
    alone = net(0).double()
    # The buckets are so small that the gradients take several messages.
    buckets = {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}
    shared_model = DistributedDataParallel(model, **buckets)
    loss = nn.functional.mse_loss
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.3) for each in (model, alone)]
    generator = torch.Generator().manual_seed(run_options().seed)
    for number in range(STEPS * PASSES):
        # The examples of all ranks, the same on every rank.
        shape = (group.world, ROWS, WIDTH + OUT)
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        exchanges = (number + 1) % PASSES == 0
        with contextlib.nullcontext() if exchanges else shared_model.no_sync():
            own = numbers[group.rank].float().to(group.device)
            loss(shared_model(own[:, :WIDTH]), own[:, WIDTH:]).backward()
        # The single process computes the mean over the examples of all ranks.
        whole = numbers.flatten(0, 1)
        loss(alone(whole[:, :WIDTH]), whole[:, WIDTH:]).backward()
        if exchanges:
            for trained_model, optimizer in zip((model, alone), optimizers):
                nn.utils.clip_grad_norm_(trained_model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    parameters = model.state_dict()
    # All ranks must have the same bits, in whatever order their gradients were summed.
    group.equal_on_all["steps"] = [signature(value) for value in parameters.values()]
    roundoff = UNIT_ROUNDOFF[read_precision(torch, group.device)]
    limit = max(LIMIT, COARSE_ROUNDINGS * roundoff)
    # Numbers below 1 are compared absolutely, others relative to the largest of their tensor.
    for name, exact in alone.state_dict().items():
        size = max(1.0, float(exact.abs().max()))
        problem = problem_with(name, parameters[name], exact, limit * size)
        if problem:
            return problem
    return ""


ddp_step = partial(
    run_calls, "ddp_step", lambda group: {"steps": partial(difference_after_training, group)}
)
